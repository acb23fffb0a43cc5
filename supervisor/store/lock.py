"""One writer per conversation: a lock of the operating system, which a dead owner can't keep.

The file's content names the owner for whoever is refused; the lock itself is the kernel's.  A process that
is stopped is alive and keeps its lock.
"""

import fcntl
import os
import socket
from pathlib import Path

import msgspec
from msgspec import Struct

from supervisor.exits import StopError
from supervisor.store.disk import StoreError, now, open_private


class Owner(Struct, frozen=True):
    """Who holds a conversation.  `since`: when the lock was taken."""

    pid: int
    host: str
    since: str


class LockedError(StopError):
    """Another process works on this conversation.  `owner`: None where it can't be read."""

    def __init__(self, id_: str, owner: Owner | None) -> None:
        who = "another process" if owner is None else _described(owner)
        super().__init__(
            f"conversation {id_} is in use by {who}; go on there, or go on with a copy: agent --fork {id_}"
        )
        self.owner = owner


class Lock:
    """The lock of a conversation, held until `release` or the end of the process."""

    def __init__(self, path: Path, id_: str) -> None:
        """Take it, or raise LockedError or StoreError."""
        descriptor = open_private(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = Owner(os.getpid(), socket.gethostname(), now())
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(owner) + b"\n", 0)
        except BlockingIOError as error:
            held_by = _owner(descriptor)
            os.close(descriptor)
            raise LockedError(id_, held_by) from error
        except OSError as error:
            os.close(descriptor)
            raise StoreError(path, error) from error
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _owner(descriptor: int) -> Owner | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return None


def _described(owner: Owner) -> str:
    here = owner.host == socket.gethostname()
    place = "" if here else f" on {owner.host}"
    stopped = (
        f", which is stopped (kill -CONT {owner.pid} wakes it)" if here and _is_stopped(owner.pid) else ""
    )
    return f"process {owner.pid}{place} since {owner.since}{stopped}"


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()[0] in "tT"
    except OSError:
        return False
