"""One bounded look through a workspace for what a policy must know of: secrets, and repositories in it.

Names only: nothing is opened, no link is followed.  What is deeper, or comes after the bounds, is not found;
a project with so many directories above that depth is rare, and a start must not wait for it.
"""

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECRET_DEPTH = 3
REPOSITORY_DEPTH = 4
"""Levels of directories that are looked into, the workspace itself being the first."""
_DIRECTORIES = 3000
_SECONDS = 0.2
"""A big project's upper levels take some 20 ms."""
_FOUND = 200
"""Of each kind.  Each one is a mount in every worker."""
_PASSED_OVER = frozenset((".git", "node_modules", "__pycache__", ".tox", ".nox", "target", "vendor"))
"""Directories of tools, with thousands of files of others."""
_VIRTUAL = "pyvenv.cfg"
"""Whose directory holds one is a virtual environment."""

_ENV = re.compile(r"\.env(\..+)?")
_ENV_SHOWN = re.compile(r"\.env\..*(example|sample|template|dist|defaults?)")
"""Without real values: they are there to be read."""
_KEYS = re.compile(r".+\.(pem|key|p12|pfx)|id_(rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk|xmss)([._-].*)?")


@dataclass(frozen=True)
class Survey:
    """`secrets`: files; `repositories`: the `.git` of each repository, a directory or a file."""

    secrets: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()


def secret(name: str) -> bool:
    """Whether a file of this name usually holds a secret."""
    if name.endswith(".pub"):
        return False
    if _ENV.fullmatch(name):
        return not _ENV_SHOWN.fullmatch(name)
    return _KEYS.fullmatch(name) is not None


def survey(workspace: Path) -> Survey:
    """Look through the upper levels, the uppermost first."""
    secrets: list[Path] = []
    repositories: list[Path] = []
    for entry, depth in _entries(workspace):
        if entry.name == ".git" and not entry.is_symlink():
            repositories.append(Path(entry.path))
        elif depth <= SECRET_DEPTH and secret(entry.name) and (found := _file(entry, workspace)):
            secrets.append(found)
    return Survey(tuple(dict.fromkeys(secrets[:_FOUND])), tuple(repositories[:_FOUND]))


def _entries(workspace: Path) -> Iterator[tuple["os.DirEntry[str]", int]]:
    """Each entry with the level of its directory."""
    waiting, looked = deque([(str(workspace), 1)]), 0
    until = time.monotonic() + _SECONDS
    while waiting and looked < _DIRECTORIES and time.monotonic() < until:
        directory, depth = waiting.popleft()
        looked += 1
        try:
            with os.scandir(directory) as entries:
                found = list(entries)
        except OSError:
            continue
        if depth > 1 and any(entry.name == _VIRTUAL for entry in found):
            continue
        for entry in found:
            yield entry, depth
            if depth < REPOSITORY_DEPTH and entry.name not in _PASSED_OVER and _directory(entry):
                waiting.append((entry.path, depth + 1))


def _directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _file(entry: "os.DirEntry[str]", workspace: Path) -> Path | None:
    """The real file of the entry; a link's target counts where it lies in the workspace too."""
    try:
        real = Path(entry.path).resolve(strict=True) if entry.is_symlink() else Path(entry.path)
        return real if real.is_file() and real.is_relative_to(workspace) else None
    except (OSError, RuntimeError):
        return None
