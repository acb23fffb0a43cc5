"""One command's output on its three ways: raw to the record, as text to the model, live to the screen."""

from collections.abc import Callable

from protocol.policy import OUTPUT_MOUNT
from worker.output.clip import Clip, Clipped
from worker.output.live import Live
from worker.output.record import Record
from worker.output.terminal_text import TerminalText

RESERVE = 1500
"""Bytes of a result that are kept free for the program's own lines, if the cap allows it."""

PREVIEW_LINES = 12
PREVIEW_BYTES = 2000


class Capture:
    """Feed it bytes; after `finish`, ask it for the text."""

    def __init__(self, record: Record, cap: int, say: Callable[[str], None]) -> None:
        self.record = record
        self._screen = TerminalText()
        self._clip = Clip(max(cap - RESERVE, cap // 2))
        self._live = Live(say)
        self._clipped = Clipped("", 0, "")

    def write(self, data: bytes) -> None:
        self.record.write(data)
        self._clip.add(self._screen.feed(data))
        self._live.add(data)

    def tick(self) -> None:
        """Time has passed: the screen may be due."""
        self._live.flush()

    def finish(self) -> None:
        self._live.flush(now=True)
        self._clip.add(self._screen.finish())
        self._clipped = self._clip.clipped()
        if self._clipped.left_out:
            self.record.spill()  # replacement characters can make a text longer than its bytes

    @property
    def lines(self) -> int:
        return self._clip.lines

    def text(self) -> str:
        """What the model gets of it; the cut is named where it was made."""
        clipped = self._clipped
        if not clipped.left_out:
            return clipped.head
        cut = f"[... {clipped.left_out:,} bytes left out here; {self._whereabouts()} ...]\n"
        return _ended(clipped.head) + cut + clipped.tail

    def notes(self) -> list[str]:
        """What has to be said about the text, a line each."""
        record, notes = self.record, []
        if record.outgrown and record.file and not self._clipped.left_out:
            notes.append(f"[{record.size:,} raw bytes; {self._whereabouts()}]")
        if record.file and record.dropped:
            why = record.why_no_file or "the file is full"
            notes.append(f"[the last {record.dropped:,} of {record.size:,} bytes are not in the file: {why}]")
        if self._screen.binary:
            notes.append("[binary output: NUL bytes are left out above]")
        if self._screen.invalid:
            notes.append("[some bytes are not UTF-8: they are shown as \ufffd]")
        return notes

    def preview(self) -> str:
        """The first and last lines for the user, at most about 2 kB."""
        text = (
            _ended(self._clipped.head) + self._clipped.tail if self._clipped.left_out else self._clipped.head
        )
        return preview(text, self.lines)

    def _whereabouts(self) -> str:
        if self.record.file:
            return whereabouts(self.record.file)
        return f"no file holds the whole: {self.record.why_no_file}" if self.record.why_no_file else "no file"


def preview(text: str, count: int) -> str:
    """The first and last lines of a text that has, or is cut out of, `count` lines."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) > PREVIEW_LINES:
        half = PREVIEW_LINES // 2
        lines = [*lines[:half], f"… {count - 2 * half} lines …", *lines[-half:]]
    width = PREVIEW_BYTES // PREVIEW_LINES
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)


def whereabouts(name: str) -> str:
    """Where the model finds an output file, with its tools and in commands."""
    return f"the whole output: {OUTPUT_MOUNT}/{name}, for commands $POLIER_OUTPUT/{name}"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
