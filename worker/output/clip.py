"""The head and the tail of a text that may have any length, in bounded memory.  Pure.

Not here: what is done with the bytes that are left out (record.py).
"""

from collections import deque

from msgspec import Struct


class Clipped(Struct, frozen=True):
    """`left_out` counts the bytes between head and tail; 0: `head` is the whole text, `tail` is empty."""

    head: str
    left_out: int
    tail: str


class Clip:
    """Keeps a quarter of `cap` from the head and the rest from the tail.  Sizes are bytes of UTF-8."""

    def __init__(self, cap: int) -> None:
        self.size = 0
        self.breaks = 0
        """Line breaks so far."""
        self.ends_open = False
        """The last line has no line break."""
        self._head_cap = cap // 4
        self._tail_cap = cap - self._head_cap
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    @property
    def lines(self) -> int:
        return self.breaks + self.ends_open

    def add(self, text: str) -> None:
        if not text:
            return
        data = text.encode()
        self.size += len(data)
        self.breaks += text.count("\n")
        self.ends_open = not text.endswith("\n")
        room = self._head_cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        # A copy of the end alone, so that a long piece is not kept alive by the part of it that we want.
        data = data[-self._tail_cap :] if len(data) > self._tail_cap else data
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_cap:
            self._tail_size -= len(self._tail.popleft())

    def clipped(self) -> Clipped:
        """Head and tail as they are now, cut between lines where that costs little, else characters."""
        tail = b"".join(self._tail)
        if self.size <= self._head_cap + self._tail_cap:
            return Clipped((bytes(self._head) + tail).decode(), 0, "")
        head = _without_torn_end(bytes(self._head))
        tail = _without_torn_begin(tail[-self._tail_cap :])
        return Clipped(head.decode(), self.size - len(head) - len(tail), tail.decode())


def cut(text: str, cap: int) -> str:
    """The text; of one that has more than `cap` bytes head and tail, and words for what lies between."""
    clip = Clip(cap)
    clip.add(text)
    clipped = clip.clipped()
    if not clipped.left_out:
        return text
    return f"{clipped.head}\n[... {clipped.left_out:,} bytes left out here ...]\n{clipped.tail}"


def _without_torn_end(head: bytes) -> bytes:
    at = head.rfind(b"\n") + 1
    if at > len(head) // 2:
        return head[:at]
    return head.decode(errors="ignore").encode()


def _without_torn_begin(tail: bytes) -> bytes:
    at = tail.find(b"\n") + 1
    if 0 < at <= len(tail) // 2:
        return tail[at:]
    return tail.decode(errors="ignore").encode()
