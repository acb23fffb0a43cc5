"""list_files: the names of files below a directory.  Walking and ignoring: worker/files/walking."""

import os
from collections import Counter

from protocol.display import Display
from protocol.tools.list_files import ListFiles
from protocol.wire import Status
from worker.call import Call, Outcome, ToolError
from worker.files.cancelled import CancelledError
from worker.files.globs import GlobError, matcher, misled
from worker.files.names import shown
from worker.files.paths import Access, resolve
from worker.files.results import Lines, closed, counted, preview
from worker.files.walking import Top, Unread, open_top, walk

_COUNT_MAX = 200_000
"""Files above which the rest is not even counted."""
_PLACES_NAMED = 8


def run(arguments: ListFiles, call: Call) -> Outcome:
    """Raises ToolError: no such directory, a malformed glob."""
    with resolve(call.desk.policy, arguments.path or ".", Access.READ) as place:
        top = open_top(call.desk.policy, place)
    try:
        return _listed(arguments, call, top)
    except GlobError as error:
        raise ToolError(str(error)) from error
    finally:
        os.close(top.fd)


def _listed(arguments: ListFiles, call: Call, top: Top) -> Outcome:
    wanted = matcher(arguments.glob) if arguments.glob else None
    taken, unread = Lines(call.desk.limits.result_cap_bytes), Unread()
    left_out: Counter[bytes] = Counter()
    seen, status, full = 0, Status.DONE, False
    try:
        for entry in walk(top, unread, call.cancelled):
            within = entry.path[len(top.prefix) :]
            if wanted is not None and not wanted(within):
                continue
            seen += 1
            full = full or len(taken.lines) >= arguments.limit or not taken.take(entry.described())
            if full:
                left_out[within.partition(b"/")[0] + b"/" if b"/" in within else b"./"] += 1
            if seen >= _COUNT_MAX:
                break
    except CancelledError:
        status = Status.CANCELLED
    notes = _notes(len(taken.lines), seen, left_out, unread)
    if not seen:
        notes += misled(arguments.glob)
    if status is Status.CANCELLED:
        notes.append("cancelled before the end")
    text = closed(taken.lines, notes, call.desk.limits.result_cap_bytes)
    total = f"{len(taken.lines)} of " if left_out else ""
    return Outcome(text, Display(f"listed {total}{counted(seen, 'file')}", preview(text)), status)


def _notes(listed: int, seen: int, left_out: Counter[bytes], unread: Unread) -> list[str]:
    if not seen:
        return ["no files in what could be read", *unread.note()] if unread.paths else ["no files"]
    notes = []
    if left_out:
        places = ", ".join(
            f"{shown(place)} {number}" for place, number in left_out.most_common(_PLACES_NAMED)
        )
        least = "at least " if seen >= _COUNT_MAX else ""
        notes.append(
            f"{least}{seen - listed} more files are left out, in: {places}; "
            "narrow `path` or `glob`, or raise `limit`"
        )
    return notes + unread.note()
