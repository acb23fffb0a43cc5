"""Open a regular file for reading, and say in words what is none.

A FIFO, a socket or a device is refused by its type before it is opened; the open itself never blocks, and
the type is looked at once more behind it, in case something was swapped in between.
"""

import difflib
import os
import stat
from itertools import islice

from worker.call import ToolError
from worker.files.names import shown
from worker.files.paths import Place, in_words

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEIGHBOURS_MAX = 2000
"""Names that are looked through for one that was perhaps meant."""


def open_regular(place: Place) -> int:
    """A descriptor to read the place's file from.  Raises ToolError where there is no regular file."""
    if place.status is None:
        raise ToolError(f"{place.shown}: no such file{_perhaps(place)}")
    require_regular(place.shown, place.status)
    with in_words(place.shown):
        fd = os.open(place.name, _READ, dir_fd=place.parent)
    try:
        require_regular(place.shown, os.fstat(fd))
    except ToolError:
        os.close(fd)
        raise
    return fd


def require_regular(what: str, status: os.stat_result) -> None:
    """Raises ToolError, naming the kind, where this is no regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    raise ToolError(f"{what} is {kind(status.st_mode)}, not a file that can be read or written")


def kind(mode: int) -> str:
    """What stands there, in words."""
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    if stat.S_ISSOCK(mode):
        return "a socket"
    if stat.S_ISLNK(mode):
        return "a link"
    return "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "a file"


def _perhaps(place: Place) -> str:
    """Names beside a missing one that look like it."""
    try:
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.parent)
    except OSError:
        return ""
    try:
        with os.scandir(fd) as entries:
            names = [entry.name for entry in islice(entries, _NEIGHBOURS_MAX)]
    finally:
        os.close(fd)
    close = difflib.get_close_matches(os.fsdecode(place.name), names, 3, 0.7)
    return f"; there is: {', '.join(shown(os.fsencode(name)) for name in close)}" if close else ""
