"""The few ways in which this package touches the disk: private files, whole lines, one named error.

Not here: what the lines say (lines, round_log) and where files lie (conversations).
"""

import errno
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from supervisor.exits import StopError

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

_ADVICE = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room on that disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EACCES: "make it yours and writable, or name another directory in AGENT_HOME",
    errno.EPERM: "make it yours and writable, or name another directory in AGENT_HOME",
    errno.EROFS: "name a directory in AGENT_HOME that can be written",
    errno.ENOENT: "name a directory in AGENT_HOME that can be made there",
    errno.ESTALE: "nothing more can be kept of this conversation, begin a new one",
    errno.ENOTDIR: "name a directory in AGENT_HOME that can be written",
}


class StoreError(StopError):
    """The disk refuses: the message names the file, the reason and what to do."""

    def __init__(self, path: Path, error: OSError) -> None:
        advice = _ADVICE.get(error.errno or 0, "look after the file and try again")
        super().__init__(f"{path}: {error.strerror or error}; {advice}")
        self.path = path


def now() -> str:
    """The time as lines have it: UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def private_directory(path: Path) -> Path:
    """The directory, made with its parents where it is missing, 0700 whatever the umask.

    A directory that is there keeps its mode.  Raises StoreError.
    """
    try:
        if not path.is_dir():
            if not path.parent.is_dir():
                private_directory(path.parent)
            path.mkdir(DIRECTORY_MODE, exist_ok=True)
            path.chmod(DIRECTORY_MODE)  # a umask like 0777 takes bits away
    except FileExistsError as error:
        raise StoreError(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))) from error
    except OSError as error:
        raise StoreError(path, error) from error
    return path


def open_private(path: Path, flags: int) -> int:
    """A descriptor to write a file that is made 0600 whatever the umask.

    Raises FileExistsError where O_EXCL is asked for, else StoreError.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreError(path, error) from error
    try:
        os.fchmod(descriptor, FILE_MODE)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(path, error) from error
    return descriptor


def append(descriptor: int, path: Path, line: bytes) -> None:
    """The line at the end of the file, whole or not at all.  Raises StoreError.

    One `write`, so that a kill leaves no part of it behind; what a full disk left of it is cut off again.
    The caller is the file's only writer.
    """
    written = 0
    try:
        while written < len(line):
            written += os.write(descriptor, line[written:] if written else line)
    except OSError as error:
        if written:
            with suppress(OSError):  # a broken disk: the first error is the one to tell
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise StoreError(path, error) from error


def require_still_there(descriptor: int, path: Path) -> None:
    """Raises StoreError where the open file has no name any more: what it holds is lost at its close."""
    if os.fstat(descriptor).st_nlink == 0:
        raise StoreError(path, OSError(errno.ESTALE, "it was deleted while it was in use"))
