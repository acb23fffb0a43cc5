"""Things that must fail once the walls stand, tried for real before a worker serves.

That a wall was put up without an error doesn't say that it holds: kernels, containers and settings differ.
Each canary is one attempt of what the policy forbids; what succeeds is named, undone where it left
something, and the worker doesn't serve on this rung.  Nothing here waits for somebody.
"""

import contextlib
import ctypes
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from protocol.policy import Mode, Network, Rung, SandboxPolicy
from worker.sandbox import landlock

_AF_VSOCK = 40
_NEW_USER_NAMESPACE = 0x10000000
_ELSEWHERE = ("/", "/etc", "/usr")
_NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses of documentation: a route to them is a route out.  Nothing is sent."""
_PORT = 9
_CONNECT_SECONDS = 1.0
_LOOKED_AT = 64
"""Hidden places that are tried; a list may be long and a start must be short."""


class LeakError(Exception):
    """What must fail has succeeded; the message names it."""


class Walls(Struct, frozen=True):
    """What was put up, and so is tried.  `landlock`: the version in force, 0 for none."""

    policy: SandboxPolicy
    rung: Rung
    landlock: int
    filtered: bool
    """Whether system calls are filtered."""
    outsiders: tuple[int, ...] = ()
    """Processes outside of the sandbox whose pid is known here."""
    listener: int = 0
    """The port of a listener on the machine's own localhost; 0 for none."""


def leaks(walls: Walls) -> tuple[str, ...]:
    """What succeeded, in words; nothing where all walls hold."""
    return tuple(words for words, succeeds in _canaries(walls) if succeeds())


def outsiders() -> tuple[int, ...]:
    """Our parent and what is above it, as far as they can be seen: the zygote and the supervisor."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 1 and len(found) < 2:
        found.append(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return tuple(found)


def _canaries(walls: Walls) -> Iterator[tuple[str, Callable[[], bool]]]:
    policy = walls.policy
    granted = _granted(policy, walls.rung)
    if walls.landlock or walls.rung is Rung.FULL:
        for place in (*_parents(policy), *_ELSEWHERE):
            if not _below(place, _writable(policy, walls.rung)):
                yield f"a file could be made in {place}", partial(_made, place)
        readable = () if walls.rung is Rung.FULL else (*policy.readable, policy.workspace)
        # Landlock alone gives the workspace as a whole.
        whole = (policy.workspace, policy.tmp, policy.output)
        hidden = [path for path in policy.hidden if walls.rung is Rung.FULL or not _below(path, whole)]
        hidden += [path for path in _parents(policy)[:1] if not _below(path, readable)]
        for path in hidden[:_LOOKED_AT]:
            # Where somebody has put a link, what was closed is not there any more.
            if os.path.realpath(path) == path:
                yield f"{path} could be read", partial(_read, path, granted)
    if walls.landlock:
        for pid in walls.outsiders:
            yield f"the environment of process {pid} could be read", partial(_environment, pid)
    if walls.landlock >= landlock.SCOPES_SINCE:
        for pid in walls.outsiders:
            yield f"process {pid} could be signalled", partial(_signalled, pid)
    if walls.filtered:
        yield "a socket to the virtual machine's host could be had", partial(_socket, _AF_VSOCK)
        yield "a new namespace could be had", _namespace
    if policy.network is not Network.ON:
        yield from _network(walls)


def _network(walls: Walls) -> Iterator[tuple[str, Callable[[], bool]]]:
    if walls.rung is Rung.FULL:
        for family, address in _NOWHERE:
            words = f"there is a way to {address}, though the network is off"
            yield words, partial(_route, family, address)
        if walls.listener:
            yield "the machine's localhost could be reached", partial(_connected, walls.listener)
    elif walls.rung is Rung.LANDLOCK:
        yield "a network socket could be had, though the network is off", partial(_socket, socket.AF_INET)


def _granted(policy: SandboxPolicy, rung: Rung) -> tuple[str, ...]:
    """Places that may be read though something around them is hidden."""
    places = (policy.workspace, *policy.writable, policy.tmp, policy.output)
    return places if rung is not Rung.FULL else (*places, *policy.readable, *policy.opened)


def _writable(policy: SandboxPolicy, rung: Rung) -> tuple[str, ...]:
    own = ("/tmp", "/var/tmp", "/run", "/dev/shm") if rung is Rung.FULL else ("/dev/shm",)
    work = (policy.workspace, *policy.writable) if policy.mode is Mode.WORKSPACE_WRITE else ()
    return (*own, *work, policy.tmp)


def _parents(policy: SandboxPolicy) -> list[str]:
    """The directories of the private one and of the workspace: what lies beside them is the user's."""
    return [str(Path(path).parent) for path in (policy.tmp, policy.workspace) if path]


def _below(path: str, places: tuple[str, ...]) -> bool:
    return any(place and Path(path).is_relative_to(place) for place in places)


def _made(directory: str) -> bool:
    path = Path(directory, f".polier-canary-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    with contextlib.suppress(OSError):
        path.unlink()
    return True


def _read(path: str, granted: tuple[str, ...]) -> bool:
    """Whether a file has content for us, or a directory entries that nobody granted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(os.read(fd, 1))
    except IsADirectoryError:
        ways = [Path(place) for place in granted if place]
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries]
        return any(not any(way.is_relative_to(Path(path, name)) for way in ways) for name in names)
    except OSError:
        return False
    finally:
        os.close(fd)


def _environment(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb"):
            return True
    except OSError:
        return False


def _signalled(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _socket(family: int) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _namespace() -> bool:
    """A process that has succeeded in this can't serve any more, and isn't meant to."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.unshare(_NEW_USER_NAMESPACE) == 0)


def _route(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((address, _PORT))
    except OSError:
        return False
    return True


def _connected(port: int) -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
            # Refused at once, or accepted at once; a bound for what drops it.
            asked.settimeout(_CONNECT_SECONDS)
            asked.connect(("127.0.0.1", port))
    except OSError:
        return False
    return True
