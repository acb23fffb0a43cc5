"""The supervisor's end of one worker's wire.

Own non-blocking socket work instead of trio's streams: it tries first and waits only on EAGAIN, which makes
it several times cheaper per message, and sending never waits at all: what the socket has no room for lies
in an outbox of bytes, bounded, until the worker reads.
"""

import contextlib
import socket
from collections.abc import Callable

import trio

from protocol.wire import FrameError, Frames, ToSupervisor, ToWorker, decode_to_supervisor, encode

HIGH_WATER = 32 * 1024 * 1024
"""Bytes that may wait for a worker: two frames of the longest kind.  More means that it doesn't read."""
_READ_BYTES = 256 * 1024
_MESSAGES_PER_PASS = 64
_BYTES_PER_PASS = 4 * 1024 * 1024
"""After so much of either others get their turn."""
_BUFFER_BYTES = 1024 * 1024
"""What the kernel may hold, where it allows so much: frames of a megabyte then need fewer turns."""


class ChannelClosedError(Exception):
    """The worker has closed its wire, most likely by dying."""


class ChannelBrokenError(ChannelClosedError):
    """The worker does what no worker does; its wire can't be used any more.  The message says what."""


def pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Connected sockets: ours (it never blocks) and the one to give away."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    ours.setblocking(False)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return ours, theirs


class Channel:
    """Takes over `wire`, a non-blocking stream socket.  `flush` and `read` run as one task each."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._frames = Frames()
        # One place for all reads: a new object of this size each time costs more than the read.
        self._space = memoryview(bytearray(_READ_BYTES))
        self._outbox = bytearray()
        self._filled = trio.Event()
        self._read = 0
        """Bytes since others got their turn."""

    def post(self, message: ToWorker) -> None:
        """Send, without waiting.  Raises FrameError for what is too large and ChannelClosedError where the
        worker is gone or has not read for too long."""
        frame = encode(message)
        sent = 0 if self._outbox else self._try(frame)
        if sent < len(frame):
            if len(self._outbox) + len(frame) > HIGH_WATER:
                raise ChannelBrokenError("it does not read what it is sent")
            self._outbox += frame[sent:] if sent else frame
            self._filled.set()

    def _try(self, data: bytes | bytearray) -> int:
        try:
            return self._wire.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChannelClosedError("its wire is closed") from error

    async def flush(self) -> None:
        """Send what waits in the outbox, for ever.  Returns when the worker is gone; `read` says so."""
        try:
            while True:
                await self._filled.wait()
                await trio.lowlevel.wait_writable(self._wire)
                sent = self._try(self._outbox)
                del self._outbox[:sent]
                if not self._outbox:
                    self._filled = trio.Event()
        except (ChannelClosedError, trio.ClosedResourceError):
            return

    async def receive(self) -> list[ToSupervisor]:
        """The messages that are there, at least one.  Raises ChannelClosedError."""
        while True:
            try:
                size = self._wire.recv_into(self._space)
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_readable(self._wire)
                except trio.ClosedResourceError as error:
                    raise ChannelClosedError("its wire is closed") from error
                continue
            except OSError as error:  # a worker that dies with unread data resets the connection
                raise ChannelClosedError("its wire is closed") from error
            if not size:
                raise ChannelClosedError("its wire is closed")
            self._read += size
            if self._read > _BYTES_PER_PASS:  # also in the middle of a long frame
                self._read = 0
                await trio.lowlevel.checkpoint()
            try:
                if messages := [
                    decode_to_supervisor(payload) for payload in self._frames.feed(self._space[:size])
                ]:
                    return messages
            except FrameError as error:
                raise ChannelBrokenError(f"it sent what is no message: {error}") from error

    async def read(self, take: Callable[[ToSupervisor], None]) -> None:
        """Hand over each message, until the worker is gone.  Raises ChannelClosedError."""
        passed = 0
        while True:
            for message in await self.receive():
                take(message)
                passed += 1
                if passed >= _MESSAGES_PER_PASS:
                    passed = 0
                    await trio.lowlevel.checkpoint()

    def shut(self) -> None:
        """Nothing more goes either way; the worker sees the end of its wire."""
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._wire)
        self._wire.close()
