"""A process's own namespaces: unshared, given users, made usable.  The mounts in them are mounts.py's.

What must be read of the machine (its root's links, where its programs listen) is read here too, before it
is out of sight.
"""

import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from protocol.policy import Network, SandboxPolicy
from worker.sandbox import kernel
from worker.sandbox.plan import Found, Link
from worker.sandbox.rlimits import THREADS_EACH

_SET_INTERFACE_FLAGS = 0x8914
_UP = 1
_RESERVED_PIDS = 300
"""Numbers below are given out once; when the kernel has come to pid_max it begins anew above them."""
_OWN_PIDS = 64
"""For the worker's threads."""
_PID_MAX_SINCE = (6, 14)
"""From this Linux on pid_max is the namespace's; before, root's tools would set the machine's."""
_SOCKET_PATH = 7
"""The field of a line in /proc/net/unix, which may hold blanks itself."""


def unshare(policy: SandboxPolicy, *, pids: bool) -> None:
    """Own namespaces for this process (that of processes for its children).  Raises OSError."""
    flags = kernel.NEW_USER | kernel.NEW_MOUNTS | kernel.NEW_IPC | kernel.NEW_UTS
    flags |= kernel.NEW_PIDS if pids else 0
    flags |= 0 if policy.network is Network.ON else kernel.NEW_NETWORK
    try:
        kernel.unshare(flags | kernel.NEW_CGROUP)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSPC):
            raise
        kernel.unshare(flags)


def map_user(user: int, group: int) -> None:
    """Who this process was before it had a namespace is the same inside; nobody else is anybody.  Raises
    OSError."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def map_all_users(pid: int) -> None:
    """All users of this namespace are themselves in that of `pid`.  Only root may; raises OSError."""
    for name in ("uid_map", "gid_map"):
        ranges = [line.split() for line in Path("/proc/self", name).read_text().splitlines()]
        _write(f"/proc/{pid}/{name}", "".join(f"{inside} {inside} {count}\n" for inside, _, count in ranges))


def raise_loopback(policy: SandboxPolicy) -> None:
    """A network of its own has one interface, which is down.  Raises OSError."""
    if policy.network is Network.ON:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, struct.pack("16sH14x", b"lo", _UP))
        except OSError as error:
            raise OSError(error.errno, f"the loopback interface: {error.strerror}") from error


def listener_outside() -> socket.socket | None:
    """A server on the machine's localhost, for the canary that must not reach it; None where none can be had.
    Called before there are namespaces; it stays outside of them, wherever its descriptor is."""
    try:
        return socket.create_server(("127.0.0.1", 0))
    except OSError:
        return None


def limit_pids(proc: str, processes: int) -> bool:
    """Bound the numbers of this PID namespace, whose /proc is at `proc`; that binds root too.  False where
    the kernel can't."""
    if not processes:
        return True  # no limit is wanted
    release = os.uname().release.split("-")[0].split(".")
    if tuple(int(part) for part in release[:2] if part.isdecimal()) < _PID_MAX_SINCE:
        return False
    try:
        _write(f"{proc}/sys/kernel/pid_max", str(_RESERVED_PIDS + _OWN_PIDS + THREADS_EACH * processes))
    except OSError:
        return False
    return True


def look(path: str) -> Found | None:
    """What stands there, for a plan.  Nothing where a link is on the way: it was not there when the policy
    was made, and whoever made it must not choose what is mounted."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return None
    if os.path.realpath(path) != path:
        return None
    return Found.DIRECTORY if stat.S_ISDIR(mode) else Found.FILE


def links_of_the_root() -> list[Link]:
    """/bin -> usr/bin and the like."""
    with os.scandir("/") as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
    return [Link(path, os.readlink(path)) for path in sorted(links)]  # noqa: PTH115 - the text as it is


def listening() -> Iterator[str]:
    """Real paths of sockets at which programs of the machine listen, as far as they say so."""
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return
    fields = (line.split(None, _SOCKET_PATH) for line in lines)
    for name in {field[_SOCKET_PATH] for field in fields if len(field) > _SOCKET_PATH}:
        if name.startswith(b"/"):
            path = os.path.realpath(os.fsdecode(name))
            try:
                found = stat.S_ISSOCK(os.lstat(path).st_mode)
            except (OSError, ValueError):
                continue
            if found:
                yield path


def _write(path: str, text: str) -> None:
    """In one call, as these files want it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from error
