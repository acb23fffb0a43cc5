"""What is searched for and what is found, whichever engine looks; a match as a line of the result."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from worker.files.names import shown
from worker.files.walking import Unread

_LONG = 400
"""Bytes of a line that are shown whole."""
_AROUND = 150
"""Bytes shown before and behind the match in a longer one; of a long match, as many of its start."""


class PatternError(ValueError):
    """The regular expression is not one; the message says why."""


@dataclass(frozen=True)
class Hunt:
    """One search.  `wanted` judges paths as matches name them; `glob` says the same where it can be said so,
    to spare work.  What can't be read is added to `unread`."""

    pattern: str
    glob: str | None
    wanted: Callable[[bytes], bool]
    unread: Unread
    cancelled: threading.Event


@dataclass(frozen=True)
class Match:
    """A line that matches, without its line break; `start` and `end` are bytes of its first match."""

    path: bytes
    number: int
    line: bytes
    start: int
    end: int


def row(match: Match) -> str:
    """`PATH:LINE:TEXT`, and for a long line `PATH:LINE:[column C, N of M bytes left out] …TEXT…`."""
    where = f"{shown(match.path)}:{match.number}:"
    if len(match.line) <= _LONG:
        return where + match.line.decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")
    start, end = match.start, min(match.end, match.start + _AROUND)
    begin, stop = max(start - _AROUND, 0), min(end + _AROUND, len(match.line))
    while begin > 0 and match.line[begin] & 0xC0 == 0x80:
        begin -= 1
    while stop < len(match.line) and match.line[stop] & 0xC0 == 0x80:
        stop += 1
    column = len(match.line[:start].decode("utf-8", "replace")) + 1
    window = match.line[begin:stop].decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")
    left = len(match.line) - (stop - begin)
    before, behind = "…" if begin else "", "…" if stop < len(match.line) else ""
    return f"{where}[column {column}, {left} of {len(match.line)} bytes left out] {before}{window}{behind}"
