"""stdin and stdout of the process beside an event loop: nothing that listens can stop or break it.

A reader that went away is noted, not raised; a slow one never holds the loop up; a silent writer on stdin
can be given up on.  Both are used by descriptor, past Python's buffers, so that nothing is left to fail at
exit.  The descriptors stay in blocking mode, since they are shared with whoever started the program.
"""

import errno
import os
import select
import sys

import trio

from supervisor.exits import FAILED, StopError

PIECE = 4096
"""Bytes of one write.  A pipe that polls as writable takes so many at once (PIPE_BUF), so no write blocks."""

FLUSH_SECONDS = 10.0
"""How long the end of the program waits for a reader that has stopped reading."""


async def read_stdin() -> bytes:
    """All of stdin.  Waits for a silent pipe, but in a way that can be cancelled."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    pieces: list[bytes] = []
    while True:
        if not poll.poll(0):
            await trio.lowlevel.wait_readable(0)
        piece = os.read(0, 1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


class Stdout:
    """Standard output for one session.  `write` never waits; `drain` runs beside it, `finish` ends it."""

    def __init__(self, descriptor: int = 1) -> None:
        self._fd = descriptor
        self._left = bytearray()
        self._more = trio.Event()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._error: OSError | None = None
        self.encoding = getattr(sys.stdout, "encoding", None)
        self.is_terminal = os.isatty(descriptor)

    @property
    def reader_gone(self) -> bool:
        return self._error is not None and self._error.errno in (errno.EPIPE, errno.ECONNRESET, errno.EIO)

    def write(self, data: bytes) -> None:
        """Write now what can be written without waiting; the rest goes out by `drain`."""
        self._left += data
        while self._left and self._error is None and self._writable():
            self._write_piece()
        if self._left:
            self._more.set()

    async def drain(self) -> None:
        """Write what is left, for ever."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            await self._flush()

    async def finish(self) -> None:
        """Write the rest, waiting for a slow reader a while.  Raises StopError where the disk is full."""
        with trio.move_on_after(FLUSH_SECONDS):
            await self._flush()
        if self._error is not None and not self.reader_gone:
            raise StopError(f"stdout can't be written: {self._error.strerror}", FAILED)

    async def _flush(self) -> None:
        while self._left and self._error is None:
            if not self._writable():
                await trio.lowlevel.wait_writable(self._fd)
            self._write_piece()

    def _writable(self) -> bool:
        return bool(self._poll.poll(0))

    def _write_piece(self) -> None:
        try:
            written = os.write(self._fd, self._left[:PIECE])
        except BlockingIOError:
            return
        except OSError as error:
            self._error = error
            self._left.clear()
            return
        del self._left[:written]
