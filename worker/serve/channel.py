"""A worker's end of the wire: frames on a stream socket, descriptors on a second one.

Blocking code.  One thread reads; any thread sends, one frame at a time.
"""

import os
import select
import socket
import threading
from collections import deque

from protocol.wire import FrameError, Frames, ToSupervisor, ToWorker, decode_to_worker, encode

_READ_BYTES = 256 * 1024
_SAY_SECONDS = 0.05
"""How long text for the screen may wait for room on the wire before it is dropped."""
DESCRIPTOR_SECONDS = 10.0
"""How long a descriptor that has been announced may take to arrive.  It is sent before it is announced."""
_NAME_BYTES = 4096
"""The longest call id on the second socket."""


class PeerGoneError(Exception):
    """The supervisor has closed the wire or died."""


class Channel:
    """`descriptors` is None where the peer is not local; then none can be received."""

    def __init__(self, wire: socket.socket, descriptors: socket.socket | None) -> None:
        self._wire = wire
        self._descriptors = descriptors
        self._frames = Frames()
        self._waiting: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._room = select.poll()
        self._room.register(wire, select.POLLOUT)
        self._arrived: dict[str, list[int]] = {}

    def receive(self, seconds: float | None = None) -> ToWorker:
        """The next message.  Raises PeerGoneError, FrameError, and TimeoutError after `seconds`."""
        if not self._waiting:
            self._wire.settimeout(seconds)
        while not self._waiting:
            try:
                data = self._wire.recv(_READ_BYTES)
            except ConnectionError as error:  # a peer that dies with unread data resets the connection
                raise PeerGoneError from error
            if not data:
                raise PeerGoneError
            self._waiting.extend(self._frames.feed(data))
        return decode_to_worker(self._waiting.popleft())

    def send(self, message: ToSupervisor) -> None:
        """Waits for room.  Raises FrameError for what is no frame; a peer that is gone is not an error here,
        whoever reads notices it."""
        frame = encode(message)
        with self._sending:
            self._write(frame)

    def offer(self, message: ToSupervisor) -> bool:
        """Send what may be lost: False where the peer has no room for it soon."""
        frame = encode(message)
        if not self._sending.acquire(timeout=_SAY_SECONDS):
            return False
        try:
            if not self._room.poll(int(_SAY_SECONDS * 1000)):
                return False
            self._write(frame)
        finally:
            self._sending.release()
        return True

    def _write(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            self._room.poll()
            try:
                # Not `sendall` on a blocking socket: the reader's time limit belongs to the same socket.
                sent = self._wire.send(view, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                continue
            except OSError:
                return
            view = view[sent:]

    def send_descriptor(self, name: str, fd: int) -> None:
        """Give a descriptor away; the message that announces it comes after.  Raises OSError."""
        if self._descriptors is None:
            raise OSError("there is no socket for descriptors")
        socket.send_fds(self._descriptors, [name.encode()], [fd])

    def descriptor(self, call_id: str) -> int:
        """The descriptor that was sent for this call.  Raises FrameError where none comes."""
        if self._descriptors is None:
            raise FrameError("a descriptor was announced, but there is no socket for it")
        self._descriptors.settimeout(DESCRIPTOR_SECONDS)
        while not self._arrived.get(call_id):
            try:
                name, fds, _, _ = socket.recv_fds(self._descriptors, _NAME_BYTES, 1)
            except OSError as error:
                raise FrameError(f"the descriptor for call {call_id!r} did not arrive: {error}") from error
            if not name or not fds:
                raise FrameError(f"the second socket was closed before the descriptor for call {call_id!r}")
            for fd in fds:
                os.set_inheritable(fd, False)
            self._arrived.setdefault(name.decode(errors="replace"), []).extend(fds)
        return self._arrived[call_id].pop(0)
