"""Whose the processes below a worker are, of all its commands and jobs in one walk; how they are stopped.

Not here: what they use (usage.py), and a single command's view of its own (tree.py).
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from worker.processes import tree
from worker.processes.watch import Running


class Printed(Protocol):
    size: int
    """Bytes that were printed."""


@dataclass(eq=False)
class Subject:
    """A command or job that is watched, and how things were when it began."""

    running: Running
    printed: Printed
    free: tuple[int, ...]
    """Bytes of each disk."""
    shared: int
    """Bytes of memory in files that no process holds."""
    known: set[tuple[int, int]] = field(default_factory=set)
    """Pid and start of its processes at the last look: they stay its own when their parent is gone."""
    did: frozenset[tuple[int, int]] = frozenset()
    """Pid and CPU time of its processes at the last look."""
    last_free: tuple[int, ...] = ()

    def look(self, processes: Iterable[tree.Process], free: tuple[int, ...]) -> None:
        """What the disks lost while none of its processes computed was not its doing."""
        did = frozenset((one.pid, one.ticks) for one in processes)
        if did == self.did and self.last_free:
            lost = (max(last - now, 0) for last, now in zip(self.last_free, free, strict=True))
            self.free = tuple(began - by for began, by in zip(self.free, lost, strict=True))
        self.did, self.last_free = did, free


Culprits = frozenset[Subject | None]
"""None: what belongs to no command that is known."""


class _Owners:
    """Whose a process is.  Ask parents before their children."""

    def __init__(self, subjects: Iterable[Subject]) -> None:
        self._sessions = {subject.running.family.session: subject for subject in subjects}
        self._marks = {subject.running.family.call_id.encode(): subject for subject in subjects}
        self._known = {one: subject for subject in subjects for one in subject.known}
        self._found: dict[int, Subject | None] = {}

    def of(self, process: tree.Process) -> Subject | None:
        owner = self._found[process.pid] = (
            self._found.get(process.parent)
            or self._sessions.get(process.session)
            or self._known.get((process.pid, process.start))
            or self._marks.get(tree.mark_of(process.pid))
        )
        return owner


def commands() -> Iterator[tree.Process]:
    """All that commands have started and that is not reaped; not what a tool runs, such as a search."""
    own_session = os.getsid(0)
    return (process for process in tree.walk(os.getpid()) if process.session != own_session)


def owned(subjects: Iterable[Subject], most: int) -> dict[Subject | None, list[tree.Process]]:
    """All that commands have started, by whose it is; at most so many, since they may become ever more."""
    owners = _Owners(subjects)
    found: dict[Subject | None, list[tree.Process]] = {}
    for process in islice(commands(), most):
        found.setdefault(owners.of(process), []).append(process)
    for subject in subjects:
        subject.known = {(one.pid, one.start) for one in found.get(subject, ())}
    return found


def freeze(subjects: Iterable[Subject], culprits: Culprits, groups: set[int]) -> list[tree.Process]:
    """Stop all that belongs to the culprits, each before its children are looked for.  What there is of it.

    Whole process groups at once: between two looks of the kernel nothing is born, while a walk may never
    catch up with a fork bomb.  A group lies in one session, and a session belongs to one command.  `groups`
    remembers which are stopped.
    """
    owners = _Owners(subjects)
    found: list[tree.Process] = []
    for process in commands():
        owner = owners.of(process)
        if owner in culprits and not process.zombie:
            found.append(process)
            if process.group not in groups:
                groups.add(process.group)
                signal_group(process.group, signal.SIGSTOP)
    for subject in culprits:
        if subject is not None:
            subject.known |= {(one.pid, one.start) for one in found}
    return found


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)
