"""What a process says about itself to the kernel, by prctl(2) and capset(2).  No policy: landlock.py."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_CAPBSET_DROP = 24
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64

CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID = 0, 1, 3, 4, 5, 6, 7
NET_BIND_SERVICE, NET_RAW, SYS_CHROOT = 10, 13, 18
"""Capabilities by the kernel's numbers.  Above all not PERFMON and SYS_ADMIN: with either, newer kernels let
other processes' environment and memory be read without asking Landlock."""

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    if _libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def die_with_parent(sent: signal.Signals) -> None:
    """`sent` comes when the thread that started this process ends, so that must not be a thread of a pool."""
    _prctl(_SET_PDEATHSIG, sent)


def adopt_orphans() -> None:
    """What our children leave behind becomes our child, instead of init's."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Other processes of the same user can't read our memory, environment or descriptors any more."""
    _prctl(_SET_DUMPABLE, 0)


def gain_no_privileges() -> None:
    """No program that we start gets more rights than we have (setuid, file capabilities)."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def keep_capabilities(kept: Collection[int]) -> None:
    """Give up all others, for what we start too.  Only root has any, and nothing happens without."""
    for number in range(_CAPABILITIES):
        if number not in kept:
            with contextlib.suppress(OSError):  # unknown to this kernel, or not ours to drop
                _prctl(_CAPBSET_DROP, number)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the same for 32 to 63
    if _libc.capget(header, sets) != 0:
        return
    mask = sum(1 << number for number in kept)
    for index in range(6):
        sets[index] &= (mask >> (32 * (index // 3))) & 0xFFFFFFFF
    if _libc.capset(header, sets) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")
