"""Directories for the temporary files of tools: one per session, gone with it.

A session holds a lock of the operating system on its own directory, so that a later start can tell which
were left by sessions that were killed.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from supervisor.store.disk import DIRECTORY_MODE, StoreError, private_directory


class Scratch:
    """A new directory, until `close`."""

    def __init__(self, home: Path, id: str) -> None:
        """Make it, for the conversation with this id.  Raises StoreError."""
        parent = private_directory(home / "tmp")
        try:
            self.directory, self._lock = _made(parent, id)
        except OSError as error:
            raise StoreError(parent, error) from error

    def close(self) -> None:
        """Remove it and all that tools left in it."""
        _remove(self.directory)
        os.close(self._lock)


def sweep(home: Path) -> None:
    """Remove the directories of sessions that are over.  What can't be removed stays until a later start."""
    try:
        left = [entry.path for entry in os.scandir(home / "tmp") if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in left:
        try:
            lock = _locked(path)
        except OSError:  # a session that lives holds it, or it is gone already
            continue
        _remove(Path(path))
        os.close(lock)


def _remove(path: Path) -> None:
    """The directory with all that is in it, also what tools, or a file system, have closed to us.  What is
    somebody else's stays."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    for above, names, _ in os.walk(path):
        for name in names:
            inner = Path(above, name)
            with suppress(OSError):
                if not inner.is_symlink():
                    inner.chmod(DIRECTORY_MODE)
    shutil.rmtree(path, ignore_errors=True)


def _made(parent: Path, id: str) -> tuple[Path, int]:
    """The directory and its lock.  Until it is locked, another process may take it for a dead one's."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{id}-", dir=parent))
        try:
            path.chmod(DIRECTORY_MODE)
            lock = _locked(str(path))
        except (FileNotFoundError, BlockingIOError):
            continue
        if path.is_dir():
            return path, lock
        os.close(lock)


def _locked(path: str) -> int:
    """A descriptor that holds the directory's lock.  Raises OSError: BlockingIOError where it is held."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
