"""The limits that the kernel holds single processes to, and the place of commands behind other programs.

What is counted over all processes of a command (memory, processes, disk) is watched instead: see
worker/processes/guard.py.  The size of a process's address space is no limit here: sanitizers, WebAssembly
and JavaScript engines reserve far more than they use.
"""

import contextlib
import os
import resource

from protocol.policy import Limits

THREADS_EACH = 4
"""For the kernel each thread is a process.  The guard counts processes; this binds where it is late."""

CPU_KILL_SECONDS = 10
"""From SIGXCPU, which a program may ignore, to the kernel's SIGKILL."""

NICENESS = 5
"""Of commands: what the user does meanwhile goes first."""


def apply(limits: Limits, namespaced: bool) -> None:
    """Hold this process, and all that it starts from now on, to the limits of one process.

    `namespaced`: in a user namespace of its own, where the kernel counts only what is inside.  Root is never
    held to a number of processes, and outside of a namespace all that the user runs would count.
    """
    _lower(resource.RLIMIT_CORE, 0)
    if limits.file_bytes:
        _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    if limits.open_files:
        _lower(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.processes and namespaced and os.geteuid() != 0:
        _lower(resource.RLIMIT_NPROC, THREADS_EACH * limits.processes)


def cpu_seconds(limits: Limits) -> tuple[int, int]:
    """The CPU time of each process of a command: at SIGXCPU and at SIGKILL, -1 where there is no limit.  The
    worker itself lives longer than any command and has none, so each shell sets it."""
    if not limits.cpu_seconds:
        return -1, -1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = _least(limits.cpu_seconds + CPU_KILL_SECONDS, hard)
    return min(limits.cpu_seconds, most), most


def step_back() -> None:
    """The calling thread, and what it starts, leaves the processor to others who want it."""
    with contextlib.suppress(OSError):  # further back already
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


def _lower(which: int, most: int) -> None:
    """Never above what this process may have."""
    _, hard = resource.getrlimit(which)
    most = _least(most, hard)
    resource.setrlimit(which, (most, most))


def _least(one: int, hard: int) -> int:
    return one if hard == resource.RLIM_INFINITY else min(one, hard)
