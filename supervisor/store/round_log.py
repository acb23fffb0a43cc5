"""The round log, `rounds.jsonl`: one row when a request is sent, some while a reply is shown, one at its end.

What was sent is named by digests; the fixed texts lie in texts.  A kill can lose the text that came after
the last `partial`, and no more.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from protocol.events import Usage
from supervisor.store.disk import StoreError, append, now, open_private
from supervisor.store.lines import encode

_BLOCK = 64 * 1024
_FARTHEST = 32 * 1024 * 1024
"""Bytes from the end that `last` looks at: more than all partial rows of one long reply."""


class Sent(Struct, frozen=True, kw_only=True, tag_field="row", tag="sent"):
    """A request is on its way.

    `kind`: turn, wrap-up or compaction; `body_sha256`: hex, of the whole body; `bytes`: its size; `head`,
    `ending`: digests in texts of what stood before and behind the messages; `estimate`: tokens, calibrated.
    """

    round: int
    turn: int | None
    body_sha256: str
    bytes: int
    kind: str = "turn"
    head: str = ""
    ending: str = ""
    estimate: int = 0
    time: str = field(default_factory=now)


class Partial(Struct, frozen=True, kw_only=True, tag_field="row", tag="partial"):
    """All text of the reply that has arrived so far; empty where what was shown is void."""

    round: int
    turn: int | None
    text: str
    time: str = field(default_factory=now)


class Settled(Struct, frozen=True, kw_only=True, tag_field="row", tag="settled"):
    """The reply is over.  `seconds`: from sending to the end; `error`: why there is no reply, else empty."""

    round: int
    usage: Usage | None = None
    finish_reason: str = ""
    seconds: float = 0.0
    error: str = ""
    time: str = field(default_factory=now)


Row = Sent | Partial | Settled


class Last(Struct, frozen=True):
    """The last round that was sent (0: none), and what had been shown of its reply."""

    round: int = 0
    partial: Partial | None = None


class RoundLog:
    """Appends rows.  Raises StoreError.  The caller says how often `partial` is worth a row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
        self._turns: dict[int, int | None] = {}
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            append(self._descriptor, path, b"\n")  # a torn row stays a row of its own

    def sent(self, row: Sent) -> None:
        self._turns = {row.round: row.turn}
        self._write(row)

    def partial(self, round: int, text: str) -> None:
        self._write(Partial(round=round, turn=self._turns.get(round), text=text))

    def settled(self, row: Settled) -> None:
        self._write(row)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, row: Row) -> None:
        append(self._descriptor, self.path, encode(row))


def last(path: Path) -> Last:
    """The last round of a log, read from its end.  Rows that are torn are passed over.  Raises StoreError."""
    decoder = msgspec.json.Decoder(Row)
    partial: Partial | None = None
    for line in _lines_from_the_end(path):
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(row, Partial) and partial is None:
            partial = row
        if isinstance(row, Sent):
            return Last(row.round, partial if partial is not None and partial.round == row.round else None)
    return Last()


def rows(path: Path) -> Iterator[Row]:
    """All rows of a log that can be read, oldest first.  Raises StoreError."""
    decoder = msgspec.json.Decoder(Row)
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
    except OSError as error:
        raise StoreError(path, error) from error


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            at = file.seek(0, os.SEEK_END)
            farthest = max(0, at - _FARTHEST)
            rest = b""
            while at > farthest:
                size = min(_BLOCK, at)
                at -= size
                rest = os.pread(file.fileno(), size, at) + rest
                first, *whole = rest.split(b"\n")
                yield from reversed(whole)
                rest = first
            yield rest
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(path, error) from error
