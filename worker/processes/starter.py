"""Threads that start shells: each enters a command's domain, starts one shell from there, and ends.

What a thread has entered it can't leave, and what it starts is inside from its first instruction on, at the
price of a thread and not of a fork.  One such thread waits inside for the next command, made while the last
one ran: so a command doesn't wait for a thread.  Not here: what a domain is (worker/sandbox/domain.py).
"""

import errno
import subprocess
import threading
from collections.abc import Callable
from queue import SimpleQueue

from worker.call import Desk

Process = subprocess.Popen[bytes]


class Starter:
    """`enter` is called by each thread once, before it starts anything; see Desk.enter."""

    def __init__(self, enter: Callable[[], None]) -> None:
        self._enter = enter
        self._lock = threading.Lock()
        self._spare: _Inside | None = None

    def start(self, make: Callable[[], Process]) -> Process:
        """What `make` returns, called inside of a domain of its own.  Raises OSError."""
        with self._lock:
            inside, self._spare = self._spare, None
        try:
            inside = inside or _Inside(self._enter)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, "no thread can be started") from error
        made = inside.play(make)
        self._prepare()
        return made

    def _prepare(self) -> None:
        with self._lock:
            if self._spare is None:
                try:
                    self._spare = _Inside(self._enter)
                except RuntimeError:  # then the next command needs one, and says so
                    return


class _Inside:
    """One thread.  Raises RuntimeError where none can be had."""

    def __init__(self, enter: Callable[[], None]) -> None:
        self._asked: SimpleQueue[Callable[[], Process]] = SimpleQueue()
        self._made: SimpleQueue[Process | OSError] = SimpleQueue()
        # A daemon: it may wait for ever.
        threading.Thread(target=self._wait, args=(enter,), name="starter", daemon=True).start()

    def play(self, make: Callable[[], Process]) -> Process:
        self._asked.put(make)
        made = self._made.get()
        if isinstance(made, OSError):
            raise made
        return made

    def _wait(self, enter: Callable[[], None]) -> None:
        made: Process | OSError = OSError(errno.EIO, "the thread that should start it failed")
        try:
            enter()
            entered = True
        except OSError as error:
            made, entered = error, False
        make = self._asked.get()
        try:
            made = make() if entered else made
        except OSError as error:
            made = error
        finally:
            self._made.put(made)


def starter_of(desk: Desk) -> Starter:
    """The one of this worker."""
    if not isinstance(desk.starter, Starter):
        desk.starter = Starter(desk.enter)
    return desk.starter
