"""A directory as it was, what differs from that, and the way back.  It restores in place: a sandbox may have
parts of it mounted, and what is removed and made again would lose that."""

import os
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One name: everything about it that an attack could change."""

    mode: int
    owner: tuple[int, int]
    changed_ns: int
    content: bytes
    attributes: tuple[str, ...]

    @classmethod
    def of(cls, path: Path) -> "Entry":
        found = path.lstat()
        content = b""
        if stat.S_ISREG(found.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(found.st_mode):
            content = os.fsencode(os.readlink(path))
        # A directory's own time changes with every restored name in it, and tells nothing more.
        when = found.st_mtime_ns if stat.S_ISREG(found.st_mode) else 0
        attributes = tuple(os.listxattr(path, follow_symlinks=False))
        return cls(found.st_mode, (found.st_uid, found.st_gid), when, content, attributes)

    def equals(self, other: "Entry", *, times: bool) -> bool:
        return self == (other if times else replace(other, changed_ns=self.changed_ns))


class Tree:
    """`root` as it is now.  `without`: names in it that are nobody's business."""

    def __init__(self, root: Path, without: tuple[str, ...] = ()) -> None:
        self.root = root
        self._without = without
        self._was = self._entries()

    def _entries(self) -> dict[str, Entry]:
        if not self.root.is_dir():
            return {}
        found: dict[str, Entry] = {".": Entry.of(self.root)}
        for directory, subdirectories, files in os.walk(self.root):
            place = Path(directory)
            if place == self.root:
                subdirectories[:] = [name for name in subdirectories if name not in self._without]
            for name in (*subdirectories, *files):
                if place != self.root or name not in self._without:
                    found[str((place / name).relative_to(self.root))] = Entry.of(place / name)
        return found

    def changes(self, *, times: bool = True) -> list[str]:
        """Names that were added, removed or changed, with what became of them.  Without `times` what was
        put back is as it was."""
        now = self._entries()
        told = [f"{name} is new" for name in sorted(now.keys() - self._was.keys())]
        told += [f"{name} is gone" for name in sorted(self._was.keys() - now.keys())]
        both = sorted(now.keys() & self._was.keys())
        told += [f"{name} is changed" for name in both if not now[name].equals(self._was[name], times=times)]
        return told

    def restore(self) -> None:
        now = self._entries()
        for name in sorted(now.keys() - self._was.keys(), reverse=True):
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for name in sorted(self._was):
            if now.get(name) != self._was[name]:
                self._put_back(self.root / name, self._was[name])

    def _put_back(self, path: Path, was: Entry) -> None:
        if stat.S_ISDIR(was.mode):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o700)
        elif stat.S_ISREG(was.mode):
            if path.is_symlink():
                path.unlink()
            if path.exists():
                path.chmod(0o600)
            path.write_bytes(was.content)
            for name in os.listxattr(path):
                if name not in was.attributes:
                    os.removexattr(path, name)
        elif stat.S_ISLNK(was.mode):
            path.unlink(missing_ok=True)
            path.symlink_to(os.fsdecode(was.content))
            return
        else:
            return  # a socket: whoever listens at it makes it
        found = path.stat()
        if (found.st_uid, found.st_gid) != was.owner:
            os.chown(path, *was.owner)
        os.chmod(path, stat.S_IMODE(was.mode))
        if was.changed_ns:
            os.utime(path, ns=(was.changed_ns, was.changed_ns))
