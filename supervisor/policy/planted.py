"""Files that must exist so that they can be kept read-only while a repository may be written.

Git follows `.git/commondir` to a configuration of anybody's choice, and runs what lies in `.git/hooks`; what
does not exist can't be protected.  So they are made before the worker is born, in the form that means the
same as nothing (tried with status, commit, worktree, gc and fsck), and removed after it.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from protocol.policy import SandboxPolicy
from supervisor.policy.repository import needs_worktree_config, repository_of

_SAME = b".\n"
"""The content of `commondir`: the repository is where it is.  An empty file breaks git."""


def plant(policy: SandboxPolicy) -> tuple[str, ...]:
    """Make what is missing for this policy; the paths of what was made, for `uproot`.  Nothing without a
    grant to write the repository.  Raises OSError where the repository can't be written: then neither may
    a worker."""
    repository = repository_of(Path(policy.workspace))
    if repository is None or str(repository.common) not in policy.pinned:
        return ()
    made: list[str] = []
    common = repository.common
    try:
        place = common / "commondir"
        if not _left_by_us(place):
            with contextlib.suppress(FileExistsError):
                _write(place, _SAME)
        if _left_by_us(place):
            made.append(str(place))
        for name in ("hooks", "modules", "worktrees"):
            with contextlib.suppress(FileExistsError):
                (common / name).mkdir()
                made.append(str(common / name))
        if needs_worktree_config(repository):
            for place in {common, repository.directory}:
                with contextlib.suppress(FileExistsError):
                    _write(place / "config.worktree", b"")
                    made.append(str(place / "config.worktree"))
    except OSError:
        uproot(made)
        raise
    return tuple(made)


def uproot(made: Sequence[str]) -> None:
    """Remove what `plant` made, as far as it is still what it was."""
    for path in map(Path, made):
        with contextlib.suppress(OSError):  # gone, or filled by somebody meanwhile
            if path.name == "commondir" and path.read_bytes() != _SAME:
                continue
            if path.name == "config.worktree" and path.stat().st_size:
                continue
            path.rmdir() if path.is_dir() else path.unlink()


def _left_by_us(path: Path) -> bool:
    """Whether it is what we make: git itself never writes one into a repository's own directory."""
    try:
        return not path.is_symlink() and path.read_bytes() == _SAME
    except OSError:
        return False


def _write(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
