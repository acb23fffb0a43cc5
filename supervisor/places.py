"""Where things lie: the workspace, its project, the files of settings, the state directory.

    user's settings     $XDG_CONFIG_HOME/polier/settings.toml (else ~/.config/polier/settings.toml)
    project's settings  .agent/settings.toml at the project's root
    state               $AGENT_HOME, else $XDG_DATA_HOME/polier (else ~/.local/share/polier)

These are the places that platformdirs names, which a test compares.  It is not imported: each start would be
some 20 ms later.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from supervisor.exits import USAGE, StopError


def current_directory() -> Path:
    """Where the program was started; a relative path that leads nowhere where that was removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def workspace_of(named: str | None, cwd: Path) -> Path:
    """The real directory to work in: the named one, else the current one.  Raises StopError."""
    path = cwd / Path(named or ".").expanduser()
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links
        why = error.strerror if isinstance(error, OSError) else error
        raise StopError(f"the workspace {path} can't be used: {why}; name a directory", USAGE) from error
    if not real.is_dir():
        raise StopError(f"the workspace {path} is not a directory", USAGE)
    return real


def project_of(workspace: Path) -> tuple[Path, str]:
    """The real root of the project that holds this directory, and its key (hex).

    The root is git's top level, found by looking for `.git` upwards (git is not run), else the directory.
    """
    real = workspace.resolve()
    root = next((place for place in (real, *real.parents) if os.path.lexists(place / ".git")), real)
    return root, hashlib.sha256(os.fsencode(root)).hexdigest()


def project_file(root: Path) -> Path:
    """The settings file of the project with this root."""
    return root / ".agent" / "settings.toml"


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's settings file."""
    return _below(environ, "XDG_CONFIG_HOME", ".config") / "polier" / "settings.toml"


def home_of(environ: Mapping[str, str], cwd: Path) -> Path:
    """The state directory: AGENT_HOME, else the platform's place for a user's data."""
    if environ.get("AGENT_HOME"):
        return cwd / Path(environ["AGENT_HOME"]).expanduser()
    return _below(environ, "XDG_DATA_HOME", ".local/share") / "polier"


def _below(environ: Mapping[str, str], variable: str, otherwise: str) -> Path:
    named = environ.get(variable, "").strip()
    return Path(named) if named else Path(environ.get("HOME") or Path.home()) / otherwise
