"""Conversations as directories: made, opened by one process at a time, copied, found.

    HOME/sessions/ID/myagent_conversation_STAMP_ID.jsonl  rounds.jsonl  texts/  output/  lock

Opening repairs what a kill left: the torn end of the transcript, calls without a result, a turn without an
answer.  Everything is appended; nothing that was whole is rewritten.
"""

import base64
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from protocol.conversation import Conversation
from protocol.turn import OpenTurn
from supervisor.exits import USAGE, StopError
from supervisor.store import listing as listings
from supervisor.store import repair, round_log
from supervisor.store.disk import DIRECTORY_MODE, FILE_MODE, StoreError, open_private, private_directory
from supervisor.store.load import Loaded, load
from supervisor.store.lock import Lock
from supervisor.store.outputs import Outputs
from supervisor.store.round_log import RoundLog
from supervisor.store.tail import mend_tail
from supervisor.store.texts import Texts
from supervisor.store.transcript import Transcript

_ID = re.compile(r"[a-z2-7]{8}")
_ID_BYTES = 5
"""Random bytes of an id: eight characters, short enough to type, a million conversations without a clash
being likely; a clash is noticed and another id drawn."""


class UnknownConversationError(StopError):
    """There is no conversation of this id.  The message names near ones."""

    def __init__(self, home: Path, id_: str) -> None:
        import difflib  # late: only an error needs it

        known = listings.ids(home)
        near = [known_id for known_id in known if id_ and known_id.startswith(id_)][:3]
        near = near or difflib.get_close_matches(id_, known, 3, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "`agent sessions` lists those there are"
        super().__init__(f"there is no conversation {id_!a}; {hint}", USAGE)


class OpenConversation:
    """A conversation that this process may append to, until `close`."""

    def __init__(self, id_: str, directory: Path, lock: Lock, transcript: Transcript, loaded: Loaded) -> None:
        self.id = id_
        self.directory = directory
        self.loaded = loaded
        self.transcript = transcript
        self.texts = Texts(directory / "texts")
        self.outputs = Outputs(directory / "output")
        self.rounds = RoundLog(directory / "rounds.jsonl")
        self._lock = lock

    def close(self) -> None:
        """Close the files and let others open the conversation."""
        self.transcript.close()
        self.rounds.close()
        self._lock.release()

    def discard_unsaid(self) -> None:
        """Remove a new conversation in which nothing was said, before it is closed."""
        if not self.loaded.seq and not self.transcript.said:
            shutil.rmtree(self.directory, ignore_errors=True)


def create(home: Path, workspace: Path, project: str) -> OpenConversation:
    """A new conversation about this workspace (a real path) of this project (its key).  Raises StoreError."""
    id_, directory = _new_directory(home)
    empty = Loaded(Conversation(), workspace=str(workspace), project=project)
    with _removed_on_failure(directory):
        return _opened(id_, directory, lambda: (Transcript(directory / _transcript_name(id_)), empty))


def open_conversation(home: Path, id: str) -> OpenConversation:
    """Open it to go on with it.

    `loaded` then has no open turn, and its notices say what was repaired.  Raises UnknownConversationError,
    LockedError, NewerError, StoreError.
    """
    directory = _directory(home, id)

    def repaired() -> tuple[Transcript, Loaded]:
        path = _transcript_of(directory, id)
        torn = mend_tail(path)
        found = load(path)
        last = round_log.last(directory / "rounds.jsonl")
        transcript = Transcript(path, found.seq)
        try:
            loaded = _closed(found, last, transcript)
        except StoreError:
            transcript.close()
            raise
        notices = (*([torn] if torn else []), *loaded.notices)
        return transcript, msgspec.structs.replace(
            loaded, round=max(loaded.round, last.round), notices=notices
        )

    return _opened(id, directory, repaired)


def fork(home: Path, id: str) -> OpenConversation:
    """Open a copy under a new id; the original may be in use and is not touched.  Raises as opening does."""
    source = _directory(home, id)
    original = _transcript_of(source, id)
    copy, directory = _new_directory(home)
    with _removed_on_failure(directory):
        try:
            _copy_private(original, directory / _transcript_name(copy))
            if (source / "rounds.jsonl").exists():
                _copy_private(source / "rounds.jsonl", directory / "rounds.jsonl")
            for name in ("texts", "output"):
                if (source / name).is_dir():
                    _share_files(source / name, private_directory(directory / name))
        except OSError as error:
            raise StoreError(source, error) from error
        return open_conversation(home, copy)


@contextmanager
def _removed_on_failure(directory: Path) -> Iterator[None]:
    """A new conversation that can't be begun leaves no directory behind."""
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _opened(id_: str, directory: Path, begin: Callable[[], tuple[Transcript, Loaded]]) -> OpenConversation:
    """The conversation with its lock, which is taken before anything is read and let go if opening fails."""
    lock = Lock(directory / "lock", id_)
    try:
        transcript, loaded = begin()
        try:
            return OpenConversation(id_, directory, lock, transcript, loaded)
        except BaseException:
            transcript.close()
            raise
    except BaseException:
        lock.release()
        raise


def _closed(found: Loaded, last: round_log.Last, transcript: Transcript) -> Loaded:
    """The same without an open turn: it is closed by lines that are appended."""
    if not found.open:
        return found
    turn = OpenTurn.resumed(found.open, found.open_turn)
    partial, shown = last.partial, ""
    # What stands in the transcript already was a whole reply, of that round or an earlier one.
    if partial is not None and partial.turn == found.open_turn and partial.round > found.round:
        shown = partial.text
    number = last.round if shown else found.round or None
    for message in repair.close_interrupted(turn, shown):
        transcript.message(message, turn=found.open_turn, round=number)
    pair = turn.close()
    return msgspec.structs.replace(
        found,
        conversation=Conversation((*found.conversation.pairs, pair)),
        spans=(*found.spans, (found.open_first, transcript.seq)),
        open=(),
        open_turn=None,
        open_first=0,
        turn=max(found.turn, found.open_turn or 0),
        seq=transcript.seq,
        notices=(*found.notices, "the last turn was interrupted; it is closed and kept"),
    )


def _new_directory(home: Path) -> tuple[str, Path]:
    sessions = private_directory(home / "sessions")
    while True:
        id_ = base64.b32encode(os.urandom(_ID_BYTES)).decode().lower()
        directory = sessions / id_
        try:
            directory.mkdir(DIRECTORY_MODE)
            directory.chmod(DIRECTORY_MODE)
        except FileExistsError:
            continue
        except OSError as error:
            raise StoreError(directory, error) from error
        return id_, directory


def _directory(home: Path, id_: str) -> Path:
    """The directory of this conversation.  The id is the user's text and must not lead anywhere else."""
    directory = home / "sessions" / id_
    if not _ID.fullmatch(id_) or not directory.is_dir():
        raise UnknownConversationError(home, id_)
    return directory


def _transcript_name(id_: str) -> str:
    return f"{listings.PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%SZ}_{id_}.jsonl"


def _transcript_of(directory: Path, id_: str) -> Path:
    found = listings.transcript_in(directory, id_)
    if found is None:
        raise StopError(
            f"{directory} has no transcript {listings.PREFIX}..._{id_}.jsonl; nothing to go on with"
        )
    return found


def _copy_private(source: Path, target: Path) -> None:
    with source.open("rb") as old, os.fdopen(open_private(target, os.O_WRONLY | os.O_EXCL), "wb") as new:
        shutil.copyfileobj(old, new)


def _share_files(source: Path, target: Path) -> None:
    """The files of one directory in another: linked, since outputs may be large and are never rewritten."""
    for file in source.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:  # another file system, or one without links
            shutil.copyfile(file, target / file.name)
            (target / file.name).chmod(FILE_MODE)
