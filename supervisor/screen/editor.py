"""The line editor of a real terminal: prompt_toolkit in a thread of its own, with its own loop.

The thread lives as long as the REPL.  Keys never wait for the supervisor's loop, and output that comes while
the prompt is shown is printed above it, here and nowhere else.  Other threads reach prompt_toolkit only by
`call_soon_threadsafe`.
"""

import asyncio
import codecs
import contextvars
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from supervisor.screen.lines import ESCAPE_SECONDS, HINT, Leave, Line, Outbox, Outcome, Presses
from supervisor.screen.prompt import Fragments
from supervisor.screen.tty import GONE, Output, hush

CHORD_SECONDS = 0.15
"""How long Esc waits for a key of a chord such as Esc-Enter."""

ENDS = ("\r", "\n")
"""What Enter sends."""

STOP_SECONDS = 2.0
"""How long the end waits for the thread; the modes of the terminal are restored in any case."""


class Drawing(Vt100_Output):
    """What prompt_toolkit draws on.  A terminal that went away is no error here: its keys end the prompt."""

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            if error.errno not in GONE:
                raise


class Editor:
    """See lines.Lines for what each method promises."""

    def __init__(
        self, draw: Callable[[], Fragments], output: Output, descriptor: int = 0, banner: str = ""
    ) -> None:
        self._draw = draw
        self._banner = banner
        """A line that always stands below the prompt."""
        self._output = output
        self._descriptor = descriptor
        self._asks: SimpleQueue[str | None] = SimpleQueue()
        self._outbox = Outbox()
        self._presses = Presses()
        self._lock = threading.Lock()
        self._above: list[str] = []
        """Output that waits for the prompt to make room."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """prompt_toolkit's loop while the prompt is shown."""
        self._context = contextvars.copy_context()
        self._asked = True
        """A prompt is shown or about to be."""
        self._pressed = False
        """A SIGINT that the prompt has not answered yet."""
        self._stopped = False
        self._typed = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._session: PromptSession[str] | None = None
        self._shown = threading.Event()
        """Set when the first prompt is on the screen, or the thread has ended."""
        self._thread = threading.Thread(target=self._run, name="editor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_until_shown(self, seconds: float) -> None:
        self._shown.wait(seconds)

    def connect(self, deliver: Callable[[Outcome], None]) -> None:
        self._outbox.connect(deliver)

    def ask(self, default: str = "") -> None:
        with self._lock:
            self._asked = True
        self._asks.put(default)

    def question(self, prompt: str) -> bool:
        return False

    def write(self, text: str) -> None:
        with self._lock:
            if self._loop is None:
                self._output.write(text)
                return
            self._above.append(text)
            self._call(self._loop, self._make_room)

    def redraw(self) -> None:
        self._soon(self._invalidate)

    def press_interrupt(self) -> bool:
        with self._lock:
            self._pressed = self._loop is not None
        self._soon(self._answer_press)
        return self._asked

    def type_ahead(self, keys: bytes) -> None:
        if self._session is None:
            return
        presses: list[KeyPress] = []
        parser = Vt100Parser(presses.append)
        parser.feed(self._typed.decode(keys))
        parser.flush()
        store_typeahead(self._session.app.input, presses)

    def take_back(self) -> str:
        if self._session is None:
            return ""
        texts = [press.data for press in get_typeahead(self._session.app.input)]
        typed = "".join(" " if text in ENDS else text for text in texts if text in ENDS or text.isprintable())
        return " ".join(typed.split())

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
        self._asks.put(None)
        self._soon(self._exit)
        self._thread.join(STOP_SECONDS)

    def _soon(self, act: Callable[[], None]) -> None:
        """Run `act` in the editor's thread, if the prompt is shown."""
        with self._lock:
            if self._loop is not None:
                self._call(self._loop, act)

    def _call(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        """The prompt may have closed its loop already; then `_disappears` comes next, and what waits is seen
        to after it."""
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(act, context=self._context)

    # Below: the editor's thread.

    def _run(self) -> None:
        try:
            hush(self._descriptor)
            self._output.write("\r\x1b[K")  # the glyph that was there before us
            self._session = session = self._build()
            default: str | None = ""
            while default is not None:
                self._outbox.put(self._ask_once(session, default))
                self._interrupt_if_pressed(session)
                default = self._asks.get()
        finally:
            # Whatever ended this thread, nobody may wait for it.
            self._shown.set()
            self._outbox.put(Leave())

    def _build(self) -> PromptSession[str]:
        session: PromptSession[str] = PromptSession(
            message=lambda: FormattedText(self._draw()),
            history=InMemoryHistory(),
            key_bindings=self._bindings(),
            bottom_toolbar=self._banner or None,
            output=Drawing.from_pty(
                sys.stdout, term=os.environ.get("TERM"), default_color_depth=ColorDepth.from_env()
            ),
        )
        session.app.ttimeoutlen = ESCAPE_SECONDS
        session.app.timeoutlen = CHORD_SECONDS
        session.app.after_render += lambda _: self._shown.set()
        return session

    def _ask_once(self, session: PromptSession[str], default: str) -> Outcome:
        try:
            typed = session.prompt(
                default=default,
                handle_sigint=False,  # signals belong to the main thread
                set_exception_handler=False,
                pre_run=self._appears,
            )
            # Where the locale is not UTF-8, prompt_toolkit hands the bytes of other characters as surrogates.
            return Line(typed.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        except EOFError:
            return Leave()
        finally:
            self._disappears()

    def _interrupt_if_pressed(self, session: PromptSession[str]) -> None:
        """Ctrl-C so soon after Enter that this prompt still got it: it is meant for what runs now."""
        presses = get_typeahead(session.app.input)
        at = next((index for index, press in enumerate(presses) if press.key is Keys.ControlC), None)
        store_typeahead(session.app.input, presses if at is None else presses[at + 1 :])
        with self._lock:
            pressed, self._pressed = self._pressed, False
        if pressed or at is not None:
            os.kill(os.getpid(), signal.SIGINT)

    def _answer_press(self) -> None:
        """A SIGINT came while the prompt was shown; one that comes when its line has ended is left over."""
        app = self._session.app if self._session is not None else None
        if app is not None and app.is_running and not app.is_done:
            with self._lock:
                self._pressed = False
            self._interrupted()

    def _appears(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._context = contextvars.copy_context()
            stopped = self._stopped
        if stopped:
            self._exit()

    def _disappears(self) -> None:
        with self._lock:
            self._loop = None
            self._asked = False
            self._print()

    def _make_room(self) -> None:
        if self._above:
            run_in_terminal(self._print_above)

    def _print_above(self) -> None:
        with self._lock:
            self._print()

    def _print(self) -> None:
        """Write what waits.  The lock is held: so no other thread writes between."""
        texts = "".join(self._above)
        self._above.clear()
        if texts:
            self._output.write(texts)

    def _exit(self) -> None:
        app = self._session.app if self._session is not None else None
        if app is not None and app.future is not None and not app.future.done():
            app.exit(exception=EOFError)

    def _invalidate(self) -> None:
        if self._session is not None:
            self._session.app.invalidate()

    def _interrupted(self) -> None:
        """Ctrl-C at the prompt: a typed line is put aside, an empty one hints, then leaves."""
        if self._session is None:
            return
        buffer = self._session.default_buffer
        if buffer.text:
            buffer.append_to_history()
            buffer.reset()
        elif self._presses.leaves():
            self._exit()
        else:
            self.write(f"{HINT}\n")

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("c-c")
        @bindings.add("<sigint>")
        def interrupt(event: KeyPressEvent) -> None:
            del event
            self._interrupted()

        @bindings.add("c-d")
        def end(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.delete()
            else:
                self._exit()

        @bindings.add("escape")
        def nothing(event: KeyPressEvent) -> None:
            """A lone Esc changes nothing at the prompt; not eager, so chords with it still work."""
            del event

        return bindings
