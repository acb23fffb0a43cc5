"""Where the repository of a workspace lies, read by hand: git is never run, since its configuration runs
programs.  Everything here may have been written by a tool of an earlier session, so nothing is believed that
the other side doesn't confirm."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_READ_BYTES = 256 * 1024
"""A configuration is some hundred bytes."""
_VALUE = re.compile(r'(?im)^[^#;\n]*?\b(path|hookspath)\s*=\s*"?([^"#;\n]*?)"?\s*$')
_OF_WORKTREES = re.compile(r"(?im)^\s*worktreeconfig\s*=\s*(true|yes|on|1)\b")
_RUN_LATER = ("config", "config.worktree", "hooks", "modules", "worktrees", "commondir")
"""In a repository's directory: what names programs, or leads to files that do."""


@dataclass(frozen=True)
class Repository:
    """`marker`: the `.git` of the workspace.  `directory`: of this working tree; `common`: of all that share
    the repository.  All three are one but in a linked working tree."""

    marker: Path
    directory: Path
    common: Path


def repository_of(workspace: Path) -> Repository | None:
    """The workspace's own repository; None where there is none, or where it can't be trusted to be one."""
    marker = workspace / ".git"
    try:
        mode = os.lstat(marker).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return Repository(marker, marker, marker)
    return _linked(marker) if stat.S_ISREG(mode) else None


def _linked(marker: Path) -> Repository | None:
    """Of `.git` files of linked working trees, those whose other side points back here: otherwise a tool
    could name any directory by writing such a file."""
    named = _text(marker)
    if not named.startswith("gitdir:"):
        return None
    directory = _real(marker.parent, named.removeprefix("gitdir:").strip())
    if directory is None or not directory.is_dir():
        return None
    back = _real(directory, _text(directory / "gitdir").strip())
    common = _real(directory, _text(directory / "commondir").strip())
    if back != marker or common is None or not directory.is_relative_to(common / "worktrees"):
        return None
    if not (common / "HEAD").is_file() or not all((common / name).is_dir() for name in ("objects", "refs")):
        return None
    return Repository(marker, directory, common)


def run_later(repository: Repository) -> Iterator[Path]:
    """What stays closed while the repository may be written, though it need not exist: see planted.py."""
    for name in _RUN_LATER:
        if repository.directory == repository.common or name != "worktrees":
            yield repository.common / name
    if repository.directory == repository.common:
        return
    for name in ("commondir", "gitdir", "config.worktree"):
        yield repository.directory / name
    worktrees = repository.common / "worktrees"
    try:
        others = [Path(entry.path) for entry in os.scandir(worktrees)]
    except OSError:
        return
    yield from (other for other in others if other != repository.directory)


def needs_worktree_config(repository: Repository) -> bool:
    """Whether git reads `config.worktree` here, so that a new one would count."""
    return _OF_WORKTREES.search(_text(repository.common / "config")) is not None


def named_by_config(repository: Repository, workspace: Path) -> Iterator[Path]:
    """Files and directories of the workspace that the repository's configuration includes or takes hooks
    from; real paths of what exists."""
    config = repository.common / "config"
    for key, value in _VALUE.findall(_text(config)):
        # An include is relative to the file, hooks to the top of the working tree.
        base = config.parent if key.lower() == "path" else workspace
        found = _real(base, value.strip())
        if found is not None and found != workspace and found.is_relative_to(workspace) and found.exists():
            yield found


def submodules(workspace: Path) -> Iterator[Path]:
    """The `.git` of each working tree that `.gitmodules` names, if it exists and is no link."""
    for key, value in _VALUE.findall(_text(workspace / ".gitmodules")):
        found = _real(workspace, value.strip()) if key.lower() == "path" else None
        if found is not None and found.is_relative_to(workspace) and found != workspace:
            marker = found / ".git"
            if marker.exists() and not marker.is_symlink():
                yield marker


def _real(base: Path, named: str) -> Path | None:
    if not named or "\0" in named:
        return None
    try:
        return (base / Path(named).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _text(path: Path) -> str:
    """The beginning of a regular file, never through a link; empty where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return os.read(fd, _READ_BYTES).decode(errors="surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(fd)
