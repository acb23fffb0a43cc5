"""Keys that are read while a question is open: bytes of a terminal -> what was pressed.  Pure.

A paste is told from typing: by the marks that a terminal puts around one, which are asked for while a
question is open.  Not here: which key means what (asking.py), and keys at the prompt (editor.py).
"""

import codecs
import re
from dataclasses import dataclass

MARK_PASTES, MARK_NO_PASTES = "\x1b[?2004h", "\x1b[?2004l"
"""What a terminal is told, so that it marks pastes, and no longer."""

_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O\x1b])", re.DOTALL)
"""An arrow, a function key, Alt with a key: no answer to anything."""


@dataclass(frozen=True)
class Typed:
    """One character, control characters too."""

    text: str


@dataclass(frozen=True)
class Pasted:
    """A text that nobody typed."""

    text: str


@dataclass(frozen=True)
class Escape:
    """Esc alone."""


@dataclass(frozen=True)
class Other:
    """A key that is no character."""


Press = Typed | Pasted | Escape | Other


class Keys:
    """Remembers what a read has cut: half a character, the rest of a paste."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._paste: str | None = None
        """What has come of a paste so far."""

    def feed(self, data: bytes) -> list[Press]:
        """What these bytes say.  An ESC at their end is the key: who reads has waited for the rest."""
        text, found = self._decoder.decode(data), list[Press]()
        while text:
            if self._paste is not None:
                whole, ended, text = (self._paste + text).partition(_END)
                self._paste = None if ended else whole
                if ended:
                    found.append(Pasted(whole))
                else:
                    text = ""
            elif text.startswith(_BEGIN):
                self._paste, text = "", text.removeprefix(_BEGIN)
            elif sequence := _SEQUENCE.match(text):
                found.append(Other())
                text = text[sequence.end() :]
            elif text.startswith("\x1b"):
                found.append(Escape())
                text = text[1:]
            else:
                found.append(Typed(text[0]))
                text = text[1:]
        return found
