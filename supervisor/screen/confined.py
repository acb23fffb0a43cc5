"""What /sandbox prints, and the few words that stand at the start and in the prompt.  Pure.

Not here: what is in force (permits/standing.py), and what /sandbox changes (sandbox.py).
"""

from collections.abc import Iterator, Sequence

from protocol.policy import Limits, Means, Mode, Network, Rung
from protocol.wire import Ready
from supervisor.permits.standing import InForce
from supervisor.screen.question import flowed, visible
from supervisor.screen.tones import Terminal, Tone

_GIB, _MIB = 1024**3, 1024**2

_MEANS = {Means.NATIVE: "namespaces", Means.BUBBLEWRAP: "namespaces by bubblewrap", Means.NONE: ""}
_LACKING = {"Landlock": "there is no Landlock here", "a filter of system calls": "calls are not filtered"}
"""What else confines, and the note of a worker that has it not."""
CHANGES = "/sandbox read-only | workspace-write | unconfined; /sandbox revoke WORD | all"


def alarm(mode: Mode | None, rung: Rung | None) -> str:
    """What every prompt shows while nothing confines commands; empty where something does."""
    if mode is Mode.UNCONFINED:
        return "UNCONFINED"
    return "NO SANDBOX" if rung is Rung.OFF else ""


def in_short(rung: str, notes: Sequence[str], columns: int) -> str:
    """One line for the start."""
    if not notes:
        return f"sandbox: {rung}"
    whole = f"sandbox: {rung}; not enforced: {'; '.join(notes)}"
    if len(whole) < columns:
        return whole
    things = "1 thing is" if len(notes) == 1 else f"{len(notes)} things are"
    return f"sandbox: {rung}; {things} not enforced (/sandbox says which)"


def drawn(found: InForce, terminal: Terminal, width: int) -> list[str]:
    """What is in force, as lines of less than so many cells."""

    def told(line: str, tone: Tone = Tone.NEUTRAL) -> list[str]:
        return [terminal.paint(row, tone) for row in flowed(visible(line), width)]

    bare = bool(alarm(found.mode, found.ready.rung))
    head = f"sandbox: {found.ready.rung.value} · mode {found.mode.value}"
    lines = [terminal.paint(head, Tone.BAD if bare else Tone.STRONG)]
    lines += told(_by(found.ready, found.mode))
    if found.behind:
        words = (
            "background jobs still run with what was before; until they end, calls get workers of their own"
        )
        lines += told(words, Tone.WARNING)
    if found.ready.notes:
        lines += told("not enforced here:", Tone.WARNING)
        lines += [row for note in found.ready.notes for row in told(f"  - {note}")]
    for line in (*_places(found), *_granted(found), *_limits(found.limits)):
        lines += told(line)
    return [*lines, *told(f"to change it: {CHANGES}", Tone.QUIET)]


def _by(ready: Ready, mode: Mode) -> str:
    if mode is Mode.UNCONFINED:
        return "commands may do all that you may"
    if ready.rung is Rung.OFF:
        return f"each command is asked about: {ready.refuse_commands or 'nothing confines it'}"
    also = [what for what, lack in _LACKING.items() if not any(lack in note for note in ready.notes)]
    return f"by {', '.join(filter(None, (_MEANS[ready.means], *also)))}"


def _places(found: InForce) -> Iterator[str]:
    match found.network:
        case Network.OFF:
            yield "network: off"
        case Network.LISTED:
            held = "" if found.ready.rung is Rung.FULL else " (for fetch; commands have none on this rung)"
            yield f"network: {', '.join(found.hosts) or 'no host'}{held}"
        case Network.ON:
            yield "network: on"
    if found.readable:
        yield f"readable by the settings: {', '.join(found.readable)}"
    if found.writable:
        yield f"writable by the settings: {', '.join(found.writable)}"


def _granted(found: InForce) -> Iterator[str]:
    if found.given:
        yield f"granted by --allow: {', '.join(found.given)}"
    if found.session:
        yield f"granted for this session: {', '.join(found.session)}"
    if found.project:
        yield "granted for this project:"
        for one in found.project:
            yield f"  {one.permission}  since {one.time}, for: {_cut(one.command)}"
    if found.quiet:
        yield f"rules that ask no more in this session: {', '.join(found.quiet)}"
    if found.approved:
        yield "commands that you have let through for this session:"
        yield from (f"  {_cut(command)}" for command in found.approved)
    if not (found.given or found.session or found.project or found.quiet or found.approved):
        yield "granted: nothing"


def _limits(limits: Limits) -> Iterator[str]:
    yield (
        f"limits: memory {_size(limits.memory_bytes)}, {limits.processes} processes, "
        f"{limits.command_seconds:g} s (at most {limits.command_seconds_max:g} s),"
    )
    yield (
        f"  CPU {limits.cpu_seconds} s a process, a file {_size(limits.file_bytes)}, "
        f"{limits.open_files} open files,"
    )
    yield f"  disk {_size(limits.disk_bytes)}, output {_size(limits.output_bytes)}"


def _cut(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 60 else line[:59] + "…"


def _size(count: int) -> str:
    if not count:
        return "without limit"
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"
