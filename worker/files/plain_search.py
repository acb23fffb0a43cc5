"""The search without ripgrep: Python's `re` over files that the walk finds.  Slower, the same results.

An expression that backtracks without end can't be stopped from here; the call's own limit ends its worker.
"""

import os
import re
import stat
from collections.abc import Generator
from io import BufferedReader, FileIO

from worker.files.cancelled import go_on
from worker.files.encodings import BOM
from worker.files.findings import Hunt, Match, PatternError
from worker.files.walking import Top, walk

_LINE_MAX = 16 * 1024 * 1024
"""Bytes of a line that are looked at in one piece; the rest counts as the next line's text."""
_HEAD = 64 * 1024
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINES_PER_LOOK = 1024


def search_tree(top: Top, hunt: Hunt) -> Generator[Match, None, None]:
    """Matches in all text files below the top.  Raises CancelledError, PatternError."""
    pattern = _compiled(hunt.pattern)
    for entry in walk(top, hunt.unread, hunt.cancelled):
        if not entry.regular or not hunt.wanted(entry.path):
            continue
        try:
            fd = os.open(entry.name, _OPEN, dir_fd=entry.parent)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    yield from _in_file(fd, entry.path, pattern, hunt)
            finally:
                os.close(fd)
        except OSError as error:
            hunt.unread.add(entry.path, error)


def search_file(fd: int, path: bytes, hunt: Hunt) -> Generator[Match, None, None]:
    """Matches in one open file; none in a binary one.  Raises CancelledError, PatternError, OSError."""
    return _in_file(fd, path, _compiled(hunt.pattern), hunt)


def _compiled(pattern: str) -> re.Pattern[str]:
    if "\n" in pattern:
        raise PatternError("the pattern holds a line break; lines are searched one by one")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"the pattern is no regular expression: {error}") from error


def _in_file(fd: int, path: bytes, pattern: re.Pattern[str], hunt: Hunt) -> Generator[Match, None, None]:
    if b"\0" in os.pread(fd, _HEAD, 0):
        return
    with BufferedReader(FileIO(fd, closefd=False), _HEAD) as file:
        number = 0
        while line := file.readline(_LINE_MAX):
            number += 1
            if number % _LINES_PER_LOOK == 1:
                go_on(hunt.cancelled)
            bare = line.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                bare = bare.removeprefix(BOM)
            text = bare.decode("utf-8", "surrogateescape")
            found = pattern.search(text)
            if found is not None:
                start = len(text[: found.start()].encode("utf-8", "surrogateescape"))
                size = len(found.group().encode("utf-8", "surrogateescape"))
                yield Match(path, number, bare, start, start + size)
