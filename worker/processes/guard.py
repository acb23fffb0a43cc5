"""One thread that looks at all that a worker's commands and jobs use, and ends what uses too much.

It exists from the first command on and sleeps while nothing runs.  A limit ends a command with everything
that it started, at once: who fills the machine gets no time to clean up.  What the kernel holds a single
process to is set elsewhere (worker/sandbox/rlimits.py), as is a command's time (watch.py).  Not here: how
much is used (usage.py), words (verdict.py).
"""

import contextlib
import os
import signal
import threading
import time

from worker.call import Desk
from worker.processes import tree
from worker.processes.owners import Culprits, Printed, Subject, freeze, signal_group
from worker.processes.usage import Usage, disks_of, shared_now
from worker.processes.verdict import Struck
from worker.processes.watch import FIRST_PAUSE, SWEEP_SECONDS, TICK, Running

PAUSE = 0.1
"""Seconds between two looks.  Memory can grow by some hundred MB meanwhile."""

PAUSE_FIRST = 0.02
"""Seconds before the first look at what has just begun; each later pause is twice as long, up to PAUSE.  A
fork bomb has a thousand processes after a tenth of a second, and leaves others little time to run."""

SHARE = 5
"""A pause is at least so many times as long as the look before it: of thousands of processes one takes tens
of milliseconds."""

PAUSE_MOST = 0.5
"""Seconds.  However long a look takes."""

STOP_SECONDS = 1.0
"""How long all are stopped before the first is killed.  After it, where this process is the first of a PID
namespace, everything in it is killed at once: there nothing is born meanwhile."""

EMPTY_LOOKS = 2
"""One after the other before nothing is left: while the kernel's list of a process's children is read, it may
pass over one because another is reaped."""


class Guard:
    """`watch` each command before it can do harm, `release` (in Running) it when it is over."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._disks = disks_of(desk.policy)
        self._subjects: list[Subject] = []
        self._change = threading.Condition()
        self._started = self._fresh = False

    def watch(self, running: Running, printed: Printed) -> None:
        """Raises RuntimeError where no thread can be had."""
        subject = Subject(running, printed, tuple(disk.free() for disk in self._disks), shared_now())
        with self._change:
            if not self._started:
                threading.Thread(target=self._play, name="guard", daemon=True).start()
                self._started = True
            self._subjects.append(subject)
            self._fresh = True
            self._change.notify()

        def release() -> None:
            with self._change, contextlib.suppress(ValueError):  # it may be called twice
                self._subjects.remove(subject)

        running.release = release

    def _play(self) -> None:
        pause = cost = 0.0
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._subjects))
                if self._fresh:
                    self._fresh, pause = False, PAUSE_FIRST / 2
            pause = min(2 * pause, PAUSE)
            time.sleep(min(max(pause, SHARE * cost), PAUSE_MOST))
            with self._change:
                subjects = list(self._subjects)
            if subjects:
                began = time.thread_time()
                self._look(subjects)
                cost = time.thread_time() - began

    def _look(self, subjects: list[Subject]) -> None:
        found = Usage(subjects, self._disks, self._desk.limits).struck()
        if found is not None:
            self._end(subjects, *found)

    def _end(self, subjects: list[Subject], culprits: Culprits, struck: Struck) -> None:
        """End the culprits; where they are unknown, everything."""
        doomed = frozenset(subjects) | culprits if None in culprits else culprits
        named = [subject for subject in doomed if subject is not None]
        for subject in named:
            subject.running.struck = subject.running.struck or struck
        _kill(subjects, doomed)
        with self._desk.lock:
            tree.reap_adopted(self._desk.shells)
        for subject in named:
            subject.running.swept.set()


def _kill(subjects: list[Subject], doomed: Culprits) -> None:
    """Stop all of them, so that nothing new is born, then kill; again until none is left."""
    began = time.monotonic()
    groups: set[int] = set()
    pause = FIRST_PAUSE
    before = empty = 0
    while empty < EMPTY_LOOKS:
        left = freeze(subjects, doomed, groups)
        if not left:
            empty += 1
            continue
        empty = 0
        passed = time.monotonic() - began
        if passed > SWEEP_SECONDS:
            return
        if len(groups) > before and passed < STOP_SECONDS:
            before = len(groups)
            continue
        for group in {one.group for one in left}:
            signal_group(group, signal.SIGKILL)
        if passed > STOP_SECONDS and os.getpid() == 1:
            os.kill(-1, signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, TICK)


def guard_of(desk: Desk) -> Guard:
    """The one of this worker."""
    with desk.lock:
        if not isinstance(desk.guard, Guard):
            desk.guard = Guard(desk)
        return desk.guard
