"""Which conversations there are: read from the head and the tail of each transcript, never the whole."""

import os
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from supervisor.store.disk import StoreError
from supervisor.store.lines import SessionLine, title_of

PREFIX = "myagent_conversation_"
"""How the name of a transcript begins."""
_HEAD = 64 * 1024
"""Bytes that are read for session and title: the session's line is short, the user's first line is next."""
_TAIL = 64 * 1024
_TAIL_MAX = 4 * 1024 * 1024
"""Bytes from the end that are searched for the number of the last turn; a longer last line is not."""

_USER = re.compile(rb'"role":"user"')
_SAID = re.compile(rb'"(?:content|text)":"((?:[^"\\]|\\.){0,2000})')
_WITHDRAWN = b'{"kind":"withdrawn"'
_TURN = re.compile(rb'"turn":(\d+)')
"""Inside a text the quotation marks are escaped, so these match fields only."""


class Listed(Struct, frozen=True):
    """A conversation as a line of a list.

    `time`: when it was last written, seconds since the epoch.  `turns`: number of its last turn, None where
    finding it would take reading the whole.  `here`: it belongs to the project that was asked about.
    """

    id: str
    title: str
    time: float
    turns: int | None
    workspace: str
    here: bool


def listing(home: Path, project: str | None) -> list[Listed]:
    """All conversations in which something was said: this project's first, then the newest first.

    Raises StoreError where the state directory can't be read; what can't be read in it is left out.
    """
    found = [
        listed for id_ in ids(home) if (listed := _listed(home / "sessions" / id_, id_, project)) is not None
    ]
    return sorted(found, key=lambda listed: (not listed.here, -listed.time, listed.id))


def newest(home: Path, project: str) -> str | None:
    """The id of the project's conversation that was written in last.  Raises StoreError."""
    return next((found.id for found in listing(home, project) if found.here), None)


def ids(home: Path) -> list[str]:
    """The ids of all conversations.  Raises StoreError."""
    sessions = home / "sessions"
    try:
        return sorted(entry.name for entry in os.scandir(sessions) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(sessions, error) from error


def transcript_in(directory: Path, id_: str) -> Path | None:
    """The transcript in a conversation's directory; the oldest, should there be several."""
    return min(directory.glob(f"{PREFIX}*_{id_}.jsonl"), default=None)


def _listed(directory: Path, id_: str, project: str | None) -> Listed | None:
    path = transcript_in(directory, id_)
    if path is None:
        return None
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(_HEAD)
            seen = os.fstat(file.fileno())
            title = _title(head)
            if title is None and seen.st_size <= len(head):
                return None
            turns = _turns(file.fileno(), seen.st_size)
    except OSError:
        return None
    session = _session(head)
    here = session is not None and session.project == project
    workspace = session.workspace if session is not None else ""
    return Listed(id_, title or "(no title)", seen.st_mtime, turns, workspace, here)


def _session(head: bytes) -> SessionLine | None:
    try:
        return msgspec.json.decode(head.partition(b"\n")[0], type=SessionLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _title(head: bytes) -> str | None:
    """The title from the first user line that was not withdrawn; the line's end may be missing.

    None where there is none, so that a task which never got a reply doesn't stand for a conversation.
    """
    title = None
    for line in head.split(b"\n"):
        if title is None and _USER.search(line, 0, 400) and (said := _SAID.search(line)):
            title = title_of(_unquoted(said[1].decode("utf-8", "ignore"))) or "(no title)"
        elif line.startswith(_WITHDRAWN):
            title = None
        elif title is not None:
            break
    return title


def _unquoted(text: str) -> str:
    """A JSON string without its quotation marks, of which the end may be missing."""
    for cut in range(6):  # half of an escape like \u0007 may be at the end
        try:
            return msgspec.json.decode(f'"{text[: len(text) - cut]}"', type=str)
        except msgspec.DecodeError:
            continue
    return text


def _turns(descriptor: int, size: int) -> int | None:
    wanted = _TAIL
    while True:
        at = max(0, size - wanted)
        found = _TURN.findall(os.pread(descriptor, size - at, at))
        if found:
            return max(map(int, found))
        if at == 0:
            return 0
        if wanted >= _TAIL_MAX:
            return None
        wanted *= 8
