"""The text of a reply while it arrives.  Whether it is narration or the answer is known only at its end.

So it is written as it comes, in the neutral tone, into the plain scrollback.  Once its kind is known, the
part that is still on the screen is erased and written again in its own tone.  What has left the screen at
the top stays neutral: nothing that scrolled away is ever rewritten.  Without cursor movements the text is
written once and keeps the neutral tone.
"""

from collections.abc import Callable

from supervisor.screen.cells import rows
from supervisor.screen.tones import Terminal, Tone

Size = Callable[[], tuple[int, int]]
"""Columns and rows of the terminal."""


class OpenText:
    """The block that is still open.  Texts are harmless already."""

    def __init__(self, write: Callable[[str], None], terminal: Terminal, size: Size) -> None:
        self._write = write
        self._terminal = terminal
        self._size = size
        self._parts: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, text: str) -> None:
        """Write the text now; blank lines before the first word are left out."""
        if not self._parts:
            text = text.lstrip("\n")
        if text:
            self._parts.append(text)
            self._write(text)

    def settle(self, tone: Tone) -> None:
        """The kind is known: the text stays, in its tone, and its line ends.  A coloured terminal redraws."""
        text = self._take()
        if not text:
            return
        if self._terminal.moves and self._terminal.coloured:
            visible = self._erase(text)
            self._write(self._terminal.paint(visible.rstrip("\n"), tone) + "\n")
        else:
            self._write("" if text.endswith("\n") else "\n")

    def discard(self) -> bool:
        """Another try replaces the text.  True when all of it could be erased."""
        text = self._take()
        if not text:
            return True
        if not self._terminal.moves:
            self._write("" if text.endswith("\n") else "\n")
            return False
        return self._erase(text) == text

    def _take(self) -> str:
        text = "".join(self._parts)
        self._parts.clear()
        return text

    def _erase(self, text: str) -> str:
        """Erase what is still on the screen, whole lines from the end; that part of the text."""
        columns, height = self._size()
        lines = text.split("\n")
        at, used = len(lines), 0
        while at > 0:
            needed = rows(lines[at - 1], columns)
            # Never the top row: a terminal that is cleared from there may put what stood there into its
            # scrollback (tmux does), and the text would stand twice.
            if used + needed > height - 1:
                break
            used += needed
            at -= 1
        if used:
            up = f"\x1b[{used - 1}A" if used > 1 else ""
            self._write(f"\r{up}\x1b[J")
        return "\n".join(lines[at:])
