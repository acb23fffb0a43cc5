"""Reading a transcript: lines in the order of arrival become closed pairs and at most one open turn.

Nothing is written here, and nothing is lost in silence: a line that can't be used is named in a notice.
Memory is in proportion to what is still sent, not to the file: what a compaction replaced is let go as soon
as its line is read.  What a kill left open is closed by `conversations`, which may append.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import assert_never, get_args

import msgspec
from msgspec import Struct

from protocol.conversation import Answer, Conversation, Message, Pair, ToolResult, User
from protocol.turn import IllegalEventError, OpenTurn, State
from supervisor.exits import StopError
from supervisor.store import repair
from supervisor.store.blocks import blocks, line_number
from supervisor.store.lines import (
    VERSION,
    AnyLine,
    CompactionLine,
    Head,
    MessageLine,
    PermissionLine,
    RetractLine,
    SessionLine,
    StubLine,
    WithdrawnLine,
    encode,
    to_message,
)

_NOTICES = 20
"""Lines that are named one by one; more are counted."""
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Loaded(Struct, frozen=True):
    """What a transcript holds.

    `spans`: first and last seq of each pair.  `turn`, `round`, `seq`: the last ones.  `open`: the messages of
    a turn that was not closed; its number and the seq of its user line.  `workspace` and `project` are
    those of the last session line.
    """

    conversation: Conversation
    spans: tuple[tuple[int, int], ...] = ()
    open: tuple[Message, ...] = ()
    open_turn: int | None = None
    open_first: int = 0
    turn: int = 0
    round: int = 0
    seq: int = 0
    workspace: str = ""
    project: str = ""
    notices: tuple[str, ...] = ()


class NewerError(StopError):
    """A newer version of the program wrote this transcript; it is left as it is."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"{path}: written by a newer version (form {version}, this program reads {VERSION}); "
            "update the program to go on with this conversation"
        )


def load(path: Path) -> Loaded:
    """All that a transcript says.  Raises StoreError, NewerError."""
    undone: frozenset[int] = frozenset()
    stubs: dict[int, str] = {}
    seen: set[bytes] | None = None
    while True:
        # What a later line takes back, or repeats, is known at the end; such files are rare and read again.
        reading = _Reading(path, undone, stubs, seen)
        for line in _decoded(path, reading):
            reading.take(line)
        repeats = reading.falls_back and seen is None
        if reading.undone == undone and reading.stubs == stubs and not repeats:
            return reading.finish()
        undone, stubs = frozenset(reading.undone), reading.stubs
        seen = set() if reading.falls_back else None


class _Reading:
    """One pass over a transcript."""

    def __init__(
        self,
        path: Path,
        undone: frozenset[int],
        stubs: dict[int, str],
        seen: set[bytes] | None = None,
    ) -> None:
        self.path = path
        self.falls_back = False
        """A number came that is not above all before it: another hand copied lines, or wrote beside us."""
        self._seen = seen
        self._twice = 0
        self.undone: set[int] = set()
        self.stubs: dict[int, str] = {}
        self._undo = undone
        self._stubs = stubs
        self._pairs: list[Pair] = []
        self._spans: list[tuple[int, int]] = []
        self._open: OpenTurn | None = None
        self._first = 0
        self._turn = self._round = self.seq = 0
        self._session: SessionLine | None = None
        self._notices: list[str] = []
        self._unknown: dict[str, int] = {}

    def take(self, line: AnyLine) -> None:
        if line.v > VERSION:
            raise NewerError(self.path, line.v)
        self.falls_back = self.falls_back or line.seq <= self.seq
        if self._is_repeated(line):
            self._twice += 1
            return
        self.seq = max(self.seq, line.seq)
        self._round = max(self._round, line.round or 0)
        match line:
            case MessageLine():
                self._message(line)
            case SessionLine():
                self._session = line
            case WithdrawnLine(first=first, turn=turn):
                self._withdraw(first, turn)
            case CompactionLine():
                if line.seq not in self._undo:
                    self._compact(line)
            case StubLine(target=target, text=text):
                if line.seq not in self._undo:
                    self.stubs[target] = text
            case RetractLine(target=target):
                self.undone.add(target)
            case PermissionLine():
                pass  # a record for people
            case _ as never:
                assert_never(never)

    def _is_repeated(self, line: AnyLine) -> bool:
        """Whether the very same line came before; another one of its number is kept."""
        if self._seen is None:
            return False
        size = len(self._seen)
        self._seen.add(hashlib.blake2b(encode(line), digest_size=16).digest())
        return len(self._seen) == size

    def unreadable(self, number: int, line: bytes) -> None:
        """A line that is none of ours, or none that this program knows."""
        try:
            head = msgspec.json.decode(line, type=Head)
        except _UNREADABLE:
            self._notice(f"line {number} can't be read and is left out")
            return
        if head.v > VERSION:
            raise NewerError(self.path, head.v)
        self.seq = max(self.seq, head.seq)
        if head.kind in _KINDS:
            self._notice(f"line {number} ({head.kind}) lacks what such a line needs and is left out")
        else:
            kind = head.kind or "without a kind"
            self._unknown[kind] = self._unknown.get(kind, 0) + 1

    def finish(self) -> Loaded:
        counted = [f"{count} lines of an unknown kind ({kind})" for kind, count in self._unknown.items()]
        if self._twice:
            counted.append(f"{self._twice} lines that stand there twice")
        if len(self._notices) > _NOTICES:
            counted.append(f"{len(self._notices) - _NOTICES} more lines")
        notices = self._notices[:_NOTICES]
        notices += [f"{self.path.name}: {what} are left out" for what in counted]
        session = self._session
        return Loaded(
            Conversation(tuple(self._pairs)),
            tuple(self._spans),
            tuple(self._open.messages()) if self._open else (),
            self._open.number if self._open else None,
            self._first if self._open else 0,
            self._turn,
            self._round,
            self.seq,
            session.workspace if session else "",
            session.project if session else "",
            tuple(notices),
        )

    def _notice(self, what: str) -> None:
        self._notices.append(f"{self.path.name}: {what}")

    def _message(self, line: MessageLine) -> None:
        try:
            message = to_message(line)
        except ValueError as error:
            self._notice(f"seq {line.seq} is no message ({error}) and is left out")
            return
        if isinstance(message, User):
            self._begin(message, line)
            return
        if isinstance(message, ToolResult) and line.seq in self._stubs:
            message = ToolResult(message.call_id, self._stubs[line.seq], message.failed)
        if self._open is None:
            self._notice(f"seq {line.seq} ({line.role}) stands outside a turn and is left out")
            return
        try:
            self._open.receive(message)
        except IllegalEventError as error:
            self._notice(f"seq {line.seq} is left out: {error}")
            return
        if self._open.state is State.CLOSED:
            self._close(self._open, line.seq)

    def _begin(self, user: User, line: MessageLine) -> None:
        if self._open is not None:
            # Only a foreign hand leaves a turn open in the middle; a request must be legal all the same.
            self._notice(f"the turn before seq {line.seq} had no end; it counts as interrupted")
            repair.close_interrupted(self._open)
            self._close(self._open, line.seq - 1)
        self._open, self._first = OpenTurn(user, line.turn), line.seq

    def _close(self, turn: OpenTurn, last: int) -> None:
        self._turn = max(self._turn, turn.number or 0)
        self._pairs.append(turn.close())
        self._spans.append((self._first, last))
        self._open = None

    def _withdraw(self, first: int, turn: int | None) -> None:
        if self._open is not None and self._first >= first and self._open.number == turn:
            self._open = None

    def _compact(self, line: CompactionLine) -> None:
        replaced = [
            index
            for index, (first, last) in enumerate(self._spans)
            if first >= line.first and last <= line.last
        ]
        try:
            summary = Pair(User(line.user), (), Answer(line.answer))
        except ValueError as error:
            self._notice(f"seq {line.seq} is no compaction ({error}) and is left out")
            return
        if not replaced:
            self._notice(f"seq {line.seq} is left out: no pairs from seq {line.first} to seq {line.last}")
            return
        begin, end = replaced[0], replaced[-1] + 1
        self._pairs[begin:end] = [summary]
        self._spans[begin:end] = [(line.first, line.last)]


_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(AnyLine))


def _decoded(path: Path, reading: _Reading) -> Iterator[AnyLine]:
    """The lines in typed form; those that can't be read go to `reading.unreadable`."""
    decoder = msgspec.json.Decoder(AnyLine)
    for offset, block in blocks(path):
        try:
            decoded: Iterable[AnyLine] = decoder.decode_lines(block)
        except _UNREADABLE:
            decoded = _one_by_one(bytes(block), line_number(path, offset), decoder, reading)
        yield from decoded


def _one_by_one(
    block: bytes, number: int, decoder: msgspec.json.Decoder[AnyLine], reading: _Reading
) -> Iterator[AnyLine]:
    for offset, line in enumerate(block.split(b"\n")):
        text = line.strip(b"\0 \t\r")
        if not text:
            continue
        try:
            decoded = decoder.decode(text)
        except _UNREADABLE:
            reading.unreadable(number + offset, text)
        else:
            yield decoded
