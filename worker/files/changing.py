"""What write_file and edit_file share: a file's content before, and the outcome once it has another."""

import os

from protocol.display import Display
from worker.call import Outcome, ToolError
from worker.files.diffs import unified
from worker.files.paths import Place, in_words
from worker.files.regular import open_regular

_SIZE_MAX = 64 * 1024 * 1024


def content(place: Place) -> bytes:
    """The whole content.  Raises ToolError where there is no regular file or it is too large to be edited."""
    fd = open_regular(place)
    try:
        with in_words(place.shown):
            size = os.fstat(fd).st_size
            if size > _SIZE_MAX:
                raise ToolError(
                    f"{place.shown} has {size} bytes; a file above {_SIZE_MAX} is edited by run_command (sed)"
                )
            pieces = []
            while piece := os.read(fd, max(size + 1, 4096)):
                pieces.append(piece)
            return b"".join(pieces)
    finally:
        os.close(fd)


def outcome(place: Place, did: str, before: bytes, after: bytes, notes: list[str]) -> Outcome:
    """`did` ("edited 2 places") with the lines added and removed, and the diff for the screen."""
    diff = unified(before, after)
    told = f"{did}, +{diff.added} -{diff.removed}"
    text = f"{place.shown}: {told}" + "".join(f"\n[{note}]" for note in notes)
    display = Display(f"{did}, {diff.counts}", diff=diff.text, path=place.shown)
    return Outcome(text, display, paths=(place.shown,))
