"""What a command prints while it runs, for the screen: the newest lines, at most ten times a second.

The user sees a moving picture, not the record: under a flood most of it is left out.
"""

import time
from collections.abc import Callable

from worker.output.terminal_text import shown

INTERVAL = 0.1
"""Seconds between two messages, at least."""

NEWEST = 4096
"""Bytes of one message, at most."""


class Live:
    """`say` gets text that ends with whole lines where there are any."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._pending = bytearray()
        self._last = 0.0

    def add(self, data: bytes) -> None:
        self._pending += data[-NEWEST:]
        if len(self._pending) > 2 * NEWEST:
            del self._pending[:-NEWEST]
        self.flush()

    def flush(self, now: bool = False) -> None:
        """Say what is pending, if it is time or `now`."""
        clock = time.monotonic()
        if not self._pending or not (now or clock - self._last >= INTERVAL):
            return
        self._last = clock
        ready = bytes(self._pending[-NEWEST:])
        end = len(ready) if now else max(ready.rfind(b"\n"), ready.rfind(b"\r")) + 1 or len(ready)
        self._pending = bytearray(ready[end:])
        text = shown(ready[:end])
        if text:
            self._say(text)
