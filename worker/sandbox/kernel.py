"""System calls about namespaces and mounts that Python has no words for.  Numbers that are given directly
are the same on all architectures.  Each raises OSError whose text names the step."""

import ctypes
import os
from typing import Final

NEW_MOUNTS: Final = 0x00020000
NEW_CGROUP: Final = 0x02000000
NEW_UTS: Final = 0x04000000
NEW_IPC: Final = 0x08000000
NEW_USER: Final = 0x10000000
NEW_PIDS: Final = 0x20000000
NEW_NETWORK: Final = 0x40000000

NOSUID: Final = 2
NODEV: Final = 4
NOEXEC: Final = 8
RECURSIVE: Final = 0x4000
PRIVATE: Final = 1 << 18

ATTR_READ_ONLY: Final = 1
ATTR_NOSUID: Final = 2
ATTR_NODEV: Final = 4

_OPENAT2 = 437
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_MOUNT_SETATTR = 442

_O_PATH = os.O_PATH | os.O_CLOEXEC
_RESOLVE_NO_XDEV, _RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x01, 0x02, 0x04, 0x08
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_FROM_AND_TO_DESCRIPTORS = 0x04 | 0x40
_DETACH = 2
_EMPTY = ctypes.c_char_p(b"")

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user", ctypes.c_uint64),
    ]


def _checked(result: int, step: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "new namespaces")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _checked(result, f"mount {kind} on {target}")


def make_private(target: str) -> None:
    """No mount of the machine shows up here later, none of here there."""
    result = _libc.mount(None, target.encode(), None, ctypes.c_ulong(PRIVATE | RECURSIVE), None)
    _checked(result, f"private mounts below {target}")


def pivot_root(new: str, old: str) -> None:
    _checked(_libc.pivot_root(new.encode(), old.encode()), "pivot_root")


def detach(target: str) -> None:
    """Unmount it with everything below it, also while it is in use."""
    _checked(_libc.umount2(target.encode(), ctypes.c_int(_DETACH)), f"unmount {target}")


def open_beneath(directory: int, path: str) -> int:
    """A descriptor that names what is at a relative path; no link is followed on the way.  Raises OSError;
    ELOOP where there is a link."""
    return _open(directory, path, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)


def open_unmounted(directory: int, name: str) -> int:
    """The same for one entry of a directory.  Raises OSError; EXDEV where something is mounted on it."""
    return _open(directory, name, _RESOLVE_NO_XDEV | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)


def _open(directory: int, path: str, resolve: int) -> int:
    how = _How(_O_PATH, 0, resolve)
    result = _libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(directory),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    return _checked(result, f"open {path}")


def copy_tree(fd: int) -> int:
    """A copy, not attached anywhere, of what is mounted at and below this place."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
    result = _libc.syscall(ctypes.c_long(_OPEN_TREE), ctypes.c_int(fd), _EMPTY, ctypes.c_uint(flags))
    return _checked(result, "copy a mount")


def attach(tree: int, target: int) -> None:
    result = _libc.syscall(
        ctypes.c_long(_MOVE_MOUNT),
        ctypes.c_int(tree),
        _EMPTY,
        ctypes.c_int(target),
        _EMPTY,
        ctypes.c_uint(_FROM_AND_TO_DESCRIPTORS),
    )
    _checked(result, "attach a mount")


def restrict(tree: int, attributes: int, *, all_below: bool = True) -> None:
    """Give more attributes to a mount."""
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if all_below else 0)
    wanted = _Attributes(attributes, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(tree),
        _EMPTY,
        ctypes.c_uint(flags),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    _checked(result, "restrict a mount")
