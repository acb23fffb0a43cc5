"""Where the REPL's lines come from: what an editor tells, and the plain one for pipes and dumb terminals.

The editor of a real terminal is in editor.py; both have the same methods.
"""

import os
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from supervisor.harmless import harmless
from supervisor.screen.prompt import Fragments
from supervisor.screen.tty import Output

PRESS_AGAIN = 2.0
"""Seconds within which a second Ctrl-C at an empty prompt leaves."""

ESCAPE_SECONDS = 0.05
"""How long a lone Esc waits for the rest of a sequence; prompt_toolkit's 0.5 s feel like a hang."""

HINT = "press Ctrl-C again to leave, or Ctrl-D"


@dataclass(frozen=True)
class Line:
    """The user has ended a line."""

    text: str


@dataclass(frozen=True)
class Leave:
    """The user wants to go: Ctrl-D, Ctrl-C twice, the end of the input."""


Outcome = Line | Leave


class Lines(Protocol):
    """An editor in a thread of its own.  It asks for the first line as soon as it is started."""

    def start(self) -> None: ...
    def wait_until_shown(self, seconds: float) -> None:
        """Return when the first prompt is on the screen, or after so many seconds."""
        ...

    def connect(self, deliver: Callable[[Outcome], None]) -> None:
        """From now on each outcome is handed to `deliver`, in the editor's thread; earlier ones at once."""
        ...

    def ask(self, default: str = "") -> None:
        """Show the prompt again, with `default` in it.  One outcome follows."""
        ...

    def question(self, prompt: str) -> bool:
        """While a turn runs: show this prompt and ask for a line; one outcome follows, which the next `ask`
        takes over where nobody waits for it any more.  False where the input has ended, or keys are read
        instead of lines."""
        ...

    def write(self, text: str) -> None:
        """Print: above the prompt where it is shown (whole lines only), else at once.  Any thread."""
        ...

    def redraw(self) -> None:
        """The prompt has something new to show."""
        ...

    def press_interrupt(self) -> bool:
        """A SIGINT came while no turn ran: the same as Ctrl-C at the prompt.

        False where there is no prompt, since a line was given and nobody has asked for the next one.
        """
        ...

    def type_ahead(self, keys: bytes) -> None:
        """Keys that were read between two prompts: the next prompt gets them first."""
        ...

    def take_back(self) -> str:
        """What was typed ahead, as text without its line ends; the next prompt does not get it."""
        ...

    def stop(self) -> None:
        """Leave the prompt and end the thread.  Returns when the terminal has its modes back."""
        ...


class Presses:
    """Ctrl-C at an empty prompt: the first one hints, the second within PRESS_AGAIN leaves."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = float("-inf")

    def leaves(self) -> bool:
        """Count a press; True when it is the second one."""
        before, self._last = self._last, self._now()
        return self._last - before <= PRESS_AGAIN


class Outbox:
    """Outcomes on their way from the editor's thread; kept until somebody is connected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Outcome] = []
        self._deliver: Callable[[Outcome], None] = self._kept.append

    def put(self, outcome: Outcome) -> None:
        with self._lock:
            self._deliver(outcome)

    def connect(self, deliver: Callable[[Outcome], None]) -> None:
        with self._lock:
            self._deliver = deliver
            for outcome in self._kept:
                deliver(outcome)
            self._kept.clear()


class PlainLines:
    """Lines of a pipe, a file or a dumb terminal: a prompt is printed, a line is read, nothing is drawn."""

    def __init__(self, draw: Callable[[], Fragments], output: Output, descriptor: int = 0) -> None:
        self._draw = draw
        self._output = output
        self._descriptor = descriptor
        self._asks: SimpleQueue[bool] = SimpleQueue()
        self._outbox = Outbox()
        self._presses = Presses()
        self._buffer = b""
        self._lock = threading.Lock()
        self._asked = True
        self._prompted = False
        """The prompt is the last thing that was printed."""
        self._question = ""
        """What stands there instead of the prompt."""
        self._reading = True
        """A line is on its way, or asked for."""
        self._ended = False
        # A read of a pipe can't be called off, so this thread is not waited for.
        self._thread = threading.Thread(target=self._run, name="plain lines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_until_shown(self, seconds: float) -> None:
        """There is nothing to wait for."""

    def connect(self, deliver: Callable[[Outcome], None]) -> None:
        self._outbox.connect(deliver)

    def ask(self, default: str = "") -> None:
        if default:
            self._output.write(f"(not sent: {harmless(default)})\n")
        self._ask("")

    def question(self, prompt: str) -> bool:
        with self._lock:
            if self._ended:
                return False
            if os.isatty(self._descriptor):
                with suppress(termios.error):  # the terminal may be gone
                    termios.tcflush(self._descriptor, termios.TCIFLUSH)
                self._buffer = b""
        self._ask(prompt)
        return True

    def _ask(self, question: str) -> None:
        with self._lock:
            self._question = question
            self._asked = True
            self._prompted = False
            wanted, self._reading = not self._reading, True
        self.redraw()
        if wanted:
            self._asks.put(True)

    def write(self, text: str) -> None:
        with self._lock:
            again = self._prompted
            self._output.write(f"\n{text}" if again else text)
            self._prompted = False
            if again:
                self._prompt()

    def redraw(self) -> None:
        """Print the prompt, unless it stands there already."""
        with self._lock:
            if self._asked and not self._prompted:
                self._prompt()

    def press_interrupt(self) -> bool:
        if not self._asked:
            return False
        if self._presses.leaves():
            with self._lock:
                self._asked = self._prompted = False
            self._output.write("\n")  # what comes next doesn't stand behind the prompt
            self._outbox.put(Leave())
        else:
            self.write(f"{HINT}\n")
        return True

    def type_ahead(self, keys: bytes) -> None:
        """Never called: between two prompts nothing is read."""

    def take_back(self) -> str:
        return ""

    def stop(self) -> None:
        self._asks.put(False)

    def _run(self) -> None:
        while True:
            line = self._line()
            with self._lock:
                self._asked = self._prompted = self._reading = False
                self._ended = line is None
            if line is None:
                self._output.write("\n")
                self._outbox.put(Leave())
                return
            self._outbox.put(Line(line))
            if not self._asks.get():
                return

    def _prompt(self) -> None:
        self._output.write(self._question or "".join(text for _, text in self._draw()))
        self._prompted = True

    def _line(self) -> str | None:
        """The next line without its end; None at the end of the input."""
        while b"\n" not in self._buffer:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:  # closed, or the terminal is gone: the end of the input
                data = b""
            if not data:
                rest, self._buffer = self._buffer, b""
                return rest.decode("utf-8", "replace") if rest else None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")
