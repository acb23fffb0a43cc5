"""May this call run, and with which policy?

In this order: the user's rules, what the call needs beyond the policy, and whether anything confines it at
all.  What has been granted before passes; the rest is one question.  A no is remembered until the turn ends,
so that nobody is asked twice.  Nothing here runs a call again, and nothing but an answer widens a policy.
Not here: how questions queue (asking.py), what a grant covers (grants.py), how a policy is widened (policy/).
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from protocol.conversation import ToolCall
from protocol.permission import Kind, Permission, PermissionWordError
from protocol.policy import Mode, Rung, SandboxPolicy
from protocol.tools.catalog import Arguments, ArgumentsError, decode
from protocol.tools.run_command import RunCommand
from protocol.wire import Ready
from supervisor.permits.asking import Answer, Decider, Question, Questions, Scope
from supervisor.permits.decisions import Case, Decision, Decisions, nobody_words
from supervisor.permits.grants import Grants
from supervisor.permits.judgement import Judgement, Verdict
from supervisor.permits.wanted import Place, Wanted, has, wanted
from supervisor.policy.widen import impossible, widened

_RUNGS = (Rung.OFF, Rung.LANDLOCK, Rung.FULL)
ONE_BY_ONE = "nothing confines commands on this machine, so each one is asked about"


class Run(Struct, frozen=True):
    """It may run: with a `policy` of its own, or as the main worker has it.  `approved`: the user, or a rule
    of the user's, allowed this very call though nothing may confine it."""

    policy: SandboxPolicy | None = None
    approved: bool = False


class Refuse(Struct, frozen=True):
    """It may not.  `words` are for the model."""

    words: str


class Workers(Protocol):
    """The pool, as far as policies go."""

    @property
    def cwd(self) -> str: ...

    async def ready(self) -> Ready: ...

    def replace(self, policy: SandboxPolicy) -> bool: ...


class Gate:
    """`base`: the policy without any grant; `policy`: the first main worker's.  `judge`: the user's rules."""

    def __init__(
        self,
        base: SandboxPolicy,
        policy: SandboxPolicy,
        workers: Workers,
        place: Place,
        grants: Grants,
        questions: Questions,
        judge: Callable[[str, Arguments], Judgement],
        decisions: Decisions,
        *,
        require: Rung = Rung.OFF,
    ) -> None:
        self._base = base
        self.policy = policy
        """The main worker's, or what it is to be as soon as its jobs have ended."""
        self._ran: set[str] = set()
        """Commands of this turn."""
        self.grants = grants
        self._workers = workers
        self._place = place
        self._questions = questions
        self._judge = judge
        self._decisions = decisions
        self._require = require

    def start_turn(self) -> None:
        self._decisions.forget_refusals()
        self._ran.clear()

    async def unmet(self) -> str:
        """Why nothing may run here: less is enforced than the user requires.  Empty where enough is."""
        ready = await self._workers.ready()
        return _unmet(ready, self._require)

    async def admit(self, call: ToolCall) -> Run | Refuse:
        """Whether the call may run.  Waits for the user where the user has to say so.  Raises StopError where
        a decision can't be written down."""
        try:
            arguments = decode(call.name, call.arguments)
        except ArgumentsError:
            return Run()  # the worker says what is wrong with them, and runs nothing
        judged = self._judge(call.name, arguments)
        subject = _subject(call, arguments)
        case = Case(call, subject, rule=judged.rule, ran_before=subject in self._ran)
        if judged.verdict is Verdict.DENY:
            words = f"not run: the rule deny {judged.rule!r} of the user's settings forbids it"
            return self._refused(case, Decider.RULE, words + (f": {judged.why}" if judged.why else ""))
        ready = await self._workers.ready()
        if words := _unmet(ready, self._require):
            return self._refused(case, Decider.PROGRAM, f"not run: {words}")
        try:
            needs = self._needs(arguments)
        except PermissionWordError as error:
            return Refuse(f"not run: {error}")
        if words := self._cannot(needs, arguments):
            return self._refused(replace(case, needs=needs), Decider.PROGRAM, words)
        return await self._permit(replace(case, needs=needs), arguments, judged, ready)

    def _refused(self, case: Case, by: Decider, words: str) -> Refuse:
        self._decisions.take(case, Decision(by, words=words))
        return Refuse(words)

    def _needs(self, arguments: Arguments) -> tuple[Wanted, ...]:
        """What the call wants beyond what every session has.  Raises PermissionWordError."""
        if not isinstance(arguments, RunCommand):
            return ()
        return tuple(
            one for one in wanted(arguments.needs, self._place) if not has(self._base, one.permission)
        )

    def _cannot(self, needs: tuple[Wanted, ...], arguments: Arguments) -> str:
        """Why nobody could permit this, in words for the model."""
        for one in needs:
            if words := impossible(self.policy, one.permission):
                return f"not run: {one.permission} can't be had: {words}"
        unconfined = any(one.permission.kind is Kind.UNCONFINED for one in needs)
        if unconfined and self._require is not Rung.OFF:
            return f"not run: unconfined can't be had: sandbox.require is {self._require.value!r}"
        if unconfined and isinstance(arguments, RunCommand) and arguments.background:
            return (
                "not run: an unconfined command has a worker of its own, which ends with the call, so it "
                "can't go on in the background. Run it in the foreground, or ask for less than unconfined."
            )
        return ""

    async def _permit(
        self, case: Case, arguments: Arguments, judged: Judgement, ready: Ready
    ) -> Run | Refuse:
        """Past the rules that forbid: what is not permitted yet is asked for."""
        case = replace(case, bare=self._is_bare(case, arguments, ready), asks=judged.verdict is Verdict.ASK)
        known = self._known(case, judged)
        if known is None:
            question = _question(case, self._open(case), arguments, ready, self._workers.cwd)
            known = await self._asked(case, question, judged)
        if known.scope is None:
            return Refuse(known.words)
        self._ran.add(case.subject)
        return self._run(case, arguments, known.scope, ready)

    def _is_bare(self, case: Case, arguments: Arguments, ready: Ready) -> bool:
        """Whether it would run with nothing around it that the user has not chosen."""
        return (
            isinstance(arguments, RunCommand)
            and ready.rung is Rung.OFF
            and self.policy.mode is not Mode.UNCONFINED
            and not any(one.permission.kind is Kind.UNCONFINED for one in case.needs)
        )

    def _open(self, case: Case) -> tuple[Wanted, ...]:
        """What of its needs nobody has granted yet."""
        return tuple(one for one in case.needs if self.grants.covering(one.permission) is None)

    def _known(self, case: Case, judged: Judgement) -> Decision | None:
        """What follows from earlier decisions; None where the user has to be asked."""
        if refused := self._decisions.refused(case):
            return self._decisions.take(case, refused)
        asks = case.asks and not self._decisions.quiet(judged.rule)
        bare = case.bare and judged.verdict is not Verdict.ALLOW and not self._decisions.approved(case)
        free = self.grants.covering(Permission(Kind.UNCONFINED))
        if self._open(case) or asks or (bare and free is None):
            return None
        if not case.needs and not case.bare:
            return Decision(Decider.RULE, Scope.ONCE)  # nothing was at stake, so nothing is told
        by = [self.grants.covering(one.permission) for one in case.needs]
        if case.bare:
            by.append(Decider.RULE if judged.verdict is Verdict.ALLOW else free or Decider.GRANT)
        decider = Decider.GRANT if Decider.GRANT in by else next(one for one in by if one is not None)
        return self._decisions.take(case, Decision(decider, Scope.SESSION))

    async def _asked(self, case: Case, question: Question, judged: Judgement) -> Decision:
        """Ask, or say why nobody can be asked."""
        if not self._questions.somebody:
            words = nobody_words(case)
            return self._decisions.take(case, Decision(Decider.NOBODY, words=words))
        earlier: list[Decision] = []

        def settled() -> Answer | None:
            """A question before this one may have settled it."""
            if known := self._known(case, judged):
                earlier.append(known)
                return Answer(known.scope)
            return None

        try:
            number, answer = await self._questions.ask(question, settled)
        except BaseException:
            self._decisions.tell(case, Decision(Decider.CANCELLED, words="the call ended before an answer"))
            raise
        if earlier:
            return earlier[0]
        case = replace(case, question=number)
        if answer.scope not in (None, *question.scopes):
            answer = Answer(None, answer.words)
        if answer.scope is None:
            said = f": {answer.words}" if answer.words else ""
            words = (
                f"not run: the user said no to {case.at_stake}{said}. Don't ask for it again in this turn."
            )
            return self._decisions.take(case, Decision(Decider.USER, words=words))
        decision = self._decisions.take(case, Decision(Decider.USER, answer.scope, answer.words))
        self.grants.add([one.permission for one in self._open(case)], answer.scope, case.subject)
        return decision

    def _run(self, case: Case, arguments: Arguments, scope: Scope, ready: Ready) -> Run | Refuse:
        """The policy for a call that may run."""
        permissions = [one.permission for one in case.needs]
        approved = case.bare or Permission(Kind.UNCONFINED) in permissions
        if not permissions:
            return Run(approved=approved)
        lasting = [one for one in permissions if scope is not Scope.ONCE and one.kind is not Kind.UNCONFINED]
        home = str(self._place.home)
        self.policy = widened(self.policy, lasting, rung=ready.rung, home=home)
        policy = widened(self.policy, permissions, rung=ready.rung, home=home)
        if policy == self.policy and self._workers.replace(policy):
            return Run(approved=approved)
        if isinstance(arguments, RunCommand) and arguments.background:
            return Refuse(
                "not run: it is permitted, but background jobs still run in the worker that does not have "
                "this permission. Stop them with `jobs`, or run this command in the foreground."
            )
        return Run(policy, approved)


def _subject(call: ToolCall, arguments: Arguments) -> str:
    return arguments.command if isinstance(arguments, RunCommand) else call.arguments


def _unmet(ready: Ready, require: Rung) -> str:
    if _RUNGS.index(ready.rung) >= _RUNGS.index(require):
        return ""
    reason = "; ".join((*ready.notes, ready.refuse_commands)) or "the kernel allows no more"
    return (
        f"sandbox.require is {require.value!r}, but here the sandbox is {ready.rung.value!r} ({reason}); "
        "`agent doctor` says what would help"
    )


def _question(
    case: Case, open_: tuple[Wanted, ...], arguments: Arguments, ready: Ready, cwd: str
) -> Question:
    reasons: list[str] = []
    notes: list[str] = []
    scopes = [Scope.ONCE, Scope.SESSION, Scope.PROJECT]
    kinds = {one.permission.kind for one in open_}
    background = isinstance(arguments, RunCommand) and arguments.background
    if open_:
        reasons.append("the command needs more than the sandbox allows")
        if background:
            scopes.remove(Scope.ONCE)
            notes.append("it is to go on in the background, so all commands of the session get this")
    if case.asks:
        reasons.append(f"the rule ask {case.rule!r} of your settings names it")
    if case.bare:
        reasons.append(f"{ONE_BY_ONE} ({ready.refuse_commands or '; '.join(ready.notes)})")
    if case.asks or case.bare:
        scopes = [scope for scope in scopes if scope is not Scope.PROJECT]
    if case.bare:
        notes.append("this session: this very command is not asked about again")
    if Kind.UNCONFINED in kinds:
        scopes = [Scope.ONCE]
        notes.append("unconfined: it may do all that you may, to your files and over the network")
    if Kind.NETWORK in kinds and ready.rung is not Rung.FULL:
        notes.append("on this machine no list of hosts can be held to: it gets the whole network")
    if case.ran_before:
        notes.append("the same command has run already and may have partly happened")
    return Question(
        call_id=case.call.id,
        tool=case.call.name,
        subject=case.subject,
        reason="; ".join(reasons),
        permissions=tuple(one.shown for one in open_),
        cwd=cwd if isinstance(arguments, RunCommand) else "",
        why=arguments.why if isinstance(arguments, RunCommand) else "",
        scopes=tuple(scopes),
        notes=tuple(notes),
    )
