"""From the path that a model wrote to a place that may be touched.

A path is walked one component at a time from a root that the policy names, through descriptors that are
never opened through a link; links are read and walked by the same rules.  So what comes out is a directory's
descriptor and a name in it, not a string that was checked: nobody can swap a part of it for a link between
check and use.  A link that stays inside a root works, absolute ones too, which is why the kernel's own
RESOLVE_BENEATH (it refuses those) is not used.  What is done with the place is not decided here.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from protocol.permission import Kind, Permission
from protocol.policy import OUTPUT_MOUNT, Mode, SandboxPolicy
from protocol.wire import Denial, Status
from worker.call import ToolError
from worker.files.guarded import refuse_reading, refuse_writing
from worker.files.names import encoded, meant, shown

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_MAX = 4095
"""Bytes of the longest path that the kernel takes."""
_LINKS_MAX = 40
"""As many as the kernel follows."""
_MOUNT = encoded(OUTPUT_MOUNT)


class Access(Enum):
    """What the place is wanted for."""

    READ = "read"
    WRITE = "written"


@dataclass(frozen=True)
class Place:
    """A name in an open directory.  The name is no link, `.` for a root itself; `real` is its whole path.

    `status` is what stands there, None where nothing does.  Close it, or use it in a `with`.
    """

    parent: int
    name: bytes
    real: bytes
    shown: str
    status: os.stat_result | None

    def __enter__(self) -> "Place":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.parent)


@dataclass
class _Walk:
    """One resolution: what may be touched, and how many links are left."""

    policy: SandboxPolicy
    access: Access
    make_parents: bool
    asked: bytes
    links: int = _LINKS_MAX


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Turns an OSError from within into a ToolError that names `what`."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{what}: {_reason(error)}") from error


def resolve(policy: SandboxPolicy, path: str, access: Access, *, make_parents: bool = False) -> Place:
    """The place that the path means.  A name that exists as it is written wins over the quoted form.

    Raises ToolError: outside of the roots (REFUSED), a missing parent (unless they are made), a loop.
    """
    if access is Access.WRITE and policy.mode is Mode.READ_ONLY:
        raise ToolError("nothing may be written here: the sandbox is read-only", Status.REFUSED)
    try:
        literal = encoded(path)
    except UnicodeEncodeError as error:
        raise ToolError(f"the path {path!r} is no valid text") from error
    quoted = meant(path)
    if quoted is not None:
        try:
            place = _resolved(_Walk(policy, access, False, literal))
        except ToolError:
            return _resolved(_Walk(policy, access, make_parents, quoted))
        if place.status is not None:
            return place
        os.close(place.parent)
    return _resolved(_Walk(policy, access, make_parents, literal if quoted is None else quoted))


def named(policy: SandboxPolicy, real: bytes) -> bytes:
    """A real path by the name that results give it: relative to the workspace where it lies in it."""
    within = _beneath(real, encoded(policy.workspace))
    if within is not None:
        return within or b"."
    if policy.output and (within := _beneath(real, encoded(policy.output))) is not None:
        return _joined(_MOUNT, within) if within else _MOUNT
    return real


def _resolved(walk: _Walk) -> Place:
    asked = walk.asked
    if not asked:
        raise ToolError("the path is empty")
    if len(asked) > _PATH_MAX:
        begun = shown(asked[:80])
        raise ToolError(f"the path that begins with {begun} has {len(asked):,} bytes; at most {_PATH_MAX} go")
    if b"\0" in asked:
        raise ToolError(f"the path {shown(asked)} holds a NUL byte; no file can have such a name")
    if asked.endswith(b"/") and asked.strip(b"/") and walk.access is Access.WRITE:
        raise ToolError(f"{shown(asked)} ends in a slash, so it names a directory; only files are written")
    _no_home(walk)
    target = asked if asked.startswith(b"/") else _joined(encoded(walk.policy.workspace), asked)
    output = _beneath(target, _MOUNT)
    if output is not None and walk.policy.output:
        if walk.access is Access.WRITE:
            raise ToolError(f"{shown(asked)}: whole outputs may be read, not written", Status.REFUSED)
        target = _joined(encoded(walk.policy.output), output)
    with in_words(shown(asked)):
        while True:
            root = _root_of(walk, target)
            if root is None:
                target = os.path.realpath(target)
                root = _root_of(walk, target)
            if root is None:
                raise _refused(walk, target)
            found = _from_root(walk, root, target)
            if isinstance(found, Place):
                return _allowed(walk, found)
            target = found
            _count_link(walk)


def _allowed(walk: _Walk, place: Place) -> Place:
    """The place, unless it is closed within its root.  Raises ToolError, and closes it then."""
    try:
        _guard(walk, place.real)
    except ToolError:
        os.close(place.parent)
        raise
    return place


def _guard(walk: _Walk, real: bytes) -> None:
    judge = refuse_reading if walk.access is Access.READ else refuse_writing
    judge(walk.policy, real, walk.asked)


def _no_home(walk: _Walk) -> None:
    """Raises ToolError for `~/x`, which only a shell understands, unless the workspace really has a `~`."""
    if walk.asked.partition(b"/")[0] != b"~" or os.path.lexists(encoded(walk.policy.workspace) + b"/~"):
        return
    raise ToolError(
        f"{shown(walk.asked)}: `~` stands for no directory here; "
        "give the path relative to the workspace, or absolute"
    )


def _from_root(walk: _Walk, root: bytes, target: bytes) -> Place | bytes:
    """The place, or the absolute path to go on with where the walk leaves the root."""
    within = _beneath(target, root) or b""
    try:
        top = os.open(root, _DIRECTORY)
    except NotADirectoryError:
        if within:
            raise
        parent = os.open(_parent(root), _DIRECTORY)
        return _placed(walk, parent, root.rpartition(b"/")[2], root)
    return _descend(walk, root, top, deque(_parts(within)))


def _descend(walk: _Walk, root: bytes, top: int, pending: deque[bytes]) -> Place | bytes:
    fds, trail = [top], [root]
    kept = -1
    try:
        while pending:
            name = pending.popleft()
            if name == b"..":
                if len(fds) == 1:
                    return _joined(_parent(root), *pending)
                os.close(fds.pop())
                trail.pop()
                continue
            real = _joined(trail[-1], name)
            status = _status(walk, fds[-1], name, real, last=not pending)
            if status is not None and stat.S_ISLNK(status.st_mode):
                link = os.readlink(name, dir_fd=fds[-1])
                _count_link(walk)
                if link.startswith(b"/"):
                    return _joined(link, *pending)
                pending.extendleft(reversed(_parts(link)))
            elif pending:
                fds.append(os.open(name, _DIRECTORY, dir_fd=fds[-1]))
                trail.append(real)
            else:
                kept = fds[-1]
                return Place(kept, name, real, shown(named(walk.policy, real)), status)
        kept = fds[-1]
        return Place(kept, b".", trail[-1], shown(named(walk.policy, trail[-1])), os.fstat(kept))
    finally:
        for fd in fds:
            if fd != kept:
                os.close(fd)


def _status(walk: _Walk, parent: int, name: bytes, real: bytes, *, last: bool) -> os.stat_result | None:
    """What stands at the name, itself and not what a link leads to; makes a directory where one is wanted."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if last:
            return None
        if not walk.make_parents:
            raise
    _guard(walk, real)
    with suppress(FileExistsError):  # Another call was faster.
        os.mkdir(name, dir_fd=parent)
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def _placed(walk: _Walk, parent: int, name: bytes, real: bytes) -> Place:
    try:
        return Place(parent, name, real, shown(named(walk.policy, real)), os.lstat(name, dir_fd=parent))
    except OSError:
        os.close(parent)
        raise


def _count_link(walk: _Walk) -> None:
    walk.links -= 1
    if walk.links < 0:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _roots(walk: _Walk) -> list[bytes]:
    policy = walk.policy
    roots = [policy.workspace, policy.tmp, *policy.writable]
    if walk.access is Access.READ:
        roots += [policy.output, *policy.opened]
    if policy.mode is Mode.UNCONFINED:
        roots.append("/")
    return [encoded(root) for root in roots if root]


def _root_of(walk: _Walk, target: bytes) -> bytes | None:
    """The first root that the path lies in by its letters; the walk finds out whether it really does."""
    return next((root for root in _roots(walk) if _beneath(target, root) is not None), None)


def _beneath(path: bytes, root: bytes) -> bytes | None:
    """The path relative to the root, empty for the root itself; None where it lies elsewhere."""
    if path == root:
        return b""
    prefix = root if root.endswith(b"/") else root + b"/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def _joined(first: bytes, *rest: bytes) -> bytes:
    return b"/".join((first.rstrip(b"/"), *rest)) if rest else first


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"


def _parts(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _refused(walk: _Walk, real: bytes) -> ToolError:
    policy = walk.policy
    places = [policy.workspace, policy.tmp, *policy.writable]
    if walk.access is Access.READ:
        places += [*policy.opened, OUTPUT_MOUNT if policy.output else ""]
    may = ", ".join(shown(encoded(place)) for place in places if place)
    leads = "" if real == walk.asked else f" leads to {shown(real)}, which"
    word = "read" if walk.access is Access.READ else "write"
    permission = Permission(Kind(word), real.decode(errors="backslashreplace"))
    return ToolError(
        f"{shown(walk.asked)}{leads} may not be {walk.access.value}; what may be is in: {may}. "
        f'If it is really needed, run_command can ask the user for it with needs=["{permission}"].',
        Status.REFUSED,
        Denial(f"{word} {shown(real)} (outside the workspace)", permission),
    )


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "no such file or directory"
        case errno.EACCES | errno.EPERM:
            return "permission denied"
        case errno.ENOTDIR:
            return "a part of the path is a file, not a directory"
        case errno.ELOOP:
            return "too many links, or links in a circle"
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full"
        case errno.EROFS:
            return "the file system is read-only"
        case errno.ENAMETOOLONG:
            return "the name is too long"
        case _:
            return (error.strerror or str(error)).lower()
