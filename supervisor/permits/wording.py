"""The words of questions: what is shown of a call, why it is asked about, and for how long a yes may hold."""

from protocol.conversation import ToolCall
from protocol.permission import Kind
from protocol.policy import Rung
from protocol.tools.catalog import Arguments
from protocol.tools.fetch import Fetch
from protocol.tools.run_command import RunCommand
from protocol.wire import Ready
from supervisor.permits.asking import Question, Scope
from supervisor.permits.decisions import Case
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
    reason = "; ".join(filter(None, (*ready.notes, ready.refuse_commands))) or "the kernel allows no more"
    return (
        f"sandbox.require is {require.value!r}, but here the sandbox is {ready.rung.value!r} ({reason}); "
        "`agent doctor` says what would help"
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
    if case.doubt:
        reasons.append(f"rules of the settings can't tell what it does: {case.doubt}")
    elif case.asks:
        reasons.append(f"the rule ask {case.rule!r} of the settings names it")
    if case.bare:
        reasons.append(f"{_ONE_BY_ONE} ({ready.refuse_commands or '; '.join(ready.notes)})")
    if case.asks or case.bare:
        scopes = [scope for scope in scopes if scope is not Scope.PROJECT]
    if case.bare or case.doubt:
        notes.append("this session: this very command is not asked about again")
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
