"""How a user comes to trust a project's settings file: what it would widen is shown, and just that is kept.

The file is read once; what is kept is the digest of the content that was shown, so a change in between is
not trusted.  What is *not* here: asking and printing (verbs.py), what widens (choices/project.py).
"""

import json
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from supervisor.choices import trusted
from supervisor.choices.files import check, read
from supervisor.choices.project import each_value
from supervisor.exits import USAGE, StopError
from supervisor.harmless import harmless_line
from supervisor.places import home_of, project_file, project_of, user_file, workspace_of
from supervisor.settings import offered

QUESTION = "Trust this content? [y/N] "
_UNCONFINED = 'sandbox.mode = "unconfined"'
_NOTHING_CONFINES = "With that, nothing would confine commands: each may do all that you may, unasked."


class Offered(Struct, frozen=True):
    """A project's file as it was read.  `lines`: what it would widen, harmless to print."""

    home: Path
    root: Path
    project: str
    path: Path
    digest: str
    lines: tuple[str, ...]
    is_trusted: bool


def look(directory: str | None, environ: Mapping[str, str], cwd: Path) -> Offered:
    """What the settings file of the project there asks for.  Raises StopError where there is none, or where
    a value in it is wrong."""
    root, project = project_of(workspace_of(directory, cwd))
    user = read(user_file(environ))
    users = check(user.values, str(user.path), user.text)
    theirs = read(project_file(root))
    if not theirs.digest:
        raise StopError(f"there is no {theirs.path}, so there is nothing to trust", USAGE)
    home = home_of(environ, cwd)
    lines = each_value(offered(theirs, users).widening, _value)
    return Offered(
        home=home,
        root=root,
        project=project,
        path=theirs.path,
        digest=theirs.digest,
        lines=tuple(lines),
        is_trusted=trusted.trusted(home, root, project) == theirs.digest,
    )


def told(found: Offered) -> list[str]:
    """What the user is shown of it."""
    place = harmless_line(str(found.path))
    if not found.lines:
        return [f"{place} only asks for what any project may have; there is nothing to trust."]
    if found.is_trusted:
        return [f"{place} is trusted as it is. It sets:", *(f"  {line}" for line in found.lines)]
    warning = [_NOTHING_CONFINES] if _UNCONFINED in found.lines else []
    return [f"{place} would set:", *(f"  {line}" for line in found.lines), *warning]


def keep(found: Offered) -> str:
    """Trust the content that was shown; what to say of it.  Raises StopError where that can't be written."""
    try:
        trusted.keep(found.home, found.root, found.project, found.digest)
    except OSError as error:
        raise _not_kept(found.home, error) from error
    return "Trusted, until the file changes. To take it back: agent trust --revoke"


def revoke(directory: str | None, environ: Mapping[str, str], cwd: Path) -> str:
    """Trust nothing of the project there; what to say of it.  Raises StopError."""
    root, project = project_of(workspace_of(directory, cwd))
    home = home_of(environ, cwd)
    try:
        was = trusted.revoke(home, project)
    except OSError as error:
        raise _not_kept(home, error) from error
    place = harmless_line(str(root))
    return f"{place} is no longer trusted." if was else f"{place} was not trusted."


def _not_kept(home: Path, error: OSError) -> StopError:
    return StopError(
        f"{home}: can't be written: {error.strerror}; make it yours, or name another in AGENT_HOME"
    )


def _value(value: object) -> str:
    return harmless_line(json.dumps(value, ensure_ascii=False, default=str))
