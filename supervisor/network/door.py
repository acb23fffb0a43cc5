"""The listening socket at which commands look for a proxy, made by a worker in its network and sent here.

The worker has it still: it could make it block, or take a connection before us, and an `accept` on the event
loop would then stop the whole program.  So that one call runs on a thread.
"""

import contextlib
import errno
import socket
import threading

import trio

_AGAIN_SECONDS = 0.1
_FULL = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
_NEXT = frozenset((errno.EAGAIN, errno.ECONNABORTED, errno.EPROTO))
"""That connection is gone; another one will come."""


class Door:
    """Takes over `listener`, which ends with the block."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._alone = trio.CapacityLimiter(1)
        self._lock = threading.Lock()
        """Around what follows: a thread that nobody waits for any more meets the block's end."""
        self._taking = False
        self._taken: socket.socket | None = None
        self._closed = False

    def __enter__(self) -> "Door":
        self._listener.setblocking(False)
        return self

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._closed = True
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that is stuck in it
            if not self._taking:  # else that thread closes it
                self._listener.close()
            if self._taken is not None:
                self._taken.close()

    async def accept(self) -> trio.SocketStream:
        """The next connection.  Raises OSError where there will be none."""
        while True:
            await trio.lowlevel.wait_readable(self._listener)
            try:
                await trio.to_thread.run_sync(self._take, limiter=self._alone, abandon_on_cancel=True)
            except OSError as error:
                if error.errno in _FULL:
                    await trio.sleep(_AGAIN_SECONDS)
                elif error.errno not in _NEXT:
                    raise
            with self._lock:
                client, self._taken = self._taken, None
            if client is not None:
                return trio.SocketStream(trio.socket.from_stdlib_socket(client))

    def _take(self) -> None:
        """On a thread."""
        with self._lock:
            if self._closed:
                return
            self._taking = True
        client = None
        try:
            client, _ = self._listener.accept()
        finally:
            with self._lock:
                self._taking = False
                if not self._closed:
                    self._taken = client
                else:
                    self._listener.close()
                    if client is not None:
                        client.close()
