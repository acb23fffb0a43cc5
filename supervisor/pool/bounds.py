"""What a worker says, cut to what one that is well says.  Pure.

A worker cuts its results itself.  One that has been taken over by what it ran does not: a text of a frame's
length would go into the conversation, to the disk and into every later request.
"""

from msgspec.structs import replace

from protocol.permission import PermissionWordError, parse
from protocol.wire import Denial, JobEnded, Ready, ToolFinished

RESULT_SLACK = 4096
"""Bytes that a result may have above its cap: a tool's closing words."""
LINE = 1000
"""Characters of one line for the user."""
BLOCK = 64 * 1024
"""Characters of a preview, a diff, or text for the screen."""
_LINES = 200
_PATH = 4096
"""Characters: the longest path that the kernel knows."""
_DENIALS = 20


def bounded(finished: ToolFinished, cap: int) -> ToolFinished:
    """The result; where any part of it is too long, with that part's beginning."""
    data = finished.text.encode()
    text = finished.text
    if len(data) > cap + RESULT_SLACK:
        kept = data[:cap].decode(errors="ignore")
        text = f"{kept}\n[cut: the worker sent {len(data):,} bytes where {cap:,} are allowed]"
    shown = finished.display
    return replace(
        finished,
        text=text,
        display=replace(
            shown,
            summary=shown.summary[:LINE],
            preview=shown.preview[:BLOCK],
            diff=shown.diff[:BLOCK],
            path=shown.path[:LINE],
        ),
        background=tuple(line[:LINE] for line in finished.background[:_LINES]),
        paths=tuple(path[:LINE] for path in finished.paths[:_LINES]),
        denials=tuple(_denial(denial) for denial in finished.denials[:_DENIALS]),
        cwd=finished.cwd if finished.cwd.startswith("/") and len(finished.cwd) <= _PATH else "",
        jobs=max(0, finished.jobs),
    )


def _denial(denial: Denial) -> Denial:
    """A permission that nobody could ask for in words is none that anybody could give."""
    asked = denial.permission
    try:
        if asked is not None and (len(asked.target) > _PATH or parse(str(asked)) != asked):
            asked = None
    except PermissionWordError:
        asked = None
    return replace(denial, what=_line(denial.what), permission=asked)


def bounded_job(ended: JobEnded) -> JobEnded:
    """It becomes a line by the program, so it must not look like two."""
    return JobEnded(ended.id[:LINE], _line(ended.line), max(0, ended.jobs))


def bounded_ready(ready: Ready) -> Ready:
    return replace(
        ready,
        notes=tuple(map(_line, ready.notes[:_LINES])),
        refuse_commands=_line(ready.refuse_commands),
        probes=tuple(
            replace(probe, name=_line(probe.name), why=_line(probe.why), remedy=_line(probe.remedy))
            for probe in ready.probes[:_LINES]
        ),
    )


def _line(text: str) -> str:
    return " ".join(text[:LINE].splitlines())
