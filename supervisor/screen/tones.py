"""Colours by meaning, and what a terminal is able to show.

No text from outside is made harmless here: that is done once, where an event enters the view.  What an
encoding lacks is degraded by tty.Output.  Standard library only: the prompt needs it before anything heavy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """What a text is, not which colour it has.  The value is its SGR parameter."""

    NEUTRAL = ""
    """Text of a reply that is still open: nobody knows yet whether it is narration or the answer."""
    ANSWER = "38;5;214"
    NARRATION = "38;5;245"
    QUIET = "2"
    STRONG = "1"
    GOOD = "38;5;71"
    WARNING = "38;5;214"
    BAD = "38;5;203"
    ADDED = "38;5;71"
    REMOVED = "38;5;203"


@dataclass(frozen=True)
class Terminal:
    """What can be shown.  `moves`: the cursor may be moved, so a status can be erased and text redrawn."""

    coloured: bool
    moves: bool

    def paint(self, text: str, tone: Tone) -> str:
        """The text in its tone, each line on its own, so that a line cut by a pager stays right."""
        if not self.coloured or not tone.value or not text:
            return text
        start, end = f"\x1b[{tone.value}m", "\x1b[0m"
        return "\n".join(start + line + end if line else "" for line in text.split("\n"))


def terminal_of(environ: Mapping[str, str], *, tty: bool) -> Terminal:
    """What the environment says of the terminal: NO_COLOR, TERM=dumb, or no terminal at all."""
    moves = tty and environ.get("TERM", "dumb") not in ("", "dumb")
    return Terminal(coloured=moves and not environ.get("NO_COLOR"), moves=moves)
