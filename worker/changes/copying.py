"""A copy of the workspace for a command to change, where no layer can be had.

Files share their blocks with the original where the file system can do that; they are never the same file.
What is hidden isn't copied, nor are sockets and devices.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from worker.changes.finding import StoppedError
from worker.changes.states import Kind, State, state_of

_CLONE = 0x40049409
"""ioctl FICLONE: share the blocks of another file."""
_NO_CLONE = (
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.EXDEV,
    errno.ENOTTY,
    errno.ENOSYS,
    errno.EPERM,
    errno.EACCES,
)
_CHUNK = 8 * 1024 * 1024


class TooLargeError(Exception):
    """There is more than may be copied; the message names both figures."""


def measured(
    workspace: bytes,
    hidden: frozenset[bytes],
    most_bytes: int,
    most_files: int,
    cancelled: Callable[[], bool],
) -> list[tuple[bytes, State]]:
    """All that is to be copied, what is above first.  Raises TooLargeError, StoppedError and OSError."""
    found: list[tuple[bytes, State]] = []
    size = 0
    for path, state in _walked(workspace, b"", hidden):
        if cancelled():
            raise StoppedError
        found.append((path, state))
        size += state.size if state.kind is Kind.FILE else 0
        if len(found) > most_files:
            raise TooLargeError(
                f"it has more than {most_files:,} files and directories, the most that is copied"
            )
        if size > most_bytes:
            raise TooLargeError(
                f"it has more than {most_bytes:,} bytes, the most that is copied "
                f"({size:,} in the first {len(found):,} files and directories)"
            )
    return found


def copy(
    workspace: bytes, to: bytes, wanted: list[tuple[bytes, State]], cancelled: Callable[[], bool]
) -> None:
    """Raises OSError and StoppedError; then what is there by then is of no use."""
    os.mkdir(to, 0o700)
    for path, state in wanted:
        if cancelled():
            raise StoppedError
        source, target = b"%b/%b" % (workspace, path), b"%b/%b" % (to, path)
        with suppress(FileNotFoundError):  # it went away while we copied
            _copy_one(source, target, state)
    for path, state in reversed(wanted):
        if state.kind is Kind.DIRECTORY:
            target = b"%b/%b" % (to, path)
            with suppress(FileNotFoundError):
                os.utime(target, ns=(state.modified, state.modified), follow_symlinks=False)
                os.chmod(target, state.mode)


def _copy_one(source: bytes, target: bytes, state: State) -> None:
    match state.kind:
        case Kind.DIRECTORY:
            os.mkdir(target, 0o700)
        case Kind.LINK:
            os.symlink(state.target, target)
            os.utime(target, ns=(state.modified, state.modified), follow_symlinks=False)
        case Kind.PIPE:
            os.mkfifo(target, 0o600)
            os.chmod(target, state.mode)
        case Kind.FILE:
            flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            reading = os.open(source, os.O_RDONLY | flags)
            try:
                writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600)
                try:
                    content(reading, writing)
                    os.fchmod(writing, state.mode)
                    os.utime(writing, ns=(state.modified, state.modified))
                finally:
                    os.close(writing)
            finally:
                os.close(reading)
        case Kind.OTHER:
            pass


def content(reading: int, writing: int) -> None:
    """What one open file has becomes what the other one, which is empty, has."""
    try:
        fcntl.ioctl(writing, _CLONE, reading)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
    else:
        return
    try:
        while os.copy_file_range(reading, writing, _CHUNK):
            continue
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
        while chunk := os.read(reading, 1024 * 1024):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(writing, rest) :]


def _walked(workspace: bytes, path: bytes, hidden: frozenset[bytes]) -> Iterator[tuple[bytes, State]]:
    prefix = path + b"/" if path else b""
    for name in sorted(os.listdir(b"%b/%b" % (workspace, path))):
        inner = prefix + name
        state = None if inner in hidden else state_of(b"%b/%b" % (workspace, inner))
        if state is None or state.kind is Kind.OTHER:
            continue
        yield inner, state
        if state.kind is Kind.DIRECTORY:
            yield from _walked(workspace, inner, hidden)
