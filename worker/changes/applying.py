"""Do to the workspace what a dry run did to its view of it: all that was noted, or a word of what stops it.

First every place is looked at: what is not as it was when the changes were found stops all of it.  Then each
file is made whole beside its place and renamed over it, and what is to go goes last.  Directories are held
by descriptors and no link is followed, so that nobody who may write in the workspace can lead a write astray.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from worker.changes.copying import content
from worker.changes.states import Change, Kind, State, parents, state_of
from worker.sandbox import kernel


class ChangedError(Exception):
    """The workspace isn't as it was; `paths`: where.  Nothing has been done."""

    def __init__(self, paths: list[bytes]) -> None:
        super().__init__(len(paths))
        self.paths = paths


class HalfError(Exception):
    """It stopped in the middle.  `done`: the changes that are in the workspace; `at`: where; `why`."""

    def __init__(self, done: list[Change], at: bytes, why: str) -> None:
        super().__init__(why)
        self.done = done
        self.at = at
        self.why = why


class Applier:
    """`view`: the copy's root, or the layer's."""

    def __init__(self, workspace: bytes, view: bytes, changes: Iterable[Change]) -> None:
        self._root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._view = view
        self._changes = list(changes)
        self._made = {
            one.path for one in self._changes if one.after is not None and one.after.kind is Kind.DIRECTORY
        }
        self._opened: dict[bytes, int] = {}
        """Directories that had to be opened to their owner, and the modes that they had."""
        self._twins: dict[tuple[int, int], bytes] = {}
        """Files of the view that have several names, and the first of these that is in the workspace."""

    def close(self) -> None:
        os.close(self._root)

    def check(self) -> None:
        """Raises ChangedError, and OSError where it can't be looked at."""
        gone = {change.path for change in self._changes if change.before and not _stays(change)}
        found = [change.path for change in self._changes if not self._is_still(change, gone)]
        if found:
            raise ChangedError(found)

    def apply(self) -> None:
        """Raises HalfError."""
        done: list[Change] = []
        for change in self._in_order():
            try:
                self._do(change)
            except OSError as error:
                self._restore_modes({})
                raise HalfError(done, change.path, error.strerror or str(error)) from error
            done.append(change)
        try:
            self._restore_modes({one.path: one.after for one in self._changes if one.after})
        except OSError as error:
            raise HalfError(done, b".", f"the mode of a directory: {error.strerror}") from error

    def _is_still(self, change: Change, gone: set[bytes]) -> bool:
        try:
            with self._parent(change.path) as (parent, name):
                now = state_of(name, parent)
                if change.before is None:
                    return now is None
                if not change.before.is_still(now):
                    return False
                if change.before.kind is not Kind.DIRECTORY or _stays(change):
                    return True
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
                try:
                    names = map(os.fsencode, os.listdir(fd))
                    return all(b"%b/%b" % (change.path, inner) in gone for inner in names)
                finally:
                    os.close(fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                # The directory around it: it is to be made, unless the path led to something before.
                return change.before is None and self._is_new(change.path)
            raise

    def _is_new(self, path: bytes) -> bool:
        """Whether a directory around this path is one of the changes."""
        return any(above in self._made for above in parents(path))

    def _in_order(self) -> Iterator[Change]:
        """What takes the place of a directory comes after what was in that; else what goes is last."""
        making = [one for one in self._changes if one.after is not None]
        going = [one for one in self._changes if one.after is None]
        replaced = [
            one.path + b"/"
            for one in making
            if one.before is not None and one.before.kind is Kind.DIRECTORY and not _stays(one)
        ]
        early = [one for one in going if one.path.startswith(tuple(replaced))] if replaced else []
        yield from reversed(early)
        yield from making
        known = {one.path for one in early}
        yield from (one for one in reversed(going) if one.path not in known)

    def _do(self, change: Change) -> None:
        with self._parent(change.path) as (parent, name):
            try:
                self._put(change, parent, name)
            except PermissionError:
                if not self._open_up(change.path.rpartition(b"/")[0], parent):
                    raise
                self._put(change, parent, name)

    def _put(self, change: Change, parent: int, name: bytes) -> None:
        before, after = change.before, change.after
        if after is None:
            if before is not None and before.kind is Kind.DIRECTORY:
                os.rmdir(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)
            return
        if before is not None and before.kind is Kind.DIRECTORY and not _stays(change):
            os.rmdir(name, dir_fd=parent)
        match after.kind:
            case Kind.DIRECTORY:
                if _stays(change):
                    self._opened[change.path] = after.mode  # at the end: it may be closed
                    return
                if before is not None:
                    os.unlink(name, dir_fd=parent)
                os.mkdir(name, 0o700, dir_fd=parent)
                self._opened[change.path] = after.mode
            case Kind.FILE if change.same:
                _set_mode(parent, name, after)
            case Kind.FILE | Kind.LINK | Kind.PIPE:
                self._beside(change.path, after, parent, name)
            case Kind.OTHER:
                pass

    def _beside(self, path: bytes, after: State, parent: int, name: bytes) -> None:
        """Made whole under another name, then renamed."""
        temporary = b".polier-" + os.urandom(8).hex().encode()
        try:
            match after.kind:
                case Kind.LINK:
                    os.symlink(after.target, temporary, dir_fd=parent)
                case Kind.PIPE:
                    os.mkfifo(temporary, 0o600, dir_fd=parent)
                    _set_mode(parent, temporary, after)
                case _:
                    self._file(path, after, parent, temporary)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise

    def _file(self, path: bytes, after: State, parent: int, temporary: bytes) -> None:
        twin = (after.device, after.inode)
        if after.links > 1 and twin in self._twins:
            with self._parent(self._twins[twin]) as (other, name):
                os.link(name, temporary, src_dir_fd=other, dst_dir_fd=parent, follow_symlinks=False)
            return
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        reading = os.open(b"%b/%b" % (self._view, path), os.O_RDONLY | os.O_NONBLOCK | flags)
        try:
            writing = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600, dir_fd=parent)
            try:
                content(reading, writing)
                os.fchmod(writing, after.mode)
                os.utime(writing, ns=(after.modified, after.modified))
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        self._twins[twin] = path

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """A descriptor of the directory around it, and its name there."""
        above, _, name = path.rpartition(b"/")
        place = kernel.open_beneath(self._root, os.fsdecode(above) or ".")
        try:
            fd = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        finally:
            os.close(place)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _open_up(self, path: bytes, directory: int) -> bool:
        """Let ourselves write in a directory of ours that is closed.  Whether that may help."""
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or found.st_mode & 0o300 == 0o300 or not path:
            return False
        self._opened.setdefault(path, found.st_mode & 0o7777)
        os.chmod(f"/proc/self/fd/{directory}", (found.st_mode & 0o7777) | 0o700)
        return True

    def _restore_modes(self, wanted: dict[bytes, State]) -> None:
        """The deepest first, since one above may be closed to us then."""
        for path, mode in sorted(self._opened.items(), reverse=True):
            after = wanted.get(path)
            with suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (parent, name):
                found = state_of(name, parent)
                if found is not None and found.kind is Kind.DIRECTORY:
                    _set_mode(parent, name, found, after.mode if after is not None else mode)


def _stays(change: Change) -> bool:
    """Whether a directory is one before and after."""
    directories = (change.before, change.after)
    return all(state is not None and state.kind is Kind.DIRECTORY for state in directories)


def _set_mode(parent: int, name: bytes, state: State, mode: int | None = None) -> None:
    """Of what is no link; looked at once more, since somebody may have put one there."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{place}", state.mode if mode is None else mode)
    finally:
        os.close(place)
