"""Wait for a shell: its output, its end, its time limit, a cancel; and end what it started.

One `poll` in the call's own thread waits for all of it.  Only a cancel has no descriptor, so it is looked
at every TICK.  The shell is looked at without being reaped until the last moment: its process group stays
its own as long.  Not here: jobs (jobs.py), words for the model (worker/tools).
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from msgspec import structs

from worker.processes import tree
from worker.processes.shell import Shell
from worker.processes.verdict import Struck

TICK = 0.02
"""Seconds: how late a cancel may be noticed."""

SETTLE_SECONDS = 0.15
"""After the shell's end: for the rest of a pipeline or a `> >(tee log)`.  What runs on then is a job."""

FIRST_PAUSE = 0.001
"""Seconds after a signal before the first look whether it worked; each later pause is twice as long."""

READ_BYTES = 64 * 1024

KILL_SECONDS = 2.0
"""For SIGKILL to work; a process that hangs in the kernel outlasts it."""

ENOUGH = 100
"""Processes that are found before a command's rest is called a job.  They may become ever more, and to
count them all then hinders the guard."""

SWEEP_SECONDS = 10.0
"""For the guard to end what uses too much: thousands of processes, each of which may be starting others."""


class Sink(Protocol):
    """Where output goes; called in the watching thread."""

    def write(self, data: bytes) -> None: ...

    def tick(self) -> None:
        """Called several times a second."""
        ...


class Ending(Enum):
    EXITED = "exited"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    STRUCK = "struck"
    """A limit was reached, and the guard ends all of it."""


class Pipe:
    """The read end of a shell's output, until nobody holds the other end any more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.open = True

    def read(self, sink: Sink) -> bool:
        """Hand on what is there, one piece.  Whether there was something."""
        try:
            data = os.read(self.fd, READ_BYTES) if self.open else b""
        except BlockingIOError:
            return False
        if data:
            sink.write(data)
            return True
        self.open = False
        return False

    def wait(self, sink: Sink, seconds: float, *others: int) -> bool:
        """Wait for output or another descriptor, and hand on a piece of output.  Whether another is ready."""
        poll = select.poll()
        for fd in others:
            poll.register(fd, select.POLLIN)
        if self.open:
            poll.register(self.fd, select.POLLIN)
        ready = poll.poll(max(0.0, seconds) * 1000)
        for fd, _ in ready:
            if fd == self.fd:
                self.read(sink)
        return any(fd != self.fd for fd, _ in ready)

    def drain(self, sink: Sink, until: float) -> None:
        """Hand on all that is there now; a writer that never stops is left at `until`."""
        while time.monotonic() < until and self.read(sink):
            pass


def _nobody() -> None:
    """There is no guard."""


@dataclass
class Running:
    """A command's shell, its output, and what is known about its processes."""

    shell: Shell
    pipe: Pipe
    family: tree.Family
    struck: Struck | None = None
    """The limit that was reached; set by the guard before it ends what runs."""
    swept: threading.Event = field(default_factory=threading.Event)
    """The guard is done with it."""
    release: Callable[[], None] = _nobody
    """Tells the guard that this is over."""

    def living(self, most: int | None = None) -> list[tree.Process]:
        """What runs of it now.  Whoever was found once is found again, though its parent has gone."""
        found = tree.living(self.family, most)
        known = {(one.pid, one.start) for one in found}
        if not known <= self.family.known:
            self.family = structs.replace(self.family, known=self.family.known | known)
        return found


def follow(running: Running, sink: Sink, until: float, cancelled: threading.Event) -> Ending:
    """Hand on output until the shell has ended, or must."""
    shell = running.shell
    while not shell.ended():
        left = until - time.monotonic()
        if running.struck is not None:
            return Ending.STRUCK
        if cancelled.is_set():
            return Ending.CANCELLED
        if left <= 0:
            return Ending.TIMED_OUT
        running.pipe.wait(sink, min(left, TICK), shell.pidfd)
        sink.tick()
    return Ending.EXITED if running.struck is None else Ending.STRUCK


def drain(running: Running, sink: Sink) -> None:
    """Hand on what the shell has left in the pipe."""
    running.pipe.drain(sink, time.monotonic() + SETTLE_SECONDS)


def settle(running: Running, sink: Sink) -> list[tree.Process]:
    """After the shell's end: wait shortly for what ends by itself.  What still runs."""
    pipe = running.pipe
    until = time.monotonic() + SETTLE_SECONDS
    pipe.drain(sink, until)
    while True:
        left = until - time.monotonic()
        alive = running.living(ENOUGH)
        if left <= 0 or running.struck is not None or not (alive or pipe.open):
            return alive
        pipe.wait(sink, min(left, 0.02))
        pipe.drain(sink, until)


def outlast(running: Running, sink: Sink) -> list[tree.Process]:
    """Wait until the guard has ended all of it, and take the last output.  What resisted."""
    until = time.monotonic() + SWEEP_SECONDS
    while not running.swept.is_set() and time.monotonic() < until:
        running.pipe.wait(sink, TICK)
        if not running.pipe.open:
            running.swept.wait(TICK)
    running.pipe.drain(sink, time.monotonic() + SETTLE_SECONDS)
    return running.living()


def end(running: Running, sink: Sink, grace: float) -> list[tree.Process]:
    """SIGTERM to all of it, `grace` seconds later SIGKILL.  Output goes on meanwhile.  What resisted."""
    shell, pipe, alive = running.shell, running.pipe, running.living

    def until_gone(seconds: float) -> bool:
        until = time.monotonic() + seconds
        pause = FIRST_PAUSE
        while left := alive():
            if time.monotonic() >= until:
                return False
            if killing:
                tree.send(left, signal.SIGKILL)
            else:
                terminate(left)
            pipe.wait(sink, pause)
            pause = min(2 * pause, TICK)
        return True

    def terminate(processes: list[tree.Process], reached: int = 0) -> None:
        # One signal for each program: its own clean-up shall not run twice.  For each program, not each
        # process: a child that bash has forked takes the signal and loses it when it execs at that moment.
        fresh = [one for one in processes if (one.pid, one.start, one.stack) not in told]
        tree.send((one for one in fresh if one.group != reached), signal.SIGTERM)
        tree.send(fresh, signal.SIGCONT)
        told.update((one.pid, one.start, one.stack) for one in fresh)

    killing = False
    told: set[tuple[int, int, int]] = set()
    first = alive()
    terminate(first, reached=_signal_group(shell, signal.SIGTERM))
    if not until_gone(grace):
        killing = True
        _signal_group(shell, signal.SIGKILL)
        until_gone(KILL_SECONDS)
    pipe.drain(sink, time.monotonic() + SETTLE_SECONDS)
    return alive()


def _signal_group(shell: Shell, number: signal.Signals) -> int:
    """Signal the shell's group while it is the shell's own.  The group that was reached, 0 for none."""
    if shell.process.returncode is not None:
        return 0
    os.killpg(shell.pid, number)
    return shell.pid
