"""Text for the standard streams, and plain lines on stderr, so that no encoding or closed stream can fail.

stderr is written by descriptor, past Python's buffer, so that nothing is left to fail at exit.  What is
*not* here: stdout and stdin beside an event loop (flow.py), and which lines are written (front.py).
"""

import os
import sys
from contextlib import suppress

from supervisor.harmless import for_stream, harmless


def encoded(text: str, encoding: str | None) -> bytes:
    """Text from anywhere as harmless bytes for a stream of that encoding; never fails."""
    name = encoding or "utf-8"
    return for_stream(harmless(text), name).encode(name, "replace")


def erase_line() -> None:
    """Erase the prompt's glyph that a terminal was shown early: what comes now is no prompt.  Where there is
    none, this erases an empty line."""
    if os.environ.get("TERM", "dumb") not in ("", "dumb") and os.isatty(0) and os.isatty(1):
        with suppress(OSError):
            os.write(1, b"\r\x1b[K")


def complain(line: str) -> None:
    """One line on stderr, after the program's name.  A closed or full stderr is nothing to fail over."""
    report(f"agent: {' '.join(line.splitlines())}")


def report(text: str) -> None:
    """Text on stderr, with a line break."""
    left = encoded(text + "\n", getattr(sys.stderr, "encoding", None))
    while left:
        try:
            left = left[os.write(2, left) :]
        except OSError:
            return
