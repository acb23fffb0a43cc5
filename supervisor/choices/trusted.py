"""Which content of a project's settings file the user trusts: a small file in the state directory.

    projects/<key of the project>/trust.json    {"root": the real root, "digest": sha256 of the content}

So neither the project nor another one at the same place can say that it is trusted.  How a user comes to
trust one is in permits/trust.py.
"""

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct


class Trust(Struct, frozen=True, forbid_unknown_fields=True):
    root: str
    digest: str


def trusted(home: Path, root: Path, project: str) -> str:
    """The digest of the content that is trusted; empty where there is none, or what is kept can't be read."""
    try:
        kept = msgspec.json.decode(_path(home, project).read_bytes(), type=Trust)
    except (OSError, msgspec.DecodeError, RecursionError):  # what can't be read trusts nothing
        return ""
    return kept.digest if kept.root == os.fsencode(root).hex() else ""


def keep(home: Path, root: Path, project: str, digest: str) -> None:
    """Trust this content, and no other.  Raises OSError."""
    path = _path(home, project)
    home.parent.mkdir(parents=True, exist_ok=True)
    for directory in (home, path.parent.parent, path.parent):
        directory.mkdir(mode=0o700, exist_ok=True)
    data = msgspec.json.encode(Trust(os.fsencode(root).hex(), digest))
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".trust-")  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(name).rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def revoke(home: Path, project: str) -> bool:
    """Trust nothing of this project; whether anything was.  Raises OSError."""
    try:
        _path(home, project).unlink()
    except FileNotFoundError:
        return False
    return True


def _path(home: Path, project: str) -> Path:
    return home / "projects" / project / "trust.json"
