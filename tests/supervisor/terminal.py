"""A real terminal for tests: a program under a pty, its screen as pyte draws it.  Waits have a deadline."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyte

DEADLINE = 20.0
"""Seconds for what should take far less: the machine may be busy."""

TAKE_TERMINAL = 'exec "$@" 0<>"$0" 1>&0 2>&0'
"""A session's leader that opens a terminal gets it as its controlling one, as a login shell does."""


class AnsweringScreen(pyte.Screen):
    """A screen that answers what a program asks it, where the cursor is for instance."""

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, rows)
        self.answer = answer

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Terminal:
    """`screen` is what a person sees now; `raw` are all bytes that the program wrote."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str | None] | None = None,
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        self.screen = AnsweringScreen(columns, rows, self._answer)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._sent_at = 0
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(self.slave)
        merged = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": None, "PYTHONUNBUFFERED": None}
        merged |= environ or {}
        self.process = subprocess.Popen(
            ["sh", "-c", TAKE_TERMINAL, os.ttyname(self.slave), sys.executable, "-m", module, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={name: value for name, value in merged.items() if value is not None},
            start_new_session=True,
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.master >= 0 and self.process.poll() is None:
                self.process.terminate()
                self.wait_for_exit()
        finally:
            self.process.kill()
            self.process.wait()
            if self.master >= 0:
                os.close(self.master)
                os.close(self.slave)

    def send(self, text: str) -> None:
        """Type.  `wait_for_raw` looks at what is written from here on."""
        self._sent_at = len(self.raw)
        os.write(self.master, text.encode())

    def vanish(self) -> None:
        """The window is closed."""
        os.close(self.slave)
        os.close(self.master)
        self.master = -1

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, *texts: str) -> str:
        """Until all of them are on the screen; the screen."""
        return self._until(lambda: all(text in self.text() for text in texts), f"{texts} on the screen")

    def wait_for_last_line(self, text: str) -> str:
        """Until the last line that is not empty has it: where the prompt is, and nothing before it counts."""
        return self._until(lambda: text in self.text().rstrip().rpartition("\n")[2], f"{text!r} at the end")

    def wait_until_gone(self, text: str) -> str:
        return self._until(lambda: text not in self.text(), f"{text!r} to leave the screen")

    def wait_for_raw(self, data: bytes) -> None:
        self._until(lambda: data in self.raw[self._sent_at :], f"{data!r} to be written")

    def wait_for_exit(self) -> int:
        """The exit code; what is still written is read."""
        self._until(lambda: self.process.poll() is not None, "the program to end")
        while self._read(0):
            pass
        return self.process.wait()

    def colour(self, text: str) -> str:
        """The colour of the first character of `text`, at its last place on the screen."""
        return str(self._cell(text).fg)

    def modes_now(self) -> list[Any]:
        return termios.tcgetattr(self.slave)

    def restored(self) -> bool:
        """True when the terminal has the modes that it had before the program began."""
        return self.modes_now() == self.modes

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.process.pid, signal.SIGWINCH)

    def _cell(self, text: str) -> Any:
        for row in range(self.screen.lines - 1, -1, -1):
            column = self.screen.display[row].find(text)
            if column >= 0:
                return self.screen.buffer[row][column]
        raise AssertionError(f"{text!r} is not on the screen:\n{self.text()}")

    def _answer(self, data: str) -> None:
        os.write(self.master, data.encode())

    def _until(self, done: Any, what: str) -> str:
        deadline = time.monotonic() + DEADLINE
        while not done():
            left = deadline - time.monotonic()
            assert left > 0, f"waited {DEADLINE} s for {what}; the screen:\n{self.text()}"
            self._read(min(left, 0.05))
        return self.text()

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        data = os.read(self.master, 65536)
        self.raw += data
        self._stream.feed(data)
        return bool(data)
