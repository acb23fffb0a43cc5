"""What the commands and jobs of a worker use now, and which of them has reached a limit.

All of them share the limits of memory and of processes; there whoever uses most is the one to end.  What
belongs to no command that is known counts too.  Not here: how often to look, and the end (guard.py).
"""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from protocol.policy import Limit, Limits, SandboxPolicy
from worker.processes import tree
from worker.processes.owners import Culprits, Subject, owned
from worker.processes.verdict import Struck, size

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")

NEAR = 0.7
"""Of the memory limit.  Below it each process's resident pages are added up, which counts shared ones too
often but is read anyway; above it shared ones are counted once, which costs far more."""

CPU_SLACK_SECONDS = 2.0
"""The kernel's own signal comes first and ends most programs; who ignores it is ended here."""

THREADS_EACH = 4
"""A limit of N processes is one of so many times N threads: each is a process to the kernel."""

MANY = 10_000
"""Processes that are looked at where there is no limit."""

SHARED = "/dev/shm"
"""Files here are memory, and no process's."""


class Disk(Struct, frozen=True):
    """One file system that commands write to."""

    name: str
    path: str

    def free(self) -> int:
        """Bytes that this user may still write; -1 where that can't be known."""
        try:
            found = os.statvfs(self.path)
        except OSError:
            return -1
        return found.f_bavail * found.f_frsize if found.f_blocks else -1


def disks_of(policy: SandboxPolicy) -> tuple[Disk, ...]:
    """Each once, however many directories of it may be written."""
    places = [("the workspace's disk", policy.workspace), ("the disk of temporary files", policy.tmp)]
    places += [(f"the disk of {path}", path) for path in policy.writable]
    disks: dict[int, Disk] = {}
    for name, path in places:
        try:
            disks.setdefault(Path(path).stat().st_dev, Disk(name, path))
        except OSError:
            continue
    return tuple(disks.values())


def shared_now() -> int:
    """Bytes of memory in files of SHARED."""
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


class Usage:
    """One look."""

    def __init__(self, subjects: list[Subject], disks: tuple[Disk, ...], limits: Limits) -> None:
        self._subjects = subjects
        self._disks = disks
        self._limits = limits
        self._processes = owned(subjects, limits.processes + 1 if limits.processes else MANY)

    def struck(self) -> tuple[Culprits, Struck] | None:
        """The first limit that is reached, and by whom."""
        return self._of_processes() or self._of_memory() or self._of_one()

    def _most(self, amounts: dict[Subject | None, int]) -> Culprits:
        return frozenset({max(amounts, key=lambda subject: amounts[subject])})

    def _of_processes(self) -> tuple[Culprits, Struck] | None:
        allowed = self._limits.processes
        if not allowed:
            return None
        counts = {owner: len(processes) for owner, processes in self._processes.items()}
        if sum(counts.values()) > allowed:
            return self._most(counts), Struck(Limit.PROCESSES, f"more than {allowed:,} run at a time")
        threads = {
            owner: sum(one.threads for one in processes) for owner, processes in self._processes.items()
        }
        if (count := sum(threads.values())) > THREADS_EACH * allowed:
            words = f"{count:,} threads run at a time, {THREADS_EACH * allowed:,} are allowed"
            return self._most(threads), Struck(Limit.PROCESSES, words)
        return None

    def _of_memory(self) -> tuple[Culprits, Struck] | None:
        allowed = self._limits.memory_bytes
        if not allowed:
            return None
        grown = max(shared_now() - min(subject.shared for subject in self._subjects), 0)
        resident = sum(one.pages for processes in self._processes.values() for one in processes) * PAGE
        if resident + grown <= NEAR * allowed:
            return None
        own: dict[Subject | None, int] = {}
        shared = 0
        for owner, processes in self._processes.items():
            parts = [_proportional(one) for one in processes]
            own[owner] = sum(whole for whole, _ in parts)
            shared += sum(part for _, part in parts)
        # What is mapped of the files is in both.
        total = sum(own.values()) - shared + max(shared, grown)
        if total <= allowed:
            return None
        if own and grown < max(own.values()):
            (culprit,) = culprits = self._most(own)
            return culprits, Struck(Limit.MEMORY, _memory_words(total, allowed, own[culprit], len(own)))
        words = (
            f"{size(total)} of {size(allowed)} in use, {size(grown)} of it by files in {SHARED}, "
            "which stay until they are removed"
        )
        return frozenset({self._subjects[-1]}), Struck(Limit.MEMORY, words)

    def _of_one(self) -> tuple[Culprits, Struck] | None:
        """The limits of each command by itself."""
        for subject in self._subjects:
            if subject.running.struck is None and (struck := self._alone(subject)):
                return frozenset({subject}), struck
        return self._of_disks()

    def _alone(self, subject: Subject) -> Struck | None:
        limits, printed = self._limits, subject.printed.size
        if limits.output_bytes and printed > limits.output_bytes:
            words = f"{size(printed)} printed, {size(limits.output_bytes)} are allowed"
            return Struck(Limit.OUTPUT, words)
        if limits.cpu_seconds:
            spent = max((one.ticks for one in self._processes.get(subject, ())), default=0) / TICKS
            if spent > limits.cpu_seconds + CPU_SLACK_SECONDS:
                words = f"{spent:,.0f} s by one process, {limits.cpu_seconds:,} s are allowed"
                return Struck(Limit.CPU, words)
        return None

    def _of_disks(self) -> tuple[Culprits, Struck] | None:
        all_free = tuple(disk.free() for disk in self._disks)
        for subject in self._subjects:
            subject.look(self._processes.get(subject, ()), all_free)
        for index, (disk, free) in enumerate(zip(self._disks, all_free, strict=True)):
            found = {
                subject: words
                for subject in self._subjects
                if subject.running.struck is None
                and (words := over(disk.name, subject.free[index], free, self._limits))
            }
            if found:
                culprit = self._writer(list(found))
                return frozenset({culprit}), Struck(Limit.DISK, found[culprit])
        return None

    def _writer(self, subjects: list[Subject]) -> Subject:
        """Who has written most; the newest where that can't be told."""
        return max(
            reversed(subjects),
            key=lambda one: sum(map(_written, self._processes.get(one, ()))) if subjects[1:] else 0,
        )


def _memory_words(total: int, allowed: int, own: int, owners: int) -> str:
    if owners == 1:
        return f"{size(total)} of {size(allowed)} in use by this command and its children"
    return (
        f"{size(total)} of {size(allowed)} in use by all commands and jobs, "
        f"{size(own)} of it by this one and its children"
    )


def over(name: str, began: int, free: int, limits: Limits) -> str:
    """What is wrong with a disk that had so many bytes free when a command began; empty where nothing is."""
    fell = began - free
    if began < 0 or free < 0 or fell <= 0:
        return ""
    if limits.disk_bytes and fell > limits.disk_bytes:
        return f"free space on {name} shrank by {size(fell)}, {size(limits.disk_bytes)} are allowed"
    floor = min(limits.disk_free_bytes, began // 2)
    if free < floor:
        return f"{size(free)} are free on {name}, {size(floor)} must stay so"
    return ""


def _fields(data: bytes) -> Iterator[tuple[bytes, int]]:
    for line in data.splitlines():
        name, _, value = line.partition(b":")
        number = value.split()[:1]
        if number and number[0].isdigit():
            yield name, int(number[0])


def _proportional(process: tree.Process) -> tuple[int, int]:
    """Bytes in memory, what is shared divided by those who share it; and how much of it is shared memory."""
    try:
        data = Path(f"/proc/{process.pid}/smaps_rollup").read_bytes()
    except PermissionError:  # a program that keeps others out
        return process.pages * PAGE, 0
    except OSError:  # it has just ended: what it shared is counted with the others
        return 0, 0
    found = dict(_fields(data))
    return found.get(b"Pss", 0) * 1024, found.get(b"Pss_Shmem", 0) * 1024


def _written(process: tree.Process) -> int:
    return dict(_fields(tree.read(f"/proc/{process.pid}/io"))).get(b"write_bytes", 0)
