"""Put a whole content in a place: at once or not at all, and with what the file had: mode, links, owner.

The usual way is a temporary file beside it that is renamed over it.  Where that would lose something (other
hard links, extended attributes, an owner that we can't give away) or is not allowed (a directory that can't
be written), the file is written in place, with its space reserved first and its content put back on failure.
"""

import errno
import os
import stat
from contextlib import suppress

from worker.call import ToolError
from worker.files.paths import Place, in_words
from worker.files.regular import require_regular

_IN_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ENOTSUP}
"""Why a file beside it can't be made or renamed, while the file itself may well be written."""


def store(place: Place, data: bytes, before: bytes | None) -> None:
    """Give the place this content.  `before` is what it had when it was read, None for a new file.

    Raises ToolError; then the file is as it was, and nothing is left beside it.
    """
    with in_words(place.shown):
        if before is None or place.status is None:
            _through_temporary(place, data, None)
            return
        fd = _open_for_writing(place)
        try:
            status = os.fstat(fd) if fd >= 0 else place.status
            require_regular(place.shown, status)
            _require_unchanged(place, status)
            if fd >= 0 and (status.st_nlink > 1 or _has_attributes(fd) or status.st_uid != os.geteuid() != 0):
                _in_place(fd, data, before)
                return
            try:
                _through_temporary(place, data, status)
            except OSError as error:
                if fd < 0 or error.errno not in _IN_PLACE:
                    raise
                _in_place(fd, data, before)
        finally:
            if fd >= 0:
                os.close(fd)


def _open_for_writing(place: Place) -> int:
    """The file itself, opened as the kernel lets us; -1 for a program that runs: it can only be replaced."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(place.name, flags, dir_fd=place.parent)
    except OSError as error:
        if error.errno != errno.ETXTBSY:
            raise
        return -1


def _require_unchanged(place: Place, now: os.stat_result) -> None:
    then = place.status
    if then is None or _identity(then) != _identity(now):
        raise ToolError(f"{place.shown} was changed by someone else meanwhile; read it again")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _through_temporary(place: Place, data: bytes, status: os.stat_result | None) -> None:
    """A new file beside it, never readable for more than the old one, renamed over it when it is whole."""
    name = b".polier-" + os.urandom(8).hex().encode()
    mode = 0o666 if status is None else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, mode, dir_fd=place.parent)
    try:
        try:
            _write_all(fd, data)
            if status is not None:
                made = os.fstat(fd)
                if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
                    os.fchown(fd, status.st_uid, status.st_gid)
                os.fchmod(fd, stat.S_IMODE(status.st_mode))
        finally:
            os.close(fd)
        os.rename(name, place.name, src_dir_fd=place.parent, dst_dir_fd=place.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=place.parent)
        raise


def _in_place(fd: int, data: bytes, before: bytes) -> None:
    if len(data) > len(before):
        _reserve(fd, len(before), len(data) - len(before))
    try:
        _write_at_start(fd, data)
    except OSError:
        with suppress(OSError):
            _write_at_start(fd, before)
        raise


def _reserve(fd: int, offset: int, size: int) -> None:
    """Space for what is to come, so that a full disk is met before anything is overwritten."""
    try:
        os.posix_fallocate(fd, offset, size)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            return
        os.ftruncate(fd, offset)
        raise


def _write_at_start(fd: int, data: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    _write_all(fd, data)
    os.ftruncate(fd, len(data))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _has_attributes(fd: int) -> bool:
    try:
        return any(name != "security.selinux" for name in os.listxattr(fd))
    except OSError:
        return False
