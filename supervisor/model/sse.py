"""Server-sent events: bytes in, the data of whole events out.  Pure, no I/O.

Lines end with \\n, \\r\\n or \\r and with nothing else, so a U+2028 inside a text splits nothing; bytes are
never decoded here, so a character that two reads share stays whole. Any way of cutting the same bytes into
reads gives the same events. Accepted beyond the letter of the standard: no space after `data:`, a byte
order mark, an `error:` field taken as data (an older server sends its errors so), and a last event without
its blank line.

What is *not* here: what the data means (assembly.py) and how long one waits for it (chat.py).
"""

CAP = 16 * 1024 * 1024
"""Bytes of one event.  The longest honest one holds a whole file in a call's arguments."""

DONE = b"[DONE]"
"""The data of the event that says that no other follows."""

_BOM = b"\xef\xbb\xbf"


class OversizedEventError(ValueError):
    """An event is larger than the cap; the stream can't be used any more."""


class Events:
    """Splits a stream into the data of its events.  `done` is true once `[DONE]` was seen; what follows it is
    dropped.  `comments` counts the comment lines: signs of life that carry nothing."""

    def __init__(self, cap: int = CAP) -> None:
        self.done = False
        self.comments = 0
        self._cap = cap
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that are complete now.  Raises OversizedEventError."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        held = self._held
        held.append(data)
        if b"\n\n" not in data and not (
            data.startswith(b"\n") and len(held) > 1 and held[-2].endswith(b"\n")
        ):
            self._held_bytes += len(data)
            if self._held_bytes > self._cap:
                raise OversizedEventError(f"an event of more than {self._cap} bytes")
            return []
        text = data if len(held) == 1 else b"".join(held)
        end = text.rindex(b"\n\n")
        rest = text[end + 2 :]
        self._held = [rest] if rest else []
        self._held_bytes = len(rest)
        return self._read(text[:end])

    def close(self) -> list[bytes]:
        """The stream is over: the data of a last event, without its blank line."""
        text = b"".join(self._held)
        self._held = []
        return self._read(text)

    def _read(self, text: bytes) -> list[bytes]:
        """The data of the events in `text`, which holds whole ones, a blank line between them."""
        if self._at_start:
            self._at_start = False
            text = text.removeprefix(_BOM)
        found: list[bytes] = []
        oversized = len(text) > self._cap
        for block in text.split(b"\n\n"):
            if self.done:
                break
            if oversized and len(block) > self._cap:
                raise OversizedEventError(f"an event of more than {self._cap} bytes")
            data = block[6:] if block.startswith(b"data: ") and b"\n" not in block else self._data_of(block)
            if data == DONE:
                self.done = True
            elif data and not data.isspace():
                found.append(data)
        return found

    def _data_of(self, block: bytes) -> bytes:
        """The data of one event in any legal form; empty where it has none."""
        values: list[bytes] = []
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            if name in (b"data", b"error"):
                values.append(value.removeprefix(b" "))
            elif line.startswith(b":"):
                self.comments += 1
        return b"\n".join(values)
