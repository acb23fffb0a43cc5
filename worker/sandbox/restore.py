"""What a command did to files that other programs act on later: undone where no mount kept it from them.

With namespaces protected files are read-only, and what is left to look for is what did not exist before, and
what may be written by a grant.  Without namespaces a workspace can't have parts that are closed: then the
files are compared after each command, what was there is put back, and what came is taken away.  There is a
window while the command runs.  Everything is said in the result; nothing is lost, it lies in quarantine.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from protocol.policy import RUN_LATER, Mode, Rung, SandboxPolicy
from worker.sandbox.gitfiles import gitlinks, programs
from worker.sandbox.quarantine import UNDONE_BY_NOBODY, Quarantine
from worker.sandbox.snapshot import FILES, NAMES, Seen, Snapshot, of_git, read, taken

_INDEX_BYTES = 64 * 1024 * 1024
_LINKS = 64
"""New submodules whose repositories are looked at after each command."""
_LINES = 8
"""Changes that a result names."""
_LOOKS = 5
"""At most so many times NAMES new files are taken away: some seconds."""


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
        self._quarantine = Quarantine(policy.workspace, policy.tmp)
        self._unseen = len(policy.protected)
        """The first of the protected places of which not all that was there is known."""
        self._leading: dict[str, str] = {}
        """Links at the top of the workspace, by path, that others follow: they can't be mounted over."""

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
                self._keep()
            self._names = self._present()
            self._leading = self._leading_links()
            self._index = self._index_status()

    def after(self) -> tuple[str, ...]:
        """It has ended: what was undone or is to be told, one line each."""
        if self._idle:
            return ()
        with self._lock:
            self._running = max(0, self._running - 1)
            lines = [*self._meanwhile, *self._links_back(), *(self._undone() if self._undoes else ())]
            lines += [*self._new_names(), *self._of_repositories()]
            self._meanwhile = []
        # What could not be undone is not to be lost among what was.
        lines.sort(key=lambda line: UNDONE_BY_NOBODY not in line)
        more = len(lines) - _LINES
        return (*lines[:_LINES], *([f"[and {more} more such changes]"] if more > 0 else []))

    def _undone(self, *, only_programs: bool = False) -> Iterator[str]:
        """Put back what was protected."""
        now = taken(self._policy.protected, self._kept, NAMES)
        if now == self._kept:
            return
        for path, seen in self._kept.items():
            if stat.S_ISDIR(seen.status[0]) and (path not in now or now[path].status != seen.status):
                yield from self._directory_back(path, seen)
        yield from self._without_new(only_programs=only_programs)
        now = taken(self._policy.protected, self._kept, NAMES)
        for path, seen in self._kept.items():
            current = now.get(path)
            if stat.S_ISDIR(seen.status[0]) or (current is not None and seen.same(current)):
                continue
            if not only_programs or (current is not None and _for_git(seen, current, path)):
                yield self._quarantine.put_back(path, seen, there=current is not None)
        self._keep()

    def _keep(self) -> None:
        self._kept = taken(self._policy.protected, self._kept)
        whole = len(self._kept) < FILES
        self._unseen = len(self._policy.protected) if whole else self._place(next(reversed(self._kept)))

    def _place(self, path: str) -> int:
        """The number of the protected place that a path belongs to."""
        places = enumerate(self._policy.protected)
        return next(number for number, place in places if path == place or path.startswith(f"{place}/"))

    def _without_new(self, *, only_programs: bool) -> Iterator[str]:
        """Take away what was not there; again, where there is more than one look takes in."""
        for _ in range(_LOOKS):
            now = taken(self._policy.protected, self._kept, NAMES)
            for path, found in now.items():
                if path in self._kept or stat.S_ISDIR(found.status[0]) or self._place(path) >= self._unseen:
                    continue
                if not only_programs or _for_git(None, found, path):
                    yield self._quarantine.take_away(path, "is new, and other programs would act on it")
            if len(now) < NAMES:
                return
        yield f"[protected: more new files than can be taken away{UNDONE_BY_NOBODY}]"

    def _leading_links(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in (".git", *RUN_LATER):
            with contextlib.suppress(OSError):  # most are no link, or not there
                found[f"{self._policy.workspace}/{name}"] = os.readlink(f"{self._policy.workspace}/{name}")  # noqa: PTH115
        return found

    def _links_back(self) -> Iterator[str]:
        """On every rung: nothing can be mounted on a link, so it can be replaced."""
        now = self._leading_links()
        for path, to in self._leading.items():
            if now.get(path) != to:
                if os.path.lexists(path):
                    yield self._quarantine.take_away(path, "stood in the place of a link")
                with contextlib.suppress(OSError):
                    Path(path).symlink_to(to)
                    yield f"[protected: the link {self._quarantine.shown(path)} is back]"

    def _directory_back(self, path: str, seen: Seen) -> Iterator[str]:
        """A directory that was moved away comes back, if it still lies beside."""
        beside = path.rpartition("/")[0]
        with contextlib.suppress(OSError), os.scandir(beside) as entries:
            for entry in entries:
                is_it = entry.path != path and entry.inode() == seen.status[4]
                if not is_it or not entry.is_dir(follow_symlinks=False):
                    continue
                if os.path.lexists(path):
                    yield self._quarantine.take_away(path, "stood in the place of another")
                Path(entry.path).rename(path)
                yield f"[protected: {self._quarantine.shown(path)} had been moved away and is back]"
                return
        if os.path.lexists(path) and not stat.S_ISDIR(os.lstat(path).st_mode):
            yield self._quarantine.take_away(path, "stood in the place of a directory")

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
        if self._git in self._leading:
            pass  # it was there before, and what it leads to is protected or out of reach
        elif self._git not in self._policy.protected and self._git not in self._policy.pinned:
            yield from self._disarmed(self._git)
        elif self._git in self._policy.pinned and self._leads_away(f"{self._git}/commondir"):
            yield self._quarantine.take_away(f"{self._git}/commondir", "leads git to another configuration")
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
                    yield self._quarantine.take_away(path, f"names programs to run ({', '.join(keys[:3])})")
            elif name == "commondir" and "/worktrees/" not in path:
                if self._leads_away(path):
                    yield self._quarantine.take_away(path, "leads git to another configuration")
            elif name in ("hooks", "modules"):
                yield self._quarantine.take_away(path, "leads git elsewhere")
            elif "/hooks/" in path and (found.st_mode & 0o111 or stat.S_ISLNK(found.st_mode)):
                yield self._quarantine.take_away(path, "is a hook, which git would run")

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
