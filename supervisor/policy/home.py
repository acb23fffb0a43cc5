"""$HOME of commands: a private directory that knows who commits, and nothing else of the user's."""

import contextlib
import re
from pathlib import Path

_IDENTITY = re.compile(r"(?ms)^\s*\[user\]([^\[]*)")
_NAMED = re.compile(r"(?m)^\s*(name|email)\s*=\s*(.+?)\s*$")


def private_home(tmp: Path, user_home: Path, workspace: Path) -> Path:
    """Made below `tmp`.  The real one can't be read, and git fails on a configuration that it may not read;
    so do others."""
    home = tmp / "home"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = ["[safe]", f"\tdirectory = {_quoted(str(workspace))}"]
    named: dict[str, str] = {}
    for place in (user_home / ".config/git/config", user_home / ".gitconfig"):
        with contextlib.suppress(OSError):
            text = place.read_text(errors="replace")
            for section in _IDENTITY.findall(text):
                named |= dict(_NAMED.findall(section))
    if named:
        lines += ["[user]", *(f"\t{key} = {value}" for key, value in named.items())]
    (home / ".gitconfig").write_text("\n".join(lines) + "\n")
    return home


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
