"""Events of a session -> what stands on the terminal.  Everything from outside is made harmless here, once.

What is not here: where the text goes (`write`: above the prompt, or straight to the terminal), and how a
call or a diff looks in detail (calls.py, diff.py).
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from protocol.events import (
    AnyEvent,
    Compacted,
    Notice,
    PermissionAnswered,
    PermissionAsked,
    ReasoningDelta,
    ReplyFinished,
    ReplyRetried,
    RoundStarted,
    SandboxReady,
    SessionClosed,
    SessionStarted,
    StopReason,
    TextDelta,
    ToolFinished,
    ToolOutputDelta,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from protocol.policy import Rung
from supervisor.options import REHEARSAL
from supervisor.screen import calls
from supervisor.screen.cells import crop
from supervisor.screen.confined import in_short
from supervisor.screen.stream import OpenText, Size
from supervisor.screen.tones import Terminal, Tone

LEVELS = {"warning": Tone.WARNING, "error": Tone.BAD}
"""Tones of notices; all others are quiet."""


class View:
    """Draws one session's events.  Not safe for threads: all events come from the session's own."""

    def __init__(
        self,
        write: Callable[[str], None],
        terminal: Terminal,
        size: Size,
        harmless: Callable[[str], str],
        show: str = calls.PREVIEW,
    ) -> None:
        self._write = write
        self._terminal = terminal
        self._size = size
        self._harmless = harmless
        self._show = show
        self._open = OpenText(write, terminal, size)
        self._status = ""
        """What is waited for."""
        self._asked = ""
        """The keys of an open question, which stand there instead."""
        self._drawn = ""
        self._sandbox = ""
        """What was told of it last."""
        self._running: dict[str, ToolStarted] = {}
        self._held: list[str] = []
        """Lines that arrived while a text was open: they are printed after it."""

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case TextDelta():
                self._set_status("")
                self._open.add(self._harmless(event.text))
            case ReasoningDelta():
                if not self._open:
                    self._set_status("thinking…")
            case RoundStarted():
                self._set_status("waiting for the model…  (Ctrl-C interrupts)")
            case ReplyFinished():
                self._reply_finished(event)
            case ReplyRetried():
                self._retried(event.why)
            case ToolStarted() | ToolOutputDelta() | ToolFinished():
                self._tool(event)
            case TurnFinished():
                self._turn_finished(event)
            case SessionStarted() | SandboxReady() | Notice() | Compacted():
                self._told(event)
            case PermissionAsked():
                # What was open is narration: nothing of the question may be held back behind it.
                self._open.settle(Tone.NARRATION)
                self._release()
            case PermissionAnswered():
                self._lines([calls.decided(event, self._terminal, self._size()[0])])
            case TurnStarted() | SessionClosed():
                pass
            case _:
                assert_never(event)

    def line(self, text: str, tone: Tone = Tone.QUIET) -> None:
        """A line of the program's own, made harmless like all others."""
        self._lines([self._painted(text, tone)])

    def lines(self, lines: Sequence[str]) -> None:
        """Lines that are drawn already and harmless."""
        self._lines(list(lines))

    def waits(self, what: str) -> None:
        """A status line that is erased again; empty: nothing is waited for."""
        self._set_status(what)

    def asks(self, keys: str) -> None:
        """The line of keys of an open question: it stands in the status line's place until it is empty."""
        self._asked = keys
        self._draw_status()

    def _painted(self, text: str, tone: Tone) -> str:
        return self._terminal.paint(self._harmless(text), tone)

    def _lines(self, lines: list[str]) -> None:
        """Whole lines that are drawn already.  They never cut through a text that is still open."""
        if self._open:
            self._held += lines
            return
        self._erase_status()
        self._write("".join(f"{line}\n" for line in lines))
        self._draw_status()

    def _release(self) -> None:
        lines, self._held = self._held, []
        if lines:
            self._lines(lines)

    def _set_status(self, text: str) -> None:
        """One line that is erased again, at the place where the next output comes."""
        self._status = text
        self._draw_status()

    def _draw_status(self) -> None:
        text = self._asked or self._status
        if not self._terminal.moves or text == self._drawn:
            return
        erase = "\r\x1b[K" if self._drawn else ""
        self._drawn = text
        tone = Tone.WARNING if self._asked else Tone.QUIET
        drawn = self._terminal.paint(crop(text, self._size()[0] - 1), tone) if text else ""
        self._write(erase + drawn)

    def _erase_status(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = ""

    def _told(self, event: SessionStarted | SandboxReady | Notice | Compacted) -> None:
        match event:
            case SessionStarted():
                if event.rehearsal:
                    self.line(REHEARSAL, Tone.WARNING)
                again = "resumed" if event.resumed else "new"
                self.line(f"{event.conversation} ({again}) · {event.model} · {event.workspace}")
            case SandboxReady():
                # Each worker tells it, also the next one with a grant more: only what is new is a line.
                words = in_short(event.rung, event.notes, self._size()[0])
                if words != self._sandbox:
                    self._sandbox = words
                    self.line(words, Tone.QUIET if event.rung == Rung.FULL.value else Tone.WARNING)
            case Notice():
                self.line(event.text, LEVELS.get(event.level, Tone.QUIET))
            case Compacted():
                self._set_status("")
                self.line(f"compacted {event.pairs} turns: {event.before:,} → {event.after:,} tokens")
            case _:
                assert_never(event)

    def _reply_finished(self, event: ReplyFinished) -> None:
        self._set_status("")
        if not self._open and event.text.strip():
            # Nothing was streamed: the program itself speaks, or the server sent the reply at once.
            self._open.add(self._harmless(event.text))
        self._open.settle(Tone.NARRATION if event.kind == "narration" else Tone.ANSWER)
        self._release()

    def _retried(self, why: str) -> None:
        self._set_status("")
        whole = self._open.discard()
        replaced = "" if whole else "the text above is replaced; "
        self._release()
        self.line(f"{replaced}asking again: {why}", Tone.WARNING)

    def _tool(self, event: ToolStarted | ToolOutputDelta | ToolFinished) -> None:
        match event:
            case ToolStarted():
                # A call has begun, so what was open is narration.
                self._open.settle(Tone.NARRATION)
                self._release()
                self._running[event.call_id] = event
                self._set_status(f"{calls.started(event, self._harmless)} …")
            case ToolOutputDelta():
                call = self._running.get(event.call_id)
                last = event.text.rstrip().rpartition("\n")[2]
                if call is not None and last:
                    last = last.rpartition("\r")[2]
                    about = calls.started(call, self._harmless)
                    self._set_status(f"{crop(about, 40)} · {self._harmless(last)}")
            case ToolFinished():
                call = self._running.pop(event.call_id, None)
                arguments = call.arguments if call is not None else ""
                self._set_status("")
                columns = self._size()[0]
                self._lines(
                    calls.finished(event, arguments, self._terminal, self._show, self._harmless, columns)
                )
                if self._running:
                    still = next(reversed(self._running.values()))
                    self._set_status(f"{calls.started(still, self._harmless)} …")
            case _:
                assert_never(event)

    def _turn_finished(self, event: TurnFinished) -> None:
        self._set_status("")
        self._running.clear()
        self._open.settle(Tone.ANSWER)
        self._release()
        why = event.error or event.reason.value
        match event.reason:
            case StopReason.ANSWERED:
                pass
            case StopReason.ROUNDS:
                self.line("the round limit ended this turn (max_tool_rounds_per_turn)", Tone.WARNING)
            case StopReason.INTERRUPTED:
                self.line(f"[{why}]")
            case StopReason.FAILED:
                self.line(f"error: {why}", Tone.BAD)
            case StopReason.WITHDRAWN:
                self.line(f"nothing was kept of this turn ({why}); your line is in the editor again")
            case _:
                assert_never(event.reason)
