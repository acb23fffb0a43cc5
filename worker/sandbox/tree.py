"""The processes below this one: who they are, and their end.

Commands run in sessions and process groups of their own and may leave those, so a group is never enough:
the tree is walked.  Whoever adopts orphans (`prctl.adopt_orphans`) finds all of them below itself.
"""

import contextlib
import os
import signal
import time
from collections.abc import Container, Iterator

_PAUSE = 0.001
"""Seconds between two looks at processes that have been killed and are not gone yet."""


def children(pid: int) -> list[int]:
    """The children of a process, of all its threads, zombies included; none where it is gone."""
    found: list[int] = []
    try:
        with os.scandir(f"/proc/{pid}/task") as tasks:
            for task in tasks:
                with open(f"{task.path}/children", "rb") as file:
                    found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        # The process or a thread has just ended, or the kernel is built without these files.
        return found or [child for child, parent in parents() if parent == pid]
    return found


def descendants(pid: int) -> list[int]:
    """Everything below a process, parents before their children."""
    found: list[int] = []
    ahead = [pid]
    while ahead:
        below = children(ahead.pop())
        found += below
        ahead += below
    return found


def end_children(seconds: float, keep: Container[int] = ()) -> bool:
    """Kill and reap all children but those in `keep`, with everything below them.

    Goes on until none is left, as a dying one may just have started another.  False: some could not be
    ended within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while doomed := [child for child in children(os.getpid()) if child not in keep]:
        for child in doomed:
            for pid in (child, *descendants(child)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            # Only these: a process that somebody waits for is never taken from him.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def parents() -> Iterator[tuple[int, int]]:
    """(pid, its parent's pid) of all processes that can be seen."""
    with os.scandir("/proc") as entries:
        pids = [entry.name for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/stat", "rb") as file,
        ):
            yield int(pid), int(file.read().rpartition(b")")[2].split()[1])
