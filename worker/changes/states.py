"""What stands at a path, and a change of it, as data; how the changes of a dry run are noted in a file.

Looked at without following links.  Owners and extended attributes are not compared: nothing inside the
sandbox can give a file away.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from enum import Enum

import msgspec
from msgspec import Struct


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    PIPE = "named pipe"
    OTHER = "special file"
    """A socket or a device."""


_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.LINK,
    stat.S_IFIFO: Kind.PIPE,
}


class State(Struct, frozen=True, array_like=True):
    """`target`: of a link.  `inode` and the times tell one content from the next."""

    kind: Kind
    mode: int
    size: int
    device: int
    inode: int
    modified: int
    changed: int
    """Nanoseconds, as are those of `modified`."""
    links: int
    target: bytes = b""

    def is_still(self, now: "State | None") -> bool:
        """Whether nobody has touched it.  Of a directory, what is in it counts for itself."""
        if now is None or now.kind is not self.kind or now.mode != self.mode:
            return False
        if self.kind is Kind.DIRECTORY:
            return (self.device, self.inode) == (now.device, now.inode)
        return self == now


class Change(Struct, frozen=True, array_like=True):
    """`path` is relative to the workspace.  No state: there is nothing.  `same`: the content is."""

    path: bytes
    before: State | None
    after: State | None
    same: bool = False


def state_of(path: bytes, directory: int | None = None) -> State | None:
    """What is there now.  Raises OSError where that can't be seen."""
    try:
        found = os.lstat(path) if directory is None else os.lstat(path, dir_fd=directory)
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), Kind.OTHER)
        target = os.readlink(path, dir_fd=directory) if kind is Kind.LINK else b""
    except (FileNotFoundError, NotADirectoryError):
        return None
    return State(
        kind,
        stat.S_IMODE(found.st_mode),
        found.st_size,
        found.st_dev,
        found.st_ino,
        found.st_mtime_ns,
        found.st_ctime_ns,
        # How many names a directory has says nothing.
        found.st_nlink if kind is Kind.FILE else 1,
        target,
    )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Change])


def note(path: str, changes: Iterable[Change]) -> None:
    """Write them down.  Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(_encoder.encode(list(changes)))


def noted(path: str) -> list[Change]:
    """Raises OSError, or ValueError for what no worker of ours wrote."""
    with open(path, "rb") as file:
        return _decoder.decode(file.read())


def parents(path: bytes) -> Iterator[bytes]:
    """Those of a relative path, the nearest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path
