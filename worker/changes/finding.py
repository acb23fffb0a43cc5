"""Compare a view of the workspace, which a command has had for its own, with the workspace itself.

A view is a copy, or the upper directory of an overlay.  In the latter a character device with the number 0
stands for something that was deleted, and a directory that is marked as opaque for one that was made anew;
what isn't there is as it was.  What is hidden or protected is passed over: nothing there may have changed.

Whatever a command has closed to its owner is opened in the view, after its mode was noted.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from worker.changes.states import Change, Kind, State, state_of

_OPAQUE = "user.overlay.opaque"
_CHUNK = 1024 * 1024


class StoppedError(Exception):
    """The call was cancelled."""


@dataclass(frozen=True)
class View:
    """`place`: the copy's root, or the layer's.  `closed`: paths, relative, that nothing may have changed.
    `whole_since`: of a copy, when it was made, in nanoseconds."""

    workspace: bytes
    place: bytes
    layered: bool
    closed: frozenset[bytes]
    cancelled: Callable[[], bool]
    whole_since: int = 0

    def before(self, path: bytes) -> bytes:
        return b"%b/%b" % (self.workspace, path)

    def after(self, path: bytes) -> bytes:
        return b"%b/%b" % (self.place, path)

    def changes(self) -> Iterator[Change]:
        """Each path once, what is above before what is below.  Raises OSError and StoppedError."""
        yield from self._below(b"", merged=self.layered)

    def _below(self, path: bytes, *, merged: bool) -> Iterator[Change]:
        """`merged`: what the view doesn't name is as in the workspace."""
        prefix = path + b"/" if path else b""
        names = _names(self.after(path))
        for name in names:
            inner = prefix + name
            if inner not in self.closed:
                yield from self._at(inner, merged=merged)
        if not merged:
            there = set(names)
            for name in _names(self.before(path), missing=True):
                if name not in there:
                    yield from self._gone(prefix + name)

    def _at(self, path: bytes, *, merged: bool) -> Iterator[Change]:
        """What the view names at this path."""
        if self.cancelled():
            raise StoppedError
        after, before = state_of(self.after(path)), state_of(self.before(path))
        if after is None:
            return
        if after.kind is Kind.OTHER:
            # A socket means nothing without its process, and devices can't be made.
            if _is_whiteout(self.after(path)) or (before is not None and before.kind is not Kind.OTHER):
                yield from self._gone(path)
            return
        if after.kind in (Kind.FILE, Kind.DIRECTORY):
            opened(self.after(path), after)
        if before is None or before.kind is not after.kind:
            if before is not None and before.kind is Kind.DIRECTORY:
                yield from self._contents_gone(path)
            yield Change(path, before, after)
        elif (change := self._differing(path, before, after)) is not None:
            yield change
        if after.kind is Kind.DIRECTORY:
            there = before is not None and before.kind is Kind.DIRECTORY
            if merged and there and not _is_opaque(self.after(path)):
                yield from self._below(path, merged=True)
            else:
                yield from self._below(path, merged=False)

    def _differing(self, path: bytes, before: State, after: State) -> Change | None:
        """Where both are of one kind."""
        same = True
        match after.kind:
            case Kind.FILE:
                if self.whole_since and after.changed < self.whole_since:
                    return None
                same = self._same_content(path, before, after)
            case Kind.LINK:
                return None if before.target == after.target else Change(path, before, after)
            case _:
                pass
        return None if same and before.mode == after.mode else Change(path, before, after, same)

    def _same_content(self, path: bytes, before: State, after: State) -> bool:
        if before.size != after.size:
            return False
        try:
            one = _reading(self.before(path))
        except PermissionError:  # the command has made it readable first, so that it is another one now
            return False
        with os.fdopen(one, "rb", 0) as old, os.fdopen(_reading(self.after(path)), "rb", 0) as new:
            while chunk := old.read(_CHUNK):
                if self.cancelled():
                    raise StoppedError
                if chunk != new.read(_CHUNK):
                    return False
        return True

    def _gone(self, path: bytes) -> Iterator[Change]:
        """It was there, and isn't any more."""
        before = state_of(self.before(path))
        if before is None or path in self.closed or (before.kind is Kind.OTHER and not self.layered):
            return  # a copy has no sockets
        yield Change(path, before, None)
        if before.kind is Kind.DIRECTORY:
            yield from self._contents_gone(path)

    def _contents_gone(self, path: bytes) -> Iterator[Change]:
        if self.cancelled():
            raise StoppedError
        for name in _names(self.before(path)):
            yield from self._gone(b"%b/%b" % (path, name))


def opened(path: bytes, state: State) -> None:
    """Let its owner read and change it, in a view that nobody else has."""
    wanted = 0o700 if state.kind is Kind.DIRECTORY else 0o400
    if state.mode & wanted != wanted:
        os.chmod(path, state.mode | wanted)


def _reading(path: bytes) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _names(path: bytes, *, missing: bool = False) -> list[bytes]:
    """Sorted.  `missing`: nothing where there is no directory."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        if missing:
            return []
        raise


def _is_whiteout(path: bytes) -> bool:
    found = os.lstat(path)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_opaque(path: bytes) -> bool:
    with suppress(OSError):
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
    return False
