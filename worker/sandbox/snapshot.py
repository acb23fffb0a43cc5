"""What stands at the few small files that other programs act on, so that a change can be seen and undone.

Cheap, since it is done before and after each command: a file whose status has not moved is not read again.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_BYTES = 256 * 1024
"""What is kept of a file; of a longer one only its status is known, so it can't be put back."""
FILES = 1000
"""In all whose content is kept.  Directories of editors and hooks have some ten."""
NAMES = 20_000
"""In all that are looked at after a command, which may have made any number: some 5 µs each."""
_DEPTH = 3

_OF_GIT = ("config", "config.worktree", "commondir")
_OF_WORKTREES = ("config.worktree", "commondir", "gitdir")


@dataclass(frozen=True)
class Seen:
    """`content`: of a regular file that is not too long, or where a link leads."""

    status: tuple[int, int, int, int, int]
    """Mode, size, mtime, ctime, inode."""
    content: bytes | None

    def same(self, other: "Seen") -> bool:
        """Whether nothing that matters has changed: a file may be written again as it was."""
        if self.status == other.status:
            return True
        return self.content is not None and (self.status[0], self.content) == (other.status[0], other.content)


Snapshot = dict[str, Seen]


def taken(places: Iterable[str], before: Snapshot, most: int = FILES) -> Snapshot:
    """The files of these places.  `before`: an earlier snapshot, whose contents are used again.  `most` is
    how many; of those above FILES that were not there before no content is read."""
    found: Snapshot = {}
    for place in places:
        for path in _files(place):
            if len(found) >= most:
                return found
            seen = _seen(path, before.get(path), reading=len(found) < FILES or path in before)
            if seen is not None:
                found[path] = seen
    return found


def of_git(directory: str) -> Iterator[str]:
    """The files of a repository that name programs or are some; samples are not run."""
    for name in _OF_GIT:
        yield f"{directory}/{name}"
    # The directories too: a link in the place of one leads elsewhere.
    yield f"{directory}/hooks"
    for name in _names(f"{directory}/hooks"):
        if not name.endswith(".sample"):
            yield f"{directory}/hooks/{name}"
    yield f"{directory}/modules"
    for module in _names(f"{directory}/modules"):
        yield f"{directory}/modules/{module}"
        yield from of_git(f"{directory}/modules/{module}")
    for tree in _names(f"{directory}/worktrees"):
        for name in _OF_WORKTREES:
            yield f"{directory}/worktrees/{tree}/{name}"


def _files(place: str) -> Iterator[str]:
    if place.endswith("/.git") or os.path.isfile(f"{place}/HEAD"):  # noqa: PTH113 - paths are texts here
        yield place
        yield from of_git(place)
    else:
        yield from _below(place, _DEPTH)


def _below(place: str, depth: int) -> Iterator[str]:
    yield place
    for name in _names(place) if depth else ():
        yield from _below(f"{place}/{name}", depth - 1)


def _names(directory: str) -> list[str]:
    try:
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            return []
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries)[:NAMES]
    except OSError:
        return []


def _seen(path: str, before: Seen | None, *, reading: bool) -> Seen | None:
    """None where nothing stands there.  Of a directory only that it is one, and which."""
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            return Seen((found.st_mode, 0, 0, 0, found.st_ino), b"")
        status = (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        if before is not None and before.status == status:
            return before
        if stat.S_ISLNK(found.st_mode):
            return Seen(status, os.fsencode(Path(path).readlink()))
        if not reading or not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES:
            return Seen(status, None)
        return Seen(status, read(path))
    except OSError:
        return None


def read(path: str, most: int = FILE_BYTES) -> bytes:
    """The beginning of a file that is no link.  Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        pieces = bytearray()
        while len(pieces) < most and (piece := os.read(fd, most - len(pieces))):
            pieces += piece
        return bytes(pieces)
    finally:
        os.close(fd)
