"""What a process says about itself to the kernel, by prctl(2).  No policy: that is landlock.py."""

import ctypes
import os
import signal

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38

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
