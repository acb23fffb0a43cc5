"""Raw output -> the text that a terminal would finally show.  Pure, streaming, bounded.

A progress bar redraws its line a thousand times; the model needs the last picture only.  So the newest
rows are kept as a small screen on which carriage return, backspace, erase and cursor moves act, and a row
becomes text for good when it scrolls out.  However the bytes are split over `feed`s, the text is the same.

Three things are simpler than a real terminal: every character is one cell wide, a cleared screen begins a
new row (what stood there is kept above), and a row that reaches ROW_CHARS is fixed piece by piece.

Not here: how much of the text is kept (clip.py).
"""

import codecs
import re

ROWS = 40
"""Rows that may still be redrawn.  Programs that move up do so within a terminal's height."""

ROW_CHARS = 16_384
"""Characters of a row that may still be redrawn: what one backspace costs is bounded by it."""

_ODD = re.compile("[\x00-\x06\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_PLAINER: dict[int, str | None] = dict.fromkeys([*range(7), *range(0x0E, 0x1B), *range(0x1C, 0x20)])
_PLAINER |= dict.fromkeys(range(0x7F, 0xA0))
_PLAINER |= {0x0B: "\n", 0x0C: "\n"}
"""Control characters that show nothing are dropped; vertical tab and form feed move down."""

_ACTIVE = re.compile("[\x07\b\r\x1b]")
"""What does more than print; BEL is here because it also ends a title."""

_STRING = "[^\x00-\x1f\x7f]{0,4096}"
_SEQUENCE = re.compile(
    "\x1b(?:"
    r"\[(?P<numbers>[0-?]{0,64})[ -/]{0,8}(?P<act>[@-~])"
    rf"|[\]PX^_]{_STRING}(?:\x07|\x1b\\|(?=\x1b[^\\]))"
    r"|[ -/]{1,8}[0-~]"
    r"|(?P<short>[0-OQ-WYZ\\`-~])"
    ")"
)
_PARTIAL = re.compile(rf"\x1b(?:\[[0-?]{{0,64}}[ -/]{{0,8}}|[\]PX^_]{_STRING}\x1b?|[ -/]{{0,8}})\Z")
"""The beginning of a sequence that may go on in the next bytes."""


class TerminalText:
    """`invalid`: some bytes were no UTF-8 and became replacement characters.  `binary`: NUL bytes came."""

    def __init__(self) -> None:
        self.invalid = False
        self.binary = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._held = ""
        self._rows = [""]
        self._row = 0
        self._column = 0
        self._fixed: list[str] = []

    def feed(self, data: bytes) -> str:
        """The text that can't change any more since the last call; possibly empty."""
        self._play(self._held + self._decoded(data))
        return self._take()

    def finish(self) -> str:
        """The rest.  Nothing may be fed afterwards."""
        self._play(self._held + self._decoded(b"", final=True))
        self._fixed.append("\n".join(self._rows))
        return self._take()

    def _take(self) -> str:
        text = "".join(self._fixed)
        self._fixed.clear()
        return text

    def _decoded(self, data: bytes, final: bool = False) -> str:
        self.binary = self.binary or b"\0" in data
        try:
            return self._decoder.decode(data, final)
        except UnicodeDecodeError:
            self.invalid = True
            begun = self._decoder.getstate()[0]
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
            return self._decoder.decode(begun + data, final)

    def _play(self, text: str) -> None:
        """Print `text`; what may be the beginning of something longer is held for the next time."""
        self._held = ""
        if _ODD.search(text):
            text = text.translate(_PLAINER)
        text = text.replace("\r\n", "\n")  # the same, but cheaper; a pair that is torn here acts in two steps
        at = 0
        while at < len(text):
            found = _ACTIVE.search(text, at)
            end = found.start() if found else len(text)
            for start in range(at, end, ROW_CHARS - 1):
                self._print(text[start : min(end, start + ROW_CHARS - 1)])
            at = end
            if at < len(text):
                at = self._act(text, at)

    def _act(self, text: str, at: int) -> int:
        """Do what the character at `at` asks for.  The index to go on from."""
        match text[at]:
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case "\x1b":
                sequence = _SEQUENCE.match(text, at)
                if sequence:
                    self._sequence(sequence)
                    return sequence.end()
                if _PARTIAL.match(text, at):
                    self._held = text[at:]
                    return len(text)
            case _:
                pass
        return at + 1

    def _sequence(self, sequence: re.Match[str]) -> None:
        if sequence["short"] == "c":
            self._begin_afresh()
        numbers, act = sequence["numbers"], sequence["act"]
        if act is None or numbers[:1] in ("<", "=", ">", "?"):
            return
        first = re.match(r"\d*", numbers)
        self._control(act, int(first[0]) if first and first[0] else 0)

    def _control(self, act: str, number: int) -> None:
        """A control sequence with its first number; those that only colour or configure do nothing."""
        step = max(1, number)
        match act:
            case "A" | "F":
                self._row = max(0, self._row - step)
            case "B" | "E":
                self._row = min(len(self._rows) - 1, self._row + step)
            case "C":
                self._column = min(ROW_CHARS - 1, self._column + step)
            case "D":
                self._column = max(0, self._column - step)
            case "G":
                self._column = min(ROW_CHARS, step) - 1
            case "K":
                self._erase_in_row(number)
            case "J" if number == 0:
                self._erase_in_row(0)
                del self._rows[self._row + 1 :]
            case "J" | "H" | "f":
                self._begin_afresh()
            case _:
                pass
        if act in ("E", "F"):
            self._column = 0

    def _erase_in_row(self, which: int) -> None:
        row = self._rows[self._row]
        match which:
            case 0:
                row = row[: self._column]
            case 1:
                row = " " * min(len(row), self._column + 1) + row[self._column + 1 :]
            case _:
                row = ""
        self._rows[self._row] = row

    def _begin_afresh(self) -> None:
        """The screen is cleared or addressed as a whole: go on below what stands there."""
        self._row = len(self._rows) - 1
        if self._rows[self._row]:
            self._rows.append("")
            self._row += 1
            self._scroll()
        self._column = 0

    def _print(self, text: str) -> None:
        """Print text that has line breaks, but nothing active, and less than ROW_CHARS characters."""
        line, broken, rest = text.partition("\n")
        self._put(line)
        while broken and self._row < len(self._rows) - 1:
            self._row += 1
            self._column = 0
            line, broken, rest = rest.partition("\n")
            self._put(line)
        if not broken:
            return
        added = rest.rsplit("\n", ROWS)
        if len(added) > ROWS:
            self._fixed += ("\n".join(self._rows), "\n", added[0], "\n")
            self._rows = added[1:]
        else:
            self._rows += added
        self._row = len(self._rows) - 1
        self._column = len(self._rows[-1])
        self._scroll()

    def _put(self, run: str) -> None:
        """Write over the cells from the cursor on."""
        if not run:
            return
        row = self._rows[self._row].ljust(self._column)
        row = row[: self._column] + run + row[self._column + len(run) :]
        self._column += len(run)
        if len(row) >= ROW_CHARS:
            self._fixed += (line + "\n" for line in self._rows[: self._row])
            self._fixed.append(row[:ROW_CHARS])
            del self._rows[: self._row]
            self._row = 0
            row = row[ROW_CHARS:]
            self._column = max(0, self._column - ROW_CHARS)
        self._rows[self._row] = row

    def _scroll(self) -> None:
        """Fix the rows that have left the screen; the cursor is on the last one."""
        gone = len(self._rows) - ROWS
        if gone > 0:
            self._fixed += (line + "\n" for line in self._rows[:gone])
            del self._rows[:gone]
            self._row -= gone


def shown(data: bytes) -> str:
    """The text of bytes that are there as a whole."""
    text = TerminalText()
    return text.feed(data) + text.finish()
