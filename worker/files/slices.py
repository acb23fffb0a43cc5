"""A part of a file's text, read in one pass with memory that doesn't grow with the file.

By lines, numbered, or by bytes, for lines too long to be shown.  Decides what is shown and what is said
about the rest; opens nothing and knows no paths.
"""

import os
import re
import threading
from dataclasses import dataclass, field

from worker.files.cancelled import go_on
from worker.files.encodings import BOM, line_ends

_CHUNK = 256 * 1024
_COUNT_MAX = 16 * 1024 * 1024
"""Bytes behind the part shown that are read only to tell how many lines there are."""
_NULS = re.compile(rb"\0+")
_WORTHWHILE = 1000
"""Bytes of room below which a long line's beginning is left for the next call."""
_CONTINUATION_MAX = 3
"""Bytes of a UTF-8 character after its first."""


@dataclass
class Slice:
    """What was read.  `lines` are ready for the result; `next_line` and `next_byte` say where to go on."""

    lines: list[str] = field(default_factory=list)
    last: int = 0
    total: int | None = None
    next_line: int | None = None
    next_byte: int | None = None
    cut_line: int | None = None
    crlf: int = 0
    lf: int = 0
    bad_utf8: int = 0
    """The first line with bytes that are no UTF-8; 0 for none."""
    nuls: bool = False
    open_end: bool = False
    """The last line has no line break."""

    def notes(self) -> list[str]:
        """What can't be seen in the lines."""
        ends = line_ends(self.crlf, self.lf)
        notes = [] if ends is None else [ends]
        if self.bad_utf8:
            notes.append(
                f"from line {self.bad_utf8} on some bytes are not UTF-8, shown as \N{REPLACEMENT CHARACTER}"
            )
        if self.nuls:
            notes.append("NUL bytes are shown as their number")
        if self.open_end:
            notes.append("no line break at the end")
        return notes


class _Reader:
    """Pieces of lines from a descriptor: at most `_CHUNK` bytes each, the last one of a line with its LF."""

    def __init__(self, fd: int, cancelled: threading.Event) -> None:
        self._fd = fd
        self._cancelled = cancelled
        self._chunk = b""
        self._at = 0
        self.position = 0

    def piece(self) -> bytes:
        if self._at == len(self._chunk):
            self.fill()
        end = self._chunk.find(b"\n", self._at) + 1 or len(self._chunk)
        found = self._chunk[self._at : end]
        self.position += end - self._at
        self._at = end
        return found

    def skip_lines(self, number: int) -> int:
        """Pass over so many lines, fast; the answer is how many there were."""
        passed = 0
        while passed < number:
            if self._at == len(self._chunk) and not self.fill():
                break
            here = self._chunk.count(b"\n", self._at)
            if passed + here >= number:
                for _ in range(number - passed):
                    end = self._chunk.find(b"\n", self._at) + 1
                    self.position += end - self._at
                    self._at = end
                return number
            passed += here
            self.position += len(self._chunk) - self._at
            self._at = len(self._chunk)
        return passed

    def count_lines(self, most: int) -> int | None:
        """How many lines are left, the last one without a break too; None above so many bytes."""
        counted, last = 0, b"\n"
        while self._at < len(self._chunk) or self.fill():
            rest = self._chunk[self._at :]
            counted += rest.count(b"\n")
            most -= len(rest)
            last = rest[-1:]
            self._at = len(self._chunk)
            if most < 0:
                return None
        return counted + (last != b"\n")

    def fill(self) -> bool:
        go_on(self._cancelled)
        self._chunk = os.read(self._fd, _CHUNK)
        self._at = 0
        return bool(self._chunk)


def by_lines(fd: int, first: int, limit: int | None, room: int, cancelled: threading.Event) -> Slice:
    """Lines from number `first` on, at most `limit` and at most `room` bytes of them.

    A line that doesn't fit is left for the next call, unless it is long or nothing else would be shown:
    then its beginning is.  Raises CancelledError.
    """
    reader, found = _Reader(fd, cancelled), Slice()
    passed = reader.skip_lines(first - 1)
    if passed < first - 1:
        found.total = passed + (reader.position > 0 and os.pread(fd, 1, reader.position - 1) != b"\n")
        return found
    number, cap = first, room
    while limit is None or number < first + limit:
        start = reader.position
        line, size, ended = _line(reader, room)
        if not size:
            found.total = number - 1
            break
        text = _shown(found, line, number, bom=start == 0)
        cost = len(text.encode("utf-8", "replace")) + 1
        if cost > room or size > len(line):
            if not found.lines or (size > cap // 4 and room > _WORTHWHILE):
                kept = _append_prefix(found, line, number, room, bom=start == 0)
                found.cut_line, found.next_byte, found.last = number, start + kept, number
            found.next_line = number + 1 if found.cut_line else number
            return found
        room -= cost
        found.lines.append(text)
        found.crlf += line.endswith(b"\r\n")
        found.lf += ended and not line.endswith(b"\r\n")
        found.last, found.open_end = number, not ended
        number += 1
    if found.total is None:
        rest = reader.count_lines(_COUNT_MAX)
        found.total = None if rest is None else number - 1 + rest
        found.next_line = None if found.total == number - 1 else number
    return found


def by_bytes(fd: int, first: int, size: int, room: int, limit: int | None) -> tuple[str, int, int]:
    """The text from byte `first` on, and the bytes that it really spans: from, to.

    Whole characters only; `size` is the file's.  Pieces of a character at the start are passed over.
    """
    data = os.pread(fd, min(room, max(size - first, 0)), first)
    begin = 0
    while first and begin < min(_CONTINUATION_MAX, len(data)) and data[begin] & 0xC0 == 0x80:
        begin += 1
    data = data[begin:]
    if first + begin + len(data) < size:
        data = _prefix(data, len(data))
    if limit is not None:
        data = b"".join(data.splitlines(keepends=True)[:limit])
    text = _without_nuls(data).decode("utf-8", "replace").replace("\r\n", "\n")
    while len(text.encode("utf-8", "replace")) > room:
        data = _prefix(data, len(data) // 2)
        text = _without_nuls(data).decode("utf-8", "replace").replace("\r\n", "\n")
    return text, first + begin, first + begin + len(data)


def _line(reader: _Reader, room: int) -> tuple[bytes, int, bool]:
    """The next line's first bytes (a little more than `room`), its size as far as read, whether it ended."""
    pieces: list[bytes] = []
    size = 0
    while piece := reader.piece():
        pieces.append(piece)
        size += len(piece)
        if piece.endswith(b"\n"):
            return b"".join(pieces)[: room + 1], size, True
        if size > room:
            return b"".join(pieces)[: room + 1], size, False
    return b"".join(pieces), size, False


def _append_prefix(found: Slice, line: bytes, number: int, room: int, *, bom: bool) -> int:
    """Add as much of the line as fits; the answer is how many of its bytes that is.

    What is shown can be longer than the bytes it stands for, so the size is found by trying.
    """
    size = min(len(line), room)
    while True:
        kept = _prefix(line, size)
        text = _shown(found, kept, number, bom=bom)
        if len(text.encode()) < room or not kept:
            found.lines.append(text)
            return len(kept)
        size = min(size - 1, size * room // (len(text.encode()) + 1))


def _shown(found: Slice, line: bytes, number: int, *, bom: bool) -> str:
    """The line as the result has it; what was special about it is remembered."""
    line = line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
    if bom:
        line = line.removeprefix(BOM)
    if b"\0" in line:
        found.nuls = True
        line = _without_nuls(line)
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
        found.bad_utf8 = found.bad_utf8 or number
    return f"{number}\t{text}"


def _without_nuls(data: bytes) -> bytes:
    return _NULS.sub(lambda run: b"<%d NUL>" % len(run.group()), data)


def _prefix(data: bytes, size: int) -> bytes:
    """At most so many bytes, without half a character at the end."""
    cut = data[:size]
    for back in range(1, min(_CONTINUATION_MAX + 1, len(cut)) + 1):
        lead = cut[-back]
        if lead & 0xC0 == 0x80:
            continue
        length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return cut[:-back] if length > back else cut
    return cut
