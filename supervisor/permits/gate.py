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
from protocol.policy import Mode, Network, Rung, SandboxPolicy
from protocol.tools.catalog import Arguments, ArgumentsError, decode
from protocol.tools.fetch import Fetch, needs_of
from protocol.tools.jobs import Jobs
from protocol.tools.run_command import RunCommand
from protocol.wire import Ready
from supervisor.permits.asking import Answer, Decider, Effects, Question, Questions, Scope
from supervisor.permits.decisions import Case, Decision, Decisions, nobody_words
from supervisor.permits.grants import Grants
from supervisor.permits.judgement import Judgement, Verdict
from supervisor.permits.wanted import Place, Wanted, has, wanted
from supervisor.permits.wording import effects_question, question_about, subject_of, unmet, untriable
from supervisor.policy.widen import impossible, reaching, widened


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

    @property
    def refusal(self) -> str: ...

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
        self.base = base
        self.policy = policy
        """The main worker's, or what it is to be as soon as its jobs have ended."""
        self._ran: set[str] = set()
        """Commands of this turn."""
        self.behind = False
        """The user has changed the policy, but jobs keep a worker alive that has the earlier one."""
        self.grants = grants
        self._workers = workers
        self._place = place
        self._questions = questions
        self._judge = judge
        self.decisions = decisions
        self._require = require

    def start_turn(self) -> None:
        self.decisions.forget_refusals()
        self._ran.clear()

    async def ready(self) -> Ready:
        return await self._workers.ready()

    def change(self, base: SandboxPolicy, policy: SandboxPolicy) -> bool:
        """The user wants another policy, without and with grants, from the next call on.  False where jobs
        keep the main worker that has the earlier one: then calls get workers of their own."""
        self.base, self.policy = base, policy
        self.behind = not self._workers.replace(policy)
        return not self.behind

    async def unmet(self) -> str:
        """Why nothing may run here: less is enforced than the user requires.  Empty where enough is."""
        ready = await self._workers.ready()
        return unmet(ready, self._require)

    async def admit(self, call: ToolCall) -> Run | Refuse:
        """Whether the call may run.  Waits for the user where the user has to say so.  Raises StopError where
        a decision can't be written down."""
        try:
            arguments = decode(call.name, call.arguments)
        except ArgumentsError:
            return Run()  # the worker says what is wrong with them, and runs nothing
        judged = self._judge(call.name, arguments)
        subject = subject_of(call, arguments)
        case = Case(call, subject, judged=judged, ran_before=subject in self._ran, cwd=self._workers.cwd)
        if judged.verdict is Verdict.DENY:
            words = f"not run: the rule deny {judged.rule!r} of the settings forbids it"
            return self._refused(case, Decider.RULE, words + (f": {judged.why}" if judged.why else ""))
        ready = await self._workers.ready()
        if self._workers.refusal:
            return Refuse(f"not run: {self._workers.refusal}")
        if words := unmet(ready, self._require):
            return self._refused(case, Decider.PROGRAM, f"not run: {words}")
        if words := untriable(arguments, self.policy, ready):
            return Refuse(f"not run: {words}")
        # A page is fetched by the supervisor, which holds to its list on every rung.
        case = replace(case, unlisted=isinstance(arguments, RunCommand) and ready.rung is not Rung.FULL)
        try:
            needs = self._needs(arguments, listed=not case.unlisted)
        except PermissionWordError as error:
            return Refuse(f"not run: {error}")
        if words := self._cannot(needs, arguments):
            return self._refused(replace(case, needs=needs), Decider.PROGRAM, words)
        return await self._permit(replace(case, needs=needs), arguments, judged, ready)

    async def accept(self, call: ToolCall, effects: Effects) -> Answer | None:
        """Whether the user wants what a dry run did; None where nobody can be asked.  Raises StopError."""
        if not self._questions.somebody:
            return None
        arguments = decode(call.name, call.arguments)
        case = Case(call, subject_of(call, arguments), dry_run=True)
        question = effects_question(case, effects, arguments, self._workers.cwd)
        try:
            number, answer = await self._questions.ask(question, lambda: None)
        except BaseException:
            self.decisions.tell(case, Decision(Decider.CANCELLED, words="the call ended before an answer"))
            raise
        scope = Scope.ONCE if answer.scope is not None else None
        said = f": {answer.words}" if answer.words else ""
        words = answer.words if scope else f"not run: the user discarded what it did in a dry run{said}"
        self.decisions.take(replace(case, question=number), Decision(Decider.USER, scope, words))
        return Answer(scope, answer.words)

    def _refused(self, case: Case, by: Decider, words: str) -> Refuse:
        self.decisions.take(case, Decision(by, words=words))
        return Refuse(words)

    def _needs(self, arguments: Arguments, *, listed: bool) -> tuple[Wanted, ...]:
        """What the call wants beyond what every session has.  Raises PermissionWordError."""
        found: tuple[Wanted, ...] = ()
        if isinstance(arguments, RunCommand):
            found = wanted(arguments.needs, self._place)
        elif isinstance(arguments, Fetch) and (host := needs_of(arguments)) is not None:
            found = (Wanted(host, str(host)),)
        return tuple(one for one in found if not has(self.base, one.permission, listed=listed))

    def _cannot(self, needs: tuple[Wanted, ...], arguments: Arguments) -> str:
        """Why nobody could permit this, in words for the model."""
        for one in needs:
            if words := impossible(self.policy, one.permission):
                return f"not run: {one.permission} can't be had: {words}"
        unconfined = any(one.permission.kind is Kind.UNCONFINED for one in needs)
        if unconfined and self._require is not Rung.OFF:
            return f"not run: unconfined can't be had: sandbox.require is {self._require.value!r}"
        if unconfined and isinstance(arguments, RunCommand) and arguments.dry_run:
            return "not run: an unconfined command can't be kept from the workspace, so it has no dry run"
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
            question = question_about(case, self._open(case), arguments, ready, self._workers.cwd)
            known = await self._asked(case, question, judged)
        if known.scope is None:
            return Refuse(known.words)
        if isinstance(arguments, RunCommand):
            self._ran.add(case.subject)
        return self._run(case, arguments, known, ready)

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
        return tuple(one for one in case.needs if self._granted(case, one.permission) is None)

    def _granted(self, case: Case, permission: Permission) -> Decider | None:
        """Who has granted it.  Who has granted a host, once, has not granted the whole network."""
        by = self.grants.covering(permission)
        whole = case.unlisted and permission.kind is Kind.NETWORK and self.policy.network is not Network.ON
        return None if whole and by is Decider.GRANT else by

    def _known(self, case: Case, judged: Judgement) -> Decision | None:
        """What follows from earlier decisions; None where the user has to be asked."""
        if refused := self.decisions.refused(case):
            return self.decisions.again(case, refused)
        asks = case.asks and not self.decisions.quiet(case)
        bare = case.bare and judged.verdict is not Verdict.ALLOW and not self.decisions.approved(case)
        free = self.grants.covering(Permission(Kind.UNCONFINED))
        if self._open(case) or asks or (bare and free is None):
            return None
        if not case.needs and not case.bare:
            return Decision(Decider.RULE, Scope.ONCE)  # nothing was at stake, so nothing is told
        by = [self._granted(case, one.permission) for one in case.needs]
        if case.bare:
            by.append(Decider.RULE if judged.verdict is Verdict.ALLOW else free or Decider.GRANT)
        decider = Decider.GRANT if Decider.GRANT in by else next(one for one in by if one is not None)
        return self.decisions.take(case, Decision(decider, Scope.SESSION))

    async def _asked(self, case: Case, question: Question, judged: Judgement) -> Decision:
        """Ask, or say why nobody can be asked."""
        if not self._questions.somebody:
            case = replace(case, needs=self._open(case))
            words = nobody_words(case)
            return self.decisions.take(case, Decision(Decider.NOBODY, words=words))
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
            self.decisions.tell(case, Decision(Decider.CANCELLED, words="the call ended before an answer"))
            raise
        if earlier:
            return earlier[0]
        case = replace(case, question=number)
        if answer.scope not in (None, *question.scopes):
            answer = Answer(None, answer.words)
        if answer.scope is None:
            said = f": {answer.words}" if answer.words else ""
            # A no takes nothing back that was granted before.
            refused = replace(case, needs=self._open(case))
            words = (
                f"not run: the user said no to {refused.at_stake}{said}. Don't ask for it again in this turn."
            )
            return self.decisions.take(refused, Decision(Decider.USER, words=words))
        decision = self.decisions.take(case, Decision(Decider.USER, answer.scope, answer.words))
        self.grants.add([one.permission for one in self._open(case)], answer.scope, case.subject)
        return decision

    def _widened(
        self, policy: SandboxPolicy, permissions: list[Permission], arguments: Arguments, ready: Ready
    ) -> SandboxPolicy:
        if isinstance(arguments, Fetch):
            for permission in permissions:
                policy = reaching(policy, permission)
            return policy
        return widened(policy, permissions, rung=ready.rung, home=str(self._place.home))

    def _run(self, case: Case, arguments: Arguments, decision: Decision, ready: Ready) -> Run | Refuse:
        """The policy for a call that may run."""
        permissions = [one.permission for one in case.needs]
        approved = case.bare or Permission(Kind.UNCONFINED) in permissions
        if not permissions:
            return self._run_as_it_is(arguments, approved=approved)
        lasting = [one for one in permissions if _lasts(one, case, decision)]
        self.policy = self._widened(self.policy, lasting, arguments, ready)
        policy = self._widened(self.policy, permissions, arguments, ready)
        if policy == self.policy and self._workers.replace(policy):
            return Run(approved=approved)
        if isinstance(arguments, RunCommand) and arguments.background:
            return Refuse(
                "not run: it is permitted, but background jobs still run in the worker that does not have "
                "this permission. Stop them with `jobs`, or run this command in the foreground."
            )
        return Run(policy, approved)

    def _run_as_it_is(self, arguments: Arguments, *, approved: bool) -> Run | Refuse:
        """In the main worker, unless that is an earlier policy's."""
        if self.behind:
            self.behind = not self._workers.replace(self.policy)
        if not self.behind or isinstance(arguments, Jobs):
            return Run(approved=approved)
        if isinstance(arguments, RunCommand) and arguments.background:
            return Refuse(
                "not run: the user has changed the sandbox, and background jobs still run in the worker that "
                "was before. Stop them with `jobs`, or run this command in the foreground."
            )
        return Run(self.policy, approved)


def _lasts(permission: Permission, case: Case, decision: Decision) -> bool:
    """Whether the main worker gets it too, and so all later commands."""
    if decision.scope is Scope.ONCE or permission.kind is Kind.UNCONFINED:
        return False
    # A host that a flag names is no word for the whole network.
    return not (case.unlisted and permission.kind is Kind.NETWORK) or decision.by is Decider.USER
