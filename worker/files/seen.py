"""What the model last saw of a file, so that a rewrite from an old copy doesn't undo somebody else's change.

A file counts as seen when it was read, or written whole.  What is remembered is its content, not its time:
a file that was only touched, or changed back, is no other.  An edit needs none of this, since it says what
it replaces; but it doesn't show the rest of the file, so what was unseen stays unseen.  The memory is the
desk's and ends with the worker; what it doesn't know may be written.
"""

import hashlib
import os

from worker.call import Desk, ToolError
from worker.files.paths import Place

_SIZE_MAX = 4 * 1024 * 1024
"""Bytes of a file whose content is remembered; of a larger one only size and time are."""


def saw(desk: Desk, place: Place, fd: int) -> None:
    """The file, open at `fd`, is about to be shown; what changes while it is shown counts as unseen."""
    desk.seen[place.real] = _of_open(fd)


def require_seen(desk: Desk, place: Place, before: bytes) -> None:
    """Raises ToolError where the content that is to be replaced is another one than was last seen."""
    if _stale(desk, place, before):
        raise ToolError(
            f"{place.shown} was changed since you last saw it, by a command or by someone else, and a "
            "rewrite might undo that: read it again first. Nothing was written"
        )


def wrote(desk: Desk, place: Place, before: bytes | None, after: bytes, *, whole: bool) -> None:
    """The file was changed from here: whole, or in a part that leaves what was unseen unseen."""
    known = place.real in desk.seen
    if whole or before is None or (known and not _stale(desk, place, before)):
        desk.seen[place.real] = _of(after) if len(after) <= _SIZE_MAX else _by_status(_status(place))


def _stale(desk: Desk, place: Place, before: bytes) -> bool:
    then = desk.seen.get(place.real)
    if then is None:
        return False
    if len(before) <= _SIZE_MAX:
        return then != _of(before)
    return place.status is None or then != _by_status(place.status)


def _of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _of_open(fd: int) -> bytes:
    status = os.fstat(fd)
    if status.st_size > _SIZE_MAX:
        return _by_status(status)
    return _of(os.pread(fd, status.st_size, 0))


def _by_status(status: os.stat_result) -> bytes:
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}".encode()


def _status(place: Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
