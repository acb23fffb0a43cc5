"""read_file: a text file, or a part of it, with line numbers.  How it is cut out: worker/files/slices."""

import os

from protocol.display import Display
from protocol.tools.read_file import ReadFile
from protocol.wire import Status
from worker.call import Call, Outcome, ToolError
from worker.files.cancelled import CancelledError
from worker.files.encodings import BOM, HEAD, binary
from worker.files.paths import Access, in_words, resolve
from worker.files.regular import open_regular
from worker.files.results import closed, counted, preview, room
from worker.files.seen import saw
from worker.files.slices import Slice, by_bytes, by_lines


def run(arguments: ReadFile, call: Call) -> Outcome:
    """Raises ToolError: no such file, not a regular one, not text, nothing at that offset."""
    with resolve(call.desk.policy, arguments.path, Access.READ) as place:
        fd = open_regular(place)
        try:
            with in_words(place.shown):
                saw(call.desk, place, fd)
                return _read(arguments, call, fd, place.shown)
        except CancelledError:
            return Outcome("[cancelled]", Display("cancelled"), Status.CANCELLED)
        finally:
            os.close(fd)


def _read(arguments: ReadFile, call: Call, fd: int, what: str) -> Outcome:
    size = os.fstat(fd).st_size
    head = os.pread(fd, HEAD, 0)
    problem = binary(head)
    if problem is not None:
        raise ToolError(f"{what}: {problem}; it has {counted(size, 'byte')} and is not shown")
    cap = call.desk.limits.result_cap_bytes
    if arguments.byte_offset is not None:
        return _by_bytes(arguments, fd, max(size, len(head)), cap, what)
    if not head:
        return Outcome("[the file is empty]", Display("read an empty file"))
    found = by_lines(fd, arguments.offset, arguments.limit, room(cap), call.cancelled)
    if not found.lines:
        total = found.total or 0
        raise ToolError(f"{what} has {counted(total, 'line')}; offset={arguments.offset} lies behind the end")
    notes = [*_where(found, arguments.offset, size), *found.notes()]
    if arguments.offset == 1 and head.startswith(BOM):
        notes.append("the file starts with a byte order mark, which edits keep")
    text = closed(found.lines, notes, cap)
    whole = f"of {found.total} " if found.total not in (None, len(found.lines)) else ""
    summary = f"read {len(found.lines)} {whole}line{'' if (found.total or len(found.lines)) == 1 else 's'}"
    return Outcome(text, Display(summary, preview(text)))


def _where(found: Slice, first: int, size: int) -> list[str]:
    """What part this is, and how to get the rest; nothing where all is shown."""
    if found.next_line is None and first == 1:
        return []
    total = "" if found.total is None else f" of {found.total}"
    notes = [f"lines {first}-{found.last}{total}"]
    if found.cut_line is not None:
        notes.append(
            f"line {found.cut_line} is cut, the file has {size} bytes: go on in it with "
            f"byte_offset={found.next_byte}, or after it with offset={found.next_line}"
        )
    elif found.next_line is not None:
        notes.append(f"go on with offset={found.next_line}")
    return notes


def _by_bytes(arguments: ReadFile, fd: int, size: int, cap: int, what: str) -> Outcome:
    first = arguments.byte_offset or 0
    if first >= size:
        raise ToolError(f"{what} has {counted(size, 'byte')}; byte_offset={first} lies behind the end")
    text, start, end = by_bytes(fd, first, size, room(cap), arguments.limit)
    more = f"; go on with byte_offset={end}" if end < size else ""
    whole = closed([text.removesuffix("\n")], [f"bytes {start}-{end} of {size}{more}"], cap)
    return Outcome(whole, Display(f"read bytes {start}-{end} of {size}", preview(whole)))
