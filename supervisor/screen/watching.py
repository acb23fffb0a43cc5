"""Keys while no prompt is shown: they answer an open question, interrupt, or wait for the next prompt.

Everything here runs in the main thread.  Not here: what a key answers (asking.py), and the prompt's own keys
(editor.py).
"""

from collections.abc import Callable

import trio

from supervisor.screen.asking import ScreenAsker
from supervisor.screen.lines import ESCAPE_SECONDS, Lines
from supervisor.screen.tty import read_waiting

ESCAPE = b"\x1b"
CTRL_C = b"\x03"


class Watching:
    """`asking.Input` too.  `descriptor`: the terminal, or None where lines are read instead of keys.  `gone`
    is called when it has gone away, `interrupt` when what runs is to end."""

    def __init__(
        self,
        descriptor: int | None,
        lines: Lines,
        gone: Callable[[], None],
        interrupt: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._lines = lines
        self._gone = gone
        self._interrupt = interrupt

    def forget_typed(self) -> None:
        """It waits for the next prompt."""
        while self._descriptor is not None and (typed := read_waiting(self._descriptor)):
            self._typed(typed)

    def ask_line(self, prompt: str) -> bool:
        return self._lines.question(prompt)

    async def watch(self, asker: ScreenAsker) -> None:
        """Until cancelled: keys answer an open question; without one a lone Esc interrupts, and all others
        wait for the next prompt."""
        if self._descriptor is None:
            return
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            asked = asker.is_open
            data = read_waiting(self._descriptor)
            if data is None:
                continue  # a question has begun meanwhile, and forgot what was typed
            if data == ESCAPE or (data and asker.wants_lone_keys):
                with trio.move_on_after(ESCAPE_SECONDS):
                    await trio.lowlevel.wait_readable(self._descriptor)
                    data += read_waiting(self._descriptor) or b""
            if asked and data and CTRL_C not in data:
                asker.press(data)
                continue
            if not data:
                self._gone()
            self._typed(data)
            if not data:
                return

    def _typed(self, data: bytes) -> None:
        """Keys that answer no question."""
        # A Ctrl-C that came before the terminal made signals of them is a byte.
        before, ctrl_c, after = data.partition(CTRL_C)
        typed = after if ctrl_c else before
        if typed not in (b"", ESCAPE):
            self._lines.type_ahead(typed)
        if ctrl_c or data in (b"", ESCAPE):
            self._interrupt()
