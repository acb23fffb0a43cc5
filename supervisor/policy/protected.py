"""What stays as it is inside a workspace: files that other programs will run later by themselves, when
nobody looks.  Sources, Makefiles and the like are not among them: a user runs those knowingly, and a diff
shows them.  Only what exists is named, real and no link: where there is one, what it leads to."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from protocol.policy import RUN_LATER
from supervisor.policy.repository import named_by_config, repository_of, submodules


def protected_places(workspace: Path, repositories: Iterable[Path]) -> Iterator[Path]:
    """`repositories`: each `.git` that was found in the workspace."""
    wanted = [workspace / ".git", *(workspace / name for name in RUN_LATER)]
    wanted += [*repositories, *submodules(workspace)]
    repository = repository_of(workspace)
    if repository is not None:
        wanted += named_by_config(repository, workspace)
    wanted += [path.resolve() for path in wanted if path.is_symlink()]
    found = {path: None for path in wanted if workspace in path.parents and _stays(path)}
    # What lies below another one is covered by it.
    yield from (path for path in found if not any(above in found for above in path.parents))


def _stays(path: Path) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)
