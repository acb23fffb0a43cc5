"""Putting files back as they were, and what came in their place aside, where nothing acts on it.

Which files, and when: restore.py.  Every result is one line for the user and the model.
"""

import os
import shutil
import stat
from pathlib import Path

from worker.sandbox.snapshot import Seen

UNDONE_BY_NOBODY = "; look at it"
"""In the lines of what has stayed as the command left it."""


class Quarantine:
    """In the private temporary directory."""

    def __init__(self, workspace: str, tmp: str) -> None:
        self._workspace = workspace
        self._tmp = tmp
        self._moved = 0

    def put_back(self, path: str, seen: Seen, *, there: bool) -> str:
        """`there`: whether something stands in its place."""
        name = self.shown(path)
        if seen.content is None:
            return f"[protected: {name} was changed and is too large to be put back{UNDONE_BY_NOBODY}]"
        moved = ""
        try:
            if there:
                moved = self._aside(path)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISLNK(seen.status[0]):
                Path(path).symlink_to(os.fsdecode(seen.content))
            else:
                _write(path, seen.content, stat.S_IMODE(seen.status[0]))
        except OSError as error:
            words = f"{name} was changed and could not be put back ({error.strerror})"
            return f"[protected: {words}{UNDONE_BY_NOBODY}]"
        kept = f"; the other version is in {moved}" if moved else ""
        return f"[protected: {name} was changed and has been put back{kept}]"

    def take_away(self, path: str, why: str) -> str:
        name = self.shown(path)
        try:
            return f"[protected: {name} {why}; it was moved to {self._aside(path)}]"
        except OSError as error:
            words = f"{name} {why}; it could not be moved away ({error.strerror})"
            return f"[protected: {words}{UNDONE_BY_NOBODY}]"

    def shown(self, path: str) -> str:
        return path.removeprefix(f"{self._workspace}/")

    def _aside(self, path: str) -> str:
        """Move it into the temporary directory; where it then lies.  Raises OSError."""
        self._moved += 1
        place = Path(self._tmp or "/tmp", "quarantine", str(self._moved))
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
