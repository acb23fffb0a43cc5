"""The processes below this one: which of them belong to a call, and how they are ended and reaped.

What a command leaves behind is adopted by the worker (a subreaper), so that walking down from the worker
finds it wherever it hid.  A process belongs to a call if POLIER_CALL in its environment says so, if it is
in the session of the call's shell, or if its parent belongs.

Every command starts a session, and no other child of a worker does.  So a dead child of ours in a foreign
session that is no shell of a running call was adopted, and is reaped here.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator, Set

from msgspec import Struct

from worker.processes.shell import OPENING

MARK = b"POLIER_CALL="

_STATE, _PARENT, _GROUP, _SESSION = range(4)
_USER, _SYSTEM, _THREADS, _START, _RESIDENT, _STACK = 11, 12, 17, 19, 21, 25
"""Places in /proc/PID/stat after the name, which may hold blanks and brackets."""


_ALL_KINDS = 0x40000000
"""__WALL: children too that were started to send another signal than SIGCHLD at their end."""


class Process(Struct, frozen=True):
    """`start` is in clock ticks since boot: with it a number that was used again is told apart.

    `stack`: where its stack begins.  That is drawn by lot at each exec, so the same process with another
    one runs another program; 0 where we may not see it.
    """

    pid: int
    parent: int
    group: int
    session: int
    start: int
    zombie: bool
    stack: int = 0
    ticks: int = 0
    """What all its threads have computed so far, in clock ticks."""
    threads: int = 1
    pages: int = 0
    """In memory, shared ones counted whole."""


def look(pid: int) -> Process | None:
    """The process as it is now; None where it is gone."""
    stat = read(f"/proc/{pid}/stat")
    if not stat:
        return None
    part = stat[stat.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(part[_PARENT]),
        group=int(part[_GROUP]),
        session=int(part[_SESSION]),
        start=int(part[_START]),
        zombie=part[_STATE] in (b"Z", b"X"),
        stack=int(part[_STACK]),
        ticks=int(part[_USER]) + int(part[_SYSTEM]),
        threads=int(part[_THREADS]),
        pages=int(part[_RESIDENT]),
    )


def walk(root: int) -> Iterator[Process]:
    """All descendants of a subreaper, parents first.

    Each comes before its children are read: who stops it then finds them all.  The root's own children are
    read again until there is no new one: a process whose parent dies during the walk turns up there.
    """
    seen = {root}
    while waiting := [pid for pid in _children(root) if pid not in seen]:
        while waiting:
            pid = waiting.pop()
            process = None if pid in seen else look(pid)
            seen.add(pid)
            if process is not None:
                yield process
                waiting += _children(pid)


def below(root: int) -> list[Process]:
    """All descendants of a subreaper, parents first."""
    return list(walk(root))


class Family(Struct, frozen=True):
    """What is known about the processes of one call."""

    call_id: str
    session: int
    """The shell's."""
    known: frozenset[tuple[int, int]] = frozenset()
    """Pid and start of processes that were found to belong, however they look now."""
    taken: frozenset[int] | None = None
    """Pids that belong to others.  If given, what we adopted and nobody marks or takes belongs too: a
    process that left the session and cleared its environment (`env -i setsid ...`)."""


def living(family: Family, most: int | None = None) -> list[Process]:
    """What runs below this process and belongs to the call; of it `most`, for whom these tell enough."""
    own, own_session, mark = os.getpid(), os.getsid(0), family.call_id.encode()
    belonging: dict[int, Process] = {}
    for process in walk(own):
        if most is not None and len(belonging) >= most:
            break
        belongs = (
            process.parent in belonging
            or process.session == family.session
            or (process.pid, process.start) in family.known
        )
        if not belongs:
            found = mark_of(process.pid)
            adopted = process.parent == own and process.session != own_session
            stray = adopted and not found and family.taken is not None and process.pid not in family.taken
            belongs = found == mark or stray
        if belongs:
            belonging[process.pid] = process
    return [process for process in belonging.values() if not process.zombie]


def command_line(pid: int) -> str:
    """Its arguments on one line of at most 80 characters, or its name; `?` where it is gone.

    A shell's own arguments say nothing: what it runs is not among them.
    """
    for name in ("cmdline", "comm"):
        text = read(f"/proc/{pid}/{name}").replace(b"\0", b" ").decode(errors="replace")
        line = "bash (a part of the script)" if OPENING in text else " ".join(text.split())
        if line:
            return line if len(line) <= 80 else line[:79] + "…"
    return "?"


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """Signal these very processes: whoever uses a number again is left alone."""
    for process in processes:
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(process.pid)
            try:
                now = look(process.pid)
                if now is not None and now.start == process.start:
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)


def childless() -> bool:
    """Whether this process has no children, dead ones that are not reaped included.  Where it adopts orphans,
    nothing that it ever started runs then: one question instead of a walk."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _ALL_KINDS)
    except ChildProcessError:
        return True
    return False


def reap_adopted(shells: Set[int]) -> None:
    """Reap the dead that we adopted.  Call it with the desk's lock held, so that `shells` is complete."""
    own = os.getpid()
    session = os.getsid(0)
    for pid in _children(own):
        process = None if pid in shells else look(pid)
        if process is not None and process.zombie and process.session != session:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def mark_of(pid: int) -> bytes:
    """The value of POLIER_CALL with which the process was started; empty where it can't be seen."""
    environment = read(f"/proc/{pid}/environ")
    at = environment.find(MARK)
    if at < 0 or (at > 0 and environment[at - 1] != 0):
        return b""
    return environment[at + len(MARK) :].partition(b"\0")[0]


def _children(pid: int) -> list[int]:
    """Direct children: kept per thread by the kernel, since any thread may have started them."""
    children: list[int] = []
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
        for thread in threads:
            children += map(int, read(f"{thread.path}/children").split())
    return children


def read(path: str) -> bytes:
    """A file of /proc; empty where it is gone or closed to us.  Plain calls: every command pays for them."""
    data = b""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while piece := os.read(fd, 65536):
                data += piece
        finally:
            os.close(fd)
    return data
