"""The machine below the supervisor: is it Linux, who are our processes, and what did a dead run leave?

Everything that a run starts carries a marker, `POLIER_SUPERVISOR=<pid>:<start>:<namespace>:<token>`, in its
environment, or among its arguments where the environment can't be read.  What a process started and then
stripped of its environment is found by its ancestors while one of them lives.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from supervisor.exits import USAGE, StopError

MARKER = "POLIER_SUPERVISOR"
_MARKED = re.compile(rb"(?:^|\0)POLIER_SUPERVISOR=(\d+):(\d+):(\d+):([0-9a-f]+)(?:\0|$)")
_SET_DUMPABLE = 4
_SET_CHILD_SUBREAPER = 36
_SHOWN = 100
"""Characters of a command line in a report."""
_END_SECONDS = 2.0
"""How long the end of strays may take; a process that waits for a disk can't be ended sooner."""
_PAUSE = 0.001


def require_linux() -> None:
    """Raises StopError elsewhere."""
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        raise StopError(
            f"Polier runs on Linux 5.4 or newer with /proc; this is {sys.platform}. "
            "On macOS and Windows run it in a Linux container or virtual machine (WSL 2 is one).",
            USAGE,
        )


def harden() -> None:
    """Close our memory, environment and descriptors to other processes of this user, and adopt orphans."""
    _prctl(_SET_DUMPABLE, 0)
    adopt_orphans()


def adopt_orphans() -> None:
    """What a dead zygote leaves behind becomes our child, where it can be found."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def marker() -> str:
    """A new marker for what this process is about to start; it tells apart the pools of one process too."""
    pid = os.getpid()
    return f"{pid}:{_started(pid)}:{_namespace()}:{os.urandom(4).hex()}"


def end_marked(value: str, keep: Collection[int] = ()) -> int:
    """End everything that carries this marker and all below it, and reap what of it is our child.

    `keep`: children of ours that stay, and what is below them.  Children that carry nobody's marker and
    lead or belong to a session of their own were adopted, so they are ended too.  Returns how many.
    """
    ours = value.encode()
    ended: set[int] = set()
    session = os.getsid(0)
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        doomed = [pid for pid, found in _marked(_pids()) if found[0] == ours]
        # A zombie has neither marker nor harm in it.
        doomed += [
            child
            for child in set(children(os.getpid())) - set(keep)
            if _started(child) and os.getsid(child) != session and not any(_marked((child,)))
        ]
        ended.update(_end(doomed))
        _reap(ended)
        if not doomed:
            break
        time.sleep(_PAUSE)
    # What was dead before we looked, and became our child by its parent's death, is waited for by nobody.
    _reap(child for child in set(children(os.getpid())) - set(keep) if os.getsid(child) != session)
    return len(ended)


def end_strays() -> list[str]:
    """End what supervisors of this user that are dead have left behind.  One line for each process ended.

    A supervisor in another PID namespace (a container's) can't be seen, so its processes are left alone.
    """
    strays = {
        pid: (_started(pid), f"ended a stray process of a run that is over: {pid} {_command(pid)}")
        for pid in _strays()
    }
    deadline = time.monotonic() + _END_SECONDS
    # The number of one that has gone may be somebody else's by now.
    while left := [pid for pid, (begun, _) in strays.items() if begun and _started(pid) == begun]:
        _reap(_end(left))
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE)
    return [words for _, words in strays.values()]


def strays() -> list[str]:
    """One line for each process that dead supervisors of this user have left behind; none is ended."""
    return [f"{pid} {_command(pid)}" for pid in _strays()]


def _strays() -> list[int]:
    here = str(_namespace()).encode()
    return [
        pid
        for pid, (_, owner, start, namespace) in _marked(_pids())
        if namespace == here and _started(int(owner)) != int(start)
    ]


def children(pid: int) -> list[int]:
    """The children of a process, zombies included."""
    found: list[int] = []
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task") as tasks:
        for task in tasks:
            found += map(int, _read(f"{task.path}/children").split())
    return found


def _end(pids: Iterable[int]) -> set[int]:
    """Kill these and all below them; reap those that are our children."""
    doomed = list(dict.fromkeys(pids))
    for pid in doomed:
        doomed += [child for child in children(pid) if child not in doomed]
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return set(doomed)


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def _marked(pids: Iterable[int]) -> Iterator[tuple[int, tuple[bytes, bytes, bytes, bytes]]]:
    """(pid, (marker, supervisor's pid, its start, its namespace)) of those that carry a marker."""
    me, user = os.getpid(), os.geteuid()
    for pid in pids:
        if pid == me:
            continue
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}").stat().st_uid != user:
                continue
        found = _MARKED.search(_read(f"/proc/{pid}/cmdline")) or _MARKED.search(_read(f"/proc/{pid}/environ"))
        if found:
            pid_, start, namespace, token = found.groups()
            yield pid, (b":".join((pid_, start, namespace, token)), pid_, start, namespace)


def _started(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 where it is gone or only waits to be reaped."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in (b"Z", b"X") else 0


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _command(pid: int) -> str:
    words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"


def _read(path: str) -> bytes:
    """A file of /proc; empty where the process is gone or closed to us."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
