"""What a command did to files that other programs act on later: undone where no mount kept it from them.

With namespaces protected files are read-only, and what is left to look for is what did not exist before, and
what may be written by a grant.  Without namespaces a workspace can't have parts that are closed: then the
files are compared after each command, what was there is put back, and what came is taken away.  There is a
window while the command runs.  Everything is said in the result; nothing is lost, it lies in quarantine.
"""

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from protocol.policy import RUN_LATER, Mode, Rung, SandboxPolicy
from worker.sandbox.gitfiles import gitlinks, programs
from worker.sandbox.snapshot import Seen, Snapshot, of_git, read, taken

_INDEX_BYTES = 64 * 1024 * 1024
_LINKS = 64
"""New submodules whose repositories are looked at after each command."""
_LINES = 8
"""Changes that a result names."""


class Keeper:
    """Called before and after each command of a worker, from their threads; several may overlap."""

    def __init__(self, policy: SandboxPolicy, rung: Rung) -> None:
        self._policy = policy
        self._idle = policy.mode is not Mode.WORKSPACE_WRITE
        self._undoes = rung is not Rung.FULL
        self._git = f"{policy.workspace}/.git"
        self._git_is_kept = self._git in policy.protected or not os.path.lexists(self._git)
        self._lock = threading.Lock()
        self._running = 0
        self._kept: Snapshot = {}
        self._names: set[str] = set()
        self._index: tuple[int, int, int] | None = None
        self._links: dict[str, bool] = {}
        self._meanwhile: list[str] = []
        self._moved = 0

    def before(self, *, jobs_run: bool) -> None:
        """A command is about to start.  What changed since the last one is the user's work, but where jobs
        ran meanwhile: then what makes git run something is undone."""
        if self._idle:
            return
        with self._lock:
            self._running += 1
            if self._running > 1:
                return
            if self._undoes:
                if jobs_run and self._kept:
                    self._meanwhile += self._undone(only_programs=True)
                self._kept = taken(self._policy.protected, self._kept)
            self._names = self._present()
            self._index = self._index_status()

    def after(self) -> tuple[str, ...]:
        """It has ended: what was undone or is to be told, one line each."""
        if self._idle:
            return ()
        with self._lock:
            self._running = max(0, self._running - 1)
            lines = [*self._meanwhile, *(self._undone() if self._undoes else ())]
            lines += [*self._new_names(), *self._of_repositories()]
            self._meanwhile = []
        more = len(lines) - _LINES
        return (*lines[:_LINES], *([f"[and {more} more such changes]"] if more > 0 else []))

    def _undone(self, *, only_programs: bool = False) -> Iterator[str]:
        """Put back what was protected."""
        now = taken(self._policy.protected, self._kept)
        if now == self._kept:
            return
        for path, seen in self._kept.items():
            if stat.S_ISDIR(seen.status[0]) and (path not in now or now[path].status != seen.status):
                yield from self._directory_back(path, seen)
        now = taken(self._policy.protected, self._kept)
        for path, found in now.items():
            is_new = path not in self._kept and not stat.S_ISDIR(found.status[0])
            if is_new and (not only_programs or _for_git(None, found, path)):
                yield self._taken_away(path, "is new, and other programs would act on it")
        for path, seen in self._kept.items():
            current = now.get(path)
            if stat.S_ISDIR(seen.status[0]) or (current is not None and seen.same(current)):
                continue
            if not only_programs or (current is not None and _for_git(seen, current, path)):
                yield self._put_back(path, seen, there=current is not None)
        self._kept = taken(self._policy.protected, self._kept)

    def _directory_back(self, path: str, seen: Seen) -> Iterator[str]:
        """A directory that was moved away comes back, if it still lies beside."""
        beside = path.rpartition("/")[0]
        with contextlib.suppress(OSError), os.scandir(beside) as entries:
            for entry in entries:
                is_it = entry.path != path and entry.inode() == seen.status[4]
                if not is_it or not entry.is_dir(follow_symlinks=False):
                    continue
                if os.path.lexists(path):
                    yield self._taken_away(path, "stood in the place of another")
                Path(entry.path).rename(path)
                yield f"[protected: {self._shown(path)} had been moved away and is back]"
                return
        if os.path.lexists(path) and not stat.S_ISDIR(os.lstat(path).st_mode):
            yield self._taken_away(path, "stood in the place of a directory")

    def _put_back(self, path: str, seen: Seen, *, there: bool) -> str:
        name = self._shown(path)
        if seen.content is None:
            return f"[protected: {name} was changed and is too large to be put back; look at it]"
        moved = ""
        try:
            if there:
                moved = self._quarantined(path)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISLNK(seen.status[0]):
                Path(path).symlink_to(os.fsdecode(seen.content))
            else:
                _write(path, seen.content, stat.S_IMODE(seen.status[0]))
        except OSError as error:
            return f"[protected: {name} was changed and could not be put back ({error.strerror}); look at it]"
        kept = f"; the other version is in {moved}" if moved else ""
        return f"[protected: {name} was changed and has been put back{kept}]"

    def _taken_away(self, path: str, why: str) -> str:
        name = self._shown(path)
        try:
            return f"[protected: {name} {why}; it was moved to {self._quarantined(path)}]"
        except OSError as error:
            return f"[protected: {name} {why}; it could not be moved away ({error.strerror})]"

    def _quarantined(self, path: str) -> str:
        """Move it into the temporary directory; where it then lies.  Raises OSError."""
        self._moved += 1
        place = Path(self._policy.tmp or "/tmp", "quarantine", str(self._moved))
        place.mkdir(parents=True, exist_ok=True)
        target = place / Path(path).name
        try:
            Path(path).rename(target)
        except OSError:
            if Path(path).is_dir() and not Path(path).is_symlink():
                # On another disk a repository may be large: beside, under a name that nobody looks at.
                target = Path(f"{path}.quarantined-{os.getpid()}-{self._moved}")
                Path(path).rename(target)
            else:
                shutil.move(path, target)
        return str(target)

    def _present(self) -> set[str]:
        """Those of the names that exist by now."""
        top = self._policy.workspace
        with contextlib.suppress(OSError), os.scandir(top) as entries:
            names = {entry.name for entry in entries}
            return names.intersection(RUN_LATER)
        return set()

    def _new_names(self) -> Iterator[str]:
        now = self._present()
        for name in sorted(now - self._names):
            yield f"[new: {name}: other programs act on it later, unseen; tell the user that it was made]"
        self._names = now

    def _of_repositories(self) -> Iterator[str]:
        """Of repositories that are new, or that a grant lets be written: no program without the user."""
        if not self._git_is_kept or self._undoes or self._git not in self._policy.protected:
            yield from self._links_of_index()
        if self._git not in self._policy.protected and self._git not in self._policy.pinned:
            yield from self._disarmed(self._git)
        elif self._git in self._policy.pinned and self._leads_away(f"{self._git}/commondir"):
            yield self._taken_away(f"{self._git}/commondir", "leads git to another configuration")
        for link in list(self._links):
            if (directory := _directory_of(f"{self._policy.workspace}/{link}/.git")) is not None:
                yield from self._disarmed(directory)

    def _links_of_index(self) -> Iterator[str]:
        status = self._index_status()
        if status is None or status == self._index:
            return
        self._index = status
        try:
            links = gitlinks(read(f"{self._git}/index", _INDEX_BYTES))
        except OSError:
            return
        for link in links:
            known = link in self._links or f"{self._policy.workspace}/{link}/.git" in self._policy.protected
            if known or len(self._links) >= _LINKS:
                continue
            self._links[link] = True
            yield f"[new: {link} is now a submodule: its configuration counts for `git status`]"

    def _index_status(self) -> tuple[int, int, int] | None:
        try:
            found = os.lstat(f"{self._git}/index")
        except OSError:
            return None
        return (found.st_ctime_ns, found.st_ino, found.st_size)

    def _disarmed(self, directory: str) -> Iterator[str]:
        """Take away what a repository that this session made would run."""
        if not os.path.isdir(directory):  # noqa: PTH112 - paths are texts here
            return
        for path in of_git(directory):
            try:
                found = os.lstat(path)
            except OSError:
                continue
            name = path.rpartition("/")[2]
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
                continue
            if name.startswith("config"):
                keys = self._programs(path)
                if keys:
                    yield self._taken_away(path, f"names programs to run ({', '.join(keys[:3])})")
            elif name == "commondir" and "/worktrees/" not in path:
                if self._leads_away(path):
                    yield self._taken_away(path, "leads git to another configuration")
            elif name in ("hooks", "modules"):
                yield self._taken_away(path, "leads git elsewhere")
            elif "/hooks/" in path and (found.st_mode & 0o111 or stat.S_ISLNK(found.st_mode)):
                yield self._taken_away(path, "is a hook, which git would run")

    @staticmethod
    def _leads_away(path: str) -> bool:
        """Whether a `commondir` names another directory than its own."""
        try:
            return os.path.lexists(path) and read(path).strip() != b"."
        except OSError:
            return True

    @staticmethod
    def _programs(path: str) -> tuple[str, ...]:
        try:
            return programs(read(path).decode(errors="replace"))
        except OSError:
            return ("a link",)

    def _shown(self, path: str) -> str:
        return path.removeprefix(f"{self._policy.workspace}/")


def _for_git(before: Seen | None, now: Seen, path: str) -> bool:
    """Whether a change makes git run something that it didn't run before."""
    if "/.git/" not in path:
        return False
    if not path.rpartition("/")[2].startswith("config") or now.content is None:
        return True
    known = (
        () if before is None or before.content is None else programs(before.content.decode(errors="replace"))
    )
    return bool(set(programs(now.content.decode(errors="replace"))).difference(known))


def _directory_of(marker: str) -> str | None:
    """The repository's directory of a `.git`, which may be a file that names it."""
    if os.path.isdir(marker):  # noqa: PTH112 - paths are texts here
        return marker
    try:
        named = read(marker).decode(errors="surrogateescape")
    except OSError:
        return None
    if not named.startswith("gitdir:"):
        return None
    return os.path.normpath(os.path.join(marker.rpartition("/")[0], named[7:].strip()))  # noqa: PTH118


def _write(path: str, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fchmod(fd, mode)
    finally:
        os.close(fd)
