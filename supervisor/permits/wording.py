"""The words of questions: what is shown of a call, why it is asked about, and for how long a yes may hold."""

from protocol.conversation import ToolCall
from protocol.permission import Kind
from protocol.policy import Mode, Rung, SandboxPolicy
from protocol.tools.catalog import Arguments
from protocol.tools.fetch import Fetch
from protocol.tools.run_command import RunCommand
from protocol.wire import Ready
from supervisor.permits.asking import Effects, Question, Scope
from supervisor.permits.decisions import Case
from supervisor.permits.judgement import Judgement
from supervisor.permits.wanted import Wanted

_RUNGS = (Rung.OFF, Rung.LANDLOCK, Rung.FULL)
_ONE_BY_ONE = "nothing confines commands on this machine, so each one is asked about"


def subject_of(call: ToolCall, arguments: Arguments) -> str:
    """What of the call a person looks at."""
    match arguments:
        case RunCommand(command=command):
            return command
        case Fetch(url=url):
            return url
        case _:
            return call.arguments


def unmet(ready: Ready, require: Rung) -> str:
    """Why nothing may run: less is enforced than is required.  Empty where enough is."""
    if _RUNGS.index(ready.rung) >= _RUNGS.index(require):
        return ""
    reasons = dict.fromkeys(one for one in (*ready.notes, ready.refuse_commands) if one)
    reason = "; ".join(reasons) or "the kernel allows no more"
    return (
        f"sandbox.require is {require.value!r}, but here the sandbox is {ready.rung.value!r} ({reason}); "
        "`agent doctor` says what would help"
    )


def _asked_by(judged: Judgement) -> str:
    """Which rule wants the question, or why the rules can't tell."""
    if not judged.doubt:
        return f"the rule ask {judged.rule!r} of the settings names it"
    rule = f" (the rule {judged.rule!r})" if judged.rule else ""
    return f"the rules of the settings may forbid it{rule}: {judged.why}"


def untriable(arguments: Arguments, policy: SandboxPolicy, ready: Ready) -> str:
    """Why this can't be a dry run; empty where it can, or isn't meant to be one."""
    if not isinstance(arguments, RunCommand) or not arguments.dry_run:
        return ""
    if arguments.background:
        return "a dry run ends with its call, so it can't go on in the background"
    if policy.mode is Mode.READ_ONLY:
        return "nothing may be written here (read-only), so there is nothing to try; run it without dry_run"
    if policy.mode is Mode.UNCONFINED or ready.rung is Rung.OFF:
        return "nothing confines commands here, so a dry run could not be kept from the workspace itself"
    return ""


def effects_question(case: Case, effects: Effects, arguments: Arguments, cwd: str) -> Question:
    """What became of a dry run: is it to be?"""
    return Question(
        call_id=case.call.id,
        tool=case.call.name,
        subject=case.subject,
        reason=f"a dry run is over: {effects.ended}; {effects.counts}",
        cwd=cwd,
        why=arguments.why if isinstance(arguments, RunCommand) else "",
        notes=effects.lines,
        yes="apply",
        no="discard",
        diff=effects.diff,
        beside=effects.beside,
        own=effects.own,
    )


def question_about(
    case: Case, open_: tuple[Wanted, ...], arguments: Arguments, ready: Ready, cwd: str
) -> Question:
    """`open_`: what of its needs nobody has granted yet."""
    reasons: list[str] = []
    notes: list[str] = []
    scopes = [Scope.ONCE, Scope.SESSION, Scope.PROJECT]
    kinds = {one.permission.kind for one in open_}
    background = isinstance(arguments, RunCommand) and arguments.background
    if open_:
        reasons.append("it needs more than the sandbox allows")
        if background:
            scopes.remove(Scope.ONCE)
            notes.append("it is to go on in the background, so all commands of the session get this")
    if case.asks:
        reasons.append(_asked_by(case.judged))
        if case.judged.doubt:
            notes.append("this session: this very call is not asked about again")
    if case.bare:
        reasons.append(f"{_ONE_BY_ONE} ({ready.refuse_commands or '; '.join(ready.notes)})")
    if case.asks or case.bare:
        scopes = [scope for scope in scopes if scope is not Scope.PROJECT]
    if case.bare:
        notes.append("this session: this very command, in this directory, is not asked about again")
    if Kind.UNCONFINED in kinds:
        scopes = [Scope.ONCE]
        notes.append("unconfined: it may do all that you may, to your files and over the network")
    if Kind.NETWORK in kinds and case.unlisted:
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
