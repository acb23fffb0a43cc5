"""All files below a directory, in order of name, through descriptors: no link is followed, nothing is opened.

What `.gitignore` leaves out is left out, and so is `.git`.  What can't be read is remembered, so that nobody
takes silence for "nothing there".
"""

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.policy import SandboxPolicy
from worker.call import ToolError
from worker.files.cancelled import go_on
from worker.files.ignoring import Rules, ignored, with_rules_of
from worker.files.names import decoded, encoded, shown
from worker.files.paths import Access, Place, in_words, named, resolve
from worker.files.regular import kind

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH_MAX = 200
"""Directories that are open at once, one for each level."""
_UNREAD_NAMED = 5


@dataclass(frozen=True)
class Entry:
    """Something that is no directory.  `parent` may be used until the next one is asked for."""

    path: bytes
    parent: int
    name: bytes
    mode: int

    @property
    def regular(self) -> bool:
        return stat.S_ISREG(self.mode)

    def described(self) -> str:
        """The path for a list: of a link with its target, of other odd things with their kind."""
        if self.regular:
            return shown(self.path)
        if not stat.S_ISLNK(self.mode):
            return f"{shown(self.path)} ({kind(self.mode)})"
        try:
            return f"{shown(self.path)} -> {shown(os.readlink(self.name, dir_fd=self.parent))}"
        except OSError:
            return shown(self.path)


@dataclass
class Unread:
    """Directories and files that could not be read, with the reason."""

    paths: list[tuple[bytes, str]] = field(default_factory=list)

    def add(self, path: bytes, error: OSError) -> None:
        self.paths.append((path, (error.strerror or str(error)).lower()))

    def note(self) -> list[str]:
        """One line that names them; none where there are none."""
        if not self.paths:
            return []
        named = ", ".join(f"{shown(path)} ({why})" for path, why in self.paths[:_UNREAD_NAMED])
        more = len(self.paths) - _UNREAD_NAMED
        return [f"not read: {named}" + (f" and {more} more" if more > 0 else "")]


@dataclass(frozen=True)
class Top:
    """Where a walk begins: its open directory, the path that results put in front, the rules from above."""

    fd: int
    prefix: bytes
    rules: Rules | None


@dataclass
class _Level:
    fd: int
    path: bytes
    names: Iterator[tuple[bytes, int]]
    rules: Rules | None


def open_top(policy: SandboxPolicy, place: Place) -> Top:
    """The directory at the place.  Raises ToolError where there is none.  Whoever asks closes `fd`."""
    if place.status is None:
        raise ToolError(f"{place.shown}: no such directory")
    if not stat.S_ISDIR(place.status.st_mode):
        raise ToolError(f"{place.shown} is {kind(place.status.st_mode)}, not a directory")
    with in_words(place.shown):
        fd = os.open(place.name, _OPEN, dir_fd=place.parent)
    name = named(policy, place.real)
    if name == b".":
        return Top(fd, b"", None)
    prefix = name.rstrip(b"/") + b"/"
    if name.startswith(b"/"):
        return Top(fd, prefix, None)
    return Top(fd, prefix, _inherited(policy, encoded(policy.workspace), prefix))


def walk(top: Top, unread: Unread, cancelled: threading.Event) -> Iterator[Entry]:
    """Each entry once, a directory's in order of name.  Raises CancelledError.  `top.fd` stays open."""
    stack = [_entered(os.dup(top.fd), top.prefix, top.rules, unread)]
    try:
        while stack:
            level = stack[-1]
            found = next(level.names, None)
            if found is None:
                os.close(stack.pop().fd)
                continue
            go_on(cancelled)
            name, mode = found
            path = level.path + name
            directory = stat.S_ISDIR(mode)
            if name == b".git" or ignored(level.rules, path, directory=directory):
                continue
            if not directory:
                yield Entry(path, level.fd, name, mode)
                continue
            try:
                if len(stack) == _DEPTH_MAX:
                    raise OSError(0, "too deep")
                fd = os.open(name, _OPEN, dir_fd=level.fd)
            except OSError as error:
                unread.add(path, error)
                continue
            stack.append(_entered(fd, path + b"/", level.rules, unread))
    finally:
        for level in stack:
            os.close(level.fd)


def _entered(fd: int, path: bytes, above: Rules | None, unread: Unread) -> _Level:
    names: list[tuple[bytes, int]] = []
    try:
        with os.scandir(fd) as entries:
            names += [(os.fsencode(entry.name), _mode(entry)) for entry in entries]
    except OSError as error:
        unread.add(path.rstrip(b"/") or b".", error)
    names.sort()
    return _Level(fd, path, iter(names), with_rules_of(above, fd, path))


def _mode(entry: os.DirEntry[str]) -> int:
    """The kind of an entry; the usual ones without asking the kernel once more."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    try:
        return entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return stat.S_IFIFO  # Gone meanwhile, or not to be looked at: nothing that is opened.


def _inherited(policy: SandboxPolicy, workspace: bytes, prefix: bytes) -> Rules | None:
    """The rules from the workspace down to the directory above the top.  None where they ignore the top
    itself: who names an ignored directory wants to see it."""
    rules: Rules | None = None
    at = b""
    for part in prefix.rstrip(b"/").split(b"/"):
        try:
            place = resolve(policy, decoded(workspace + b"/" + at + b"."), Access.READ)
        except ToolError:
            return None
        with place:
            try:
                fd = os.open(place.name, _OPEN, dir_fd=place.parent)
            except OSError:
                return None
            try:
                rules = with_rules_of(rules, fd, at)
            finally:
                os.close(fd)
        if ignored(rules, at + part, directory=True):
            return None
        at += part + b"/"
    return rules
