"""The native executor of a plan: a new root in memory, what the plan shows in it, and nothing else.

Called by a process in new user and mount namespaces that has a single thread.  Every place is found from a
descriptor and without following a link, so that nobody who may write in one of them can lead a mount astray.
Nothing is made on the machine's disk but places in the worker's own directories.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import assert_never

from worker.sandbox import kernel, namespaces
from worker.sandbox.plan import SHM_BYTES, Bind, Devices, Empty, Link, Overlay, Pin, Proc, Step, Tmpfs

_OLD, _NEW, _STAGE = "/old", "/new", "/stage"
"""While the plan is executed: the machine's root, the worker's, and what masks and layers are made from."""
_PLACES = ("/tmp", "/run", "/mnt", "/usr")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_OF_THE_MACHINE = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""Below /proc: they don't belong to the namespace, and root could write them."""
_SMALL_BYTES = 16 * 1024**2
"""Of the file systems that hold only places to mount on."""
_GONE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EACCES)
"""There is nothing (any more), or a link, or it is closed to this user anyway."""


class PlaceError(OSError):
    """A place that the policy names can't be shown; another policy may be had."""


def enter(steps: Iterable[Step], *, processes: int | None) -> None:
    """Execute a plan and make the result this process's root.  Raises OSError that names the step.

    `processes`: how many the PID namespace may hold of which this process is the first; None where it has
    none of its own, so that no new /proc can be had.
    """
    umask = os.umask(0o022)
    try:
        _Root(processes).build(steps)
    finally:
        os.umask(umask)


class _Root:
    def __init__(self, processes: int | None) -> None:
        self._processes = processes
        self._made: dict[str, bool] = {"/": True}
        """Targets so far, and whether places to mount on may be made in them."""
        self._late: list[int] = []
        """Mounts that become read-only at the end, when all places in them are made."""
        self._masks = 0

    def build(self, steps: Iterable[Step]) -> None:
        kernel.make_private("/")
        place = next(path for path in _PLACES if os.path.isdir(path))  # noqa: PTH112 - called at each birth
        kernel.mount("tmpfs", place, "tmpfs", kernel.NOSUID | kernel.NODEV, f"mode=755,size={_SMALL_BYTES}")
        os.mkdir(place + _OLD)  # noqa: PTH102
        kernel.pivot_root(place, place + _OLD)
        os.chdir("/")
        for directory in (_NEW, _STAGE):
            Path(directory).mkdir()
        kernel.mount("tmpfs", _NEW, "tmpfs", kernel.NOSUID | kernel.NODEV, f"mode=755,size={_SMALL_BYTES}")
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        self._old, self._new = os.open(_OLD, flags), os.open(_NEW, flags)
        for step in steps:
            try:
                self._take(step)
            except OSError as error:
                kind = PlaceError if isinstance(step, Bind | Pin | Empty | Overlay) else OSError
                raise kind(error.errno, f"{step.target}: {error.strerror or error}") from error
        for tree in self._late:
            kernel.restrict(tree, kernel.ATTR_READ_ONLY, all_below=False)
            os.close(tree)
        kernel.restrict(self._new, kernel.ATTR_READ_ONLY, all_below=False)
        os.fchdir(self._new)
        kernel.pivot_root(".", ".")
        kernel.detach(".")
        os.chdir("/")
        os.close(self._old)
        os.close(self._new)

    def _take(self, step: Step) -> None:
        match step:
            case Bind():
                self._bind(step)
            case Pin(target=target, writable=writable):
                self._pin(target, writable)
            case Empty():
                self._mask(step)
            case Tmpfs(target=target, size=size):
                self._fresh(target, "tmpfs", f"mode=1777,size={size}")
            case Overlay():
                self._overlay(step)
            case Proc(target=target):
                self._proc(target)
            case Devices(target=target):
                self._devices(target)
            case Link(target=target, to=to):
                os.symlink(to, target.lstrip("/"), dir_fd=self._new)
            case _:
                assert_never(step)

    def _bind(self, step: Bind) -> None:
        try:
            source = kernel.open_beneath(self._old, _relative(step.source))
        except OSError as error:
            if error.errno in _GONE and not step.needed:
                return
            raise
        attributes = kernel.ATTR_NOSUID | kernel.ATTR_NODEV
        self._attach(source, step.target, attributes | (0 if step.writable else kernel.ATTR_READ_ONLY))
        # In a directory of the machine nothing is made, but what is shown elsewhere too is the worker's own.
        self._made[step.target] = step.writable and step.source != step.target

    def _attach(self, source: int, target: str, attributes: int) -> None:
        """Show what `source` names at `target`; closes `source`."""
        try:
            directory = stat.S_ISDIR(os.fstat(source).st_mode)
            tree = kernel.copy_tree(source)
            try:
                kernel.restrict(tree, attributes)
                place = self._place(target, directory)
                try:
                    kernel.attach(tree, place)
                finally:
                    os.close(place)
            finally:
                os.close(tree)
        finally:
            os.close(source)

    def _pin(self, target: str, writable: bool) -> None:
        try:
            seen = kernel.open_beneath(self._new, _relative(target))
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        self._attach(seen, target, kernel.ATTR_NOSUID | (0 if writable else kernel.ATTR_READ_ONLY))
        self._made[target] = False

    def _mask(self, step: Empty) -> None:
        try:
            place = self._place(step.target, step.directory)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        self._masks += 1
        mask = Path(_STAGE, str(self._masks))
        if step.directory:
            mask.mkdir()
        else:
            mask.touch()
        source = os.open(mask, os.O_PATH | os.O_CLOEXEC)
        tree = kernel.copy_tree(source)
        os.close(source)
        kernel.attach(tree, place)
        os.close(place)
        self._late.append(tree)
        self._made[step.target] = step.directory

    def _fresh(self, target: str, kind: str, options: str, flags: int = kernel.NODEV) -> None:
        place = self._place(target, True)
        os.fchdir(place)
        os.close(place)
        kernel.mount(kind, ".", kind, kernel.NOSUID | flags, options)
        os.chdir("/")
        self._made[target] = True

    def _overlay(self, step: Overlay) -> None:
        """Its options are a text with separators, so its directories get names without any."""
        layer = PurePosixPath(step.upper).parent
        for name, source in (("lower", step.lower), ("layer", str(layer))):
            place, fd = Path(_STAGE, name), kernel.open_beneath(self._old, _relative(source))
            place.mkdir()
            tree = kernel.copy_tree(fd)
            target = os.open(place, os.O_PATH | os.O_CLOEXEC)
            kernel.attach(tree, target)
            for number in (fd, tree, target):
                os.close(number)
        names = [PurePosixPath(path).name for path in (step.upper, step.work)]
        for name in names:
            Path(_STAGE, "layer", name).mkdir(mode=0o700, exist_ok=True)
        upper, work = (f"{_STAGE}/layer/{name}" for name in names)
        options = f"lowerdir={_STAGE}/lower,upperdir={upper},workdir={work},userxattr"
        self._fresh(step.target, "overlay", options)
        self._made[step.target] = False

    def _proc(self, target: str) -> None:
        if self._processes is not None:
            self._fresh(target, "proc", "", kernel.NODEV | kernel.NOEXEC)
            namespaces.limit_pids(_NEW + target, self._processes)
        else:
            self._attach(
                kernel.open_beneath(self._old, "proc"), target, kernel.ATTR_NOSUID | kernel.ATTR_NODEV
            )
        self._made[target] = False
        for name in _OF_THE_MACHINE:
            self._pin(f"{target}/{name}", False)

    def _devices(self, target: str) -> None:
        self._fresh(target, "tmpfs", f"mode=755,size={_SMALL_BYTES}")
        for name in _DEVICES:
            try:
                source = kernel.open_beneath(self._old, f"dev/{name}")
            except FileNotFoundError:
                continue
            self._attach(source, f"{target}/{name}", kernel.ATTR_NOSUID)
        self._fresh(f"{target}/pts", "devpts", "newinstance,ptmxmode=0666,mode=620", kernel.NOEXEC)
        self._fresh(f"{target}/shm", "tmpfs", f"mode=1777,size={SHM_BYTES}")
        directory = kernel.open_beneath(self._new, _relative(target))
        for name, to in _DEVICE_LINKS.items():
            os.symlink(to, name, dir_fd=directory)
        self._late.append(directory)

    def _place(self, target: str, directory: bool) -> int:
        """The place to mount on, made where it is missing and may be made."""
        try:
            return kernel.open_beneath(self._new, _relative(target))
        except FileNotFoundError:
            if not self._may_make(target):
                raise
        parent, name = os.path.split(target)
        above = self._place(parent, True)
        try:
            if directory:
                os.mkdir(name, dir_fd=above)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=above))
        finally:
            os.close(above)
        return kernel.open_beneath(self._new, _relative(target))

    def _may_make(self, target: str) -> bool:
        around = PurePosixPath(target).parents
        return next(self._made[str(place)] for place in around if str(place) in self._made)


def _relative(path: str) -> str:
    return path.lstrip("/") or "."
