"""Landlock: from a policy to a process that can't leave it.

Applied once to a whole worker while it has a single thread; every command inherits it, and nothing inside
can widen it.  What the kernel's version can't enforce is said in `Ready.notes`.  The network is not handled
here, and neither are chmod, utime and extended attributes, for which Landlock has no rights.
"""

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from protocol.policy import Mode, Rung, SandboxPolicy
from protocol.wire import Ready
from worker.sandbox import prctl

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_PROBE_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_FIRST = (1 << 13) - 1
"""All rights of the first version, from EXECUTE to MAKE_SYM."""
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_SCOPES = 0b11
"""Abstract UNIX sockets and signals stay inside the domain."""

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""The rights that a rule for something other than a directory may carry."""

DEVICES = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
)
"""Written by ordinary programs; none of them reaches a disk but shm, which is shared memory."""

_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 10, 13, 18)
"""What is left to root's tools: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE,
NET_RAW, SYS_CHROOT, about what a container has.  Above all not PERFMON and SYS_ADMIN: with either, newer
kernels let other processes' environment and memory be read without asking Landlock."""

_GAINED = (
    (2, "files can't be moved or linked from one directory to another"),
    (3, "files outside the workspace can be cut short (truncate)"),
    (6, "commands can signal other processes of this user"),
)
"""What the versions before the given one lack."""

NO_LANDLOCK = (
    "This kernel offers no Landlock (it needs Linux 5.13 or newer with Landlock enabled), so a command could "
    "not be confined to the workspace."
)


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    found: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_PROBE_VERSION))
    return max(found, 0)


def confine(policy: SandboxPolicy, abi: int | None = None) -> Ready:
    """Put the policy into force for this thread and all that it starts from now on.

    `abi`: the Landlock version to use, the kernel's own by default.  Raises OSError where the kernel has
    Landlock and refuses: then nothing must be run.
    """
    abi = version() if abi is None else abi
    if policy.mode is Mode.UNCONFINED:
        return Ready(Rung.OFF, ("nothing is confined: commands may do what you may do",))
    prctl.keep_capabilities(_CAPABILITIES)
    prctl.gain_no_privileges()
    if abi < 1:
        return Ready(Rung.OFF, (NO_LANDLOCK,), refuse_commands=NO_LANDLOCK)
    _restrict(policy, abi)
    notes = [
        "the network is not confined",
        "names, sizes and modes of files elsewhere can be seen",
        "modes, owners and times of your files elsewhere can be changed",
    ]
    notes += [lacks for since, lacks in _GAINED if abi < since]
    return Ready(Rung.LANDLOCK, tuple(notes))


def handled(abi: int) -> int:
    """The rights to files that this version can refuse."""
    rights = _FIRST
    rights |= _REFER if abi >= 2 else 0
    rights |= _TRUNCATE if abi >= 3 else 0
    rights |= _IOCTL_DEV if abi >= 5 else 0
    return rights


def rules(policy: SandboxPolicy, rights: int) -> Iterator[tuple[str, int]]:
    """(path, rights below it) of a confined policy; `rights` is what may be given at all."""
    read, write = rights & _READ, rights & ~(_MAKE_CHAR | _MAKE_BLOCK)
    hidden = tuple(map(Path, policy.hidden))
    for path in policy.readable:
        for part in around(Path(path), hidden):
            yield str(part), read
    yield policy.output, read
    for path in (policy.workspace, *policy.writable):
        yield path, write if policy.mode is Mode.WORKSPACE_WRITE else read
    for path in (policy.tmp, *DEVICES):
        yield path, write


def around(path: Path, hidden: tuple[Path, ...]) -> Iterator[Path]:
    """The path, or where something hidden lies below it, its entries without that: what has been granted
    can't have a part taken out.  What appears there later is closed then."""
    if any(path.is_relative_to(secret) for secret in hidden):
        return
    if not any(secret.is_relative_to(path) for secret in hidden):
        yield path
        return
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            # The target of a link has a rule of its own, or none.
            if not entry.is_symlink():
                yield from around(Path(entry.path), hidden)


def _restrict(policy: SandboxPolicy, abi: int) -> None:
    rights = handled(abi)
    attributes = _Ruleset(rights, 0, _SCOPES if abi >= 6 else 0)
    # Older kernels refuse a longer struct than they know.
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, allowed in rules(policy, rights):
            if path:
                _allow(ruleset, path, allowed)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
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
            ctypes.c_int(ruleset),
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
