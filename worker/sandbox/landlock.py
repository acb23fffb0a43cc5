"""Landlock: which files may be read, executed and written, and who may be signalled.

`Ruleset` is made before the first restriction, since what is restricted can't open what it names; `enter`
puts it into force for a thread and all that this thread starts, and nothing inside can widen it.  Landlock
has no rights for chmod, utime and extended attributes, and none for names and sizes.  Which paths a policy
gives: `rules`.  The order of all walls: confine.py; a command's own domain: domain.py.
"""

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from protocol.policy import Mode, Network, Rung, SandboxPolicy, of_the_machine

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_PROBE_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_FIRST = (1 << 13) - 1
"""All rights of the first version, from EXECUTE to MAKE_SYM."""
REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_PORTS = 0b11
"""To bind and to connect a TCP port."""
SCOPE_ABSTRACT, SCOPE_SIGNAL = 0b01, 0b10
"""Abstract UNIX sockets and signals stay inside the domain."""

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""The rights that a rule for something other than a directory may carry."""

DEVICES = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
)
"""Written by ordinary programs; none of them reaches a disk but shm, which is shared memory."""
_PRIVATE = ("/tmp", "/var/tmp", "/run")
"""What a mount namespace has of its own."""

_PORTS_SINCE, SCOPES_SINCE = 4, 6
"""Landlock's versions."""


class _Attributes(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    found: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_PROBE_VERSION))
    return max(found, 0)


def handled(abi: int) -> int:
    """The rights to files that this version can refuse."""
    rights = _FIRST
    rights |= REFER if abi >= 2 else 0
    rights |= _TRUNCATE if abi >= 3 else 0
    rights |= _IOCTL_DEV if abi >= 5 else 0
    return rights


def ports(policy: SandboxPolicy, rung: Rung, abi: int) -> int:
    """The rights to ports that are refused.  None in a network namespace, which would lose its localhost."""
    closed = rung is Rung.LANDLOCK and policy.network is not Network.ON
    return _PORTS if closed and abi >= _PORTS_SINCE else 0


def rules(policy: SandboxPolicy, rung: Rung, rights: int) -> Iterator[tuple[str, int]]:
    """(path, rights below it) of a confined policy; `rights` is what may be given at all.

    With namespaces all that is not to be seen isn't there, so everything may be read.  Without, only what
    the policy names: what is hidden below such a place is left out by giving its neighbours one by one (what
    appears beside it later is closed).  Only the workspace is given as a whole.
    """
    read, write = rights & _READ, rights & ~(_MAKE_CHAR | _MAKE_BLOCK)
    # Only what the policy leaves unconfined is on the rung `off`, and that asks for no rules.
    if rung is Rung.FULL:
        yield "/", read
        yield from ((path, write) for path in _PRIVATE)
    else:
        hidden = tuple(Path(path) for path in policy.hidden)
        for path in policy.readable:
            yield from ((str(part), read) for part in around(Path(path), hidden))
        yield policy.output, read
    may = write if policy.mode is Mode.WORKSPACE_WRITE else read
    yield policy.workspace, may
    closed = () if rung is Rung.FULL else tuple(Path(path) for path in policy.hidden)
    for path in policy.writable:
        if of_the_machine(path):
            continue
        yield from ((str(part), may) for part in around(Path(path), closed))
    for path in (policy.tmp, *DEVICES):
        yield path, write


def around(path: Path, hidden: tuple[Path, ...]) -> Iterator[Path]:
    """The path, or where something hidden lies below it, its entries without that."""
    if any(path.is_relative_to(secret) for secret in hidden):
        return
    below = tuple(secret for secret in hidden if secret.is_relative_to(path))
    if not below:
        yield path
        return
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            # The target of a link has a rule of its own, or none.
            if not entry.is_symlink():
                yield from around(Path(entry.path), below)


class Ruleset:
    """Rights that are refused but where a rule gives them; held by a descriptor until `close`."""

    def __init__(
        self, rights: int, given: Iterable[tuple[str, int]], *, abi: int, ports: int = 0, scopes: int = 0
    ) -> None:
        """`given`: (path, rights below it); what is not there needs no rule.  Raises OSError."""
        attributes = _Attributes(rights, ports, scopes if abi >= SCOPES_SINCE else 0)
        # Older kernels refuse a longer struct than they know.
        size = 24 if abi >= SCOPES_SINCE else 16 if abi >= _PORTS_SINCE else 8
        self._fd = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
        try:
            for path, allowed in given:
                if path:
                    self._allow(path, allowed)
        except OSError:
            self.close()
            raise

    def enter(self) -> None:
        """For this thread and all that it starts from now on.  Needs no_new_privs.  Raises OSError."""
        _call(_RESTRICT_SELF, ctypes.c_int(self._fd), ctypes.c_uint32(0))

    def close(self) -> None:
        os.close(self._fd)

    def _allow(self, path: str, rights: int) -> None:
        """One rule.  What isn't there, or can't be reached, needs none."""
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(parent).st_mode):
                rights &= _OF_FILES
            rule = _Beneath(rights, parent)
            _call(
                _ADD_RULE,
                ctypes.c_int(self._fd),
                ctypes.c_int(_PATH_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
        finally:
            os.close(parent)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: system call {number}: {os.strerror(code)}")
    return result
