"""What a worker says, cut to what one that is well says.  Pure.

A worker cuts its results itself.  One that has been taken over by what it ran does not: a text of a frame's
length would go into the conversation, to the disk and into every later request.
"""

from msgspec.structs import replace

from protocol.wire import Denial, JobEnded, ToolFinished

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
    """A permission that is longer than any path is none that anybody could give."""
    asked = denial.permission
    return replace(
        denial,
        what=denial.what[:LINE],
        permission=asked if asked is not None and len(asked.target) <= _PATH else None,
    )


def bounded_job(ended: JobEnded) -> JobEnded:
    return JobEnded(ended.id[:LINE], ended.line[:LINE], max(0, ended.jobs))
