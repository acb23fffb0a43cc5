"""A thread for each call that runs, kept for later calls: to wake one is cheaper than to start one.

There are as many as calls ever ran at the same time.  What calls do is calls.py.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Threads:
    """`play` is called by one thread."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work]] = []

    def play(self, work: Work) -> None:
        """Begin this, which raises nothing, in a thread that does nothing else.  Raises RuntimeError where no
        thread can be had."""
        if self._idle:
            self._idle.pop().put(work)
            return
        threading.Thread(target=self._wait, args=(work,), name="call", daemon=True).start()

    def _wait(self, work: Work) -> None:
        mine: SimpleQueue[Work] = SimpleQueue()
        while True:
            work()
            self._idle.append(mine)
            work = mine.get()
