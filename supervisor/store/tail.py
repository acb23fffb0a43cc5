"""The end of a transcript after a crash: whole lines stay, a torn one is set aside.

Nothing is ever appended to a file that does not end with a line break, else two lines would become one.
"""

import os
from pathlib import Path

import msgspec

from supervisor.store.disk import StoreError, append, open_private

_BLANK = b"\0 \t\r\n"
"""What a crash may leave after the last line: a file system fills lost blocks with NULs."""
_BLOCK = 64 * 1024


def mend_tail(path: Path) -> str | None:
    """Make the file end with a whole line; the notice for the user where something was cut off.

    A line that lost only its line break gets it back.  The fragment of a torn line is kept in a file
    beside it that ends with `.torn`.  Raises StoreError.
    """
    try:
        with path.open("r+b") as file:
            end = _end_of_text(file.fileno())
            start = _start_of_line(file.fileno(), end)
            line = os.pread(file.fileno(), end - start, start)
            if is_record(line):
                _end_with_break(file.fileno(), path, end)
                return None
            if line:
                _set_aside(path, line)
            file.truncate(start)
    except OSError as error:
        raise StoreError(path, error) from error
    if not line:
        return None
    return f"the last line of {path.name} was torn; its {len(line)} bytes are kept in {path.name}.torn"


def is_record(line: bytes) -> bool:
    """Whether this is one JSON object."""
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _end_of_text(descriptor: int) -> int:
    """The offset behind the last byte that is not blank."""
    end = os.fstat(descriptor).st_size
    while end:
        size = min(_BLOCK, end)
        kept = os.pread(descriptor, size, end - size).rstrip(_BLANK)
        if kept:
            return end - size + len(kept)
        end -= size
    return 0


def _start_of_line(descriptor: int, end: int) -> int:
    """The offset of the first byte of the line that ends at `end`."""
    at = end
    while at:
        size = min(_BLOCK, at)
        found = os.pread(descriptor, size, at - size).rfind(b"\n")
        if found >= 0:
            return at - size + found + 1
        at -= size
    return 0


def _end_with_break(descriptor: int, path: Path, end: int) -> None:
    if os.pread(descriptor, 2, end) == b"\n":
        return
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    append(descriptor, path, b"\n")


def _set_aside(path: Path, fragment: bytes) -> None:
    aside = path.with_name(path.name + ".torn")
    descriptor = open_private(aside, os.O_WRONLY | os.O_APPEND)
    try:
        append(descriptor, aside, fragment + b"\n")
    finally:
        os.close(descriptor)
