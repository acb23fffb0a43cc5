"""The REPL's loop on the trio side: a line from the editor becomes a turn or a command.

Everything here runs in the main thread; the editor's thread hands over outcomes and is told what to do
next.  What is not here: how lines are edited (editor.py), how events look (view.py).
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import assert_never

import trio

from protocol.conversation import User
from protocol.events import AnyEvent, SandboxReady, StopReason
from protocol.policy import Rung
from supervisor.exits import HUNG_UP, TERMINATED, StopError, first_stop
from supervisor.model.errors import ModelError
from supervisor.screen import report
from supervisor.screen.asking import ScreenAsker
from supervisor.screen.confined import alarm
from supervisor.screen.lines import Leave, Line, Lines, Outcome
from supervisor.screen.port import Open, Prepared, Sandbox, Talk
from supervisor.screen.prompt import Shown
from supervisor.screen.sandbox import SandboxCommands
from supervisor.screen.slash import Command, Nothing, Say, Unknown, help_lines, meaning, refusal
from supervisor.screen.tones import Terminal, Tone
from supervisor.screen.tty import Output
from supervisor.screen.view import View
from supervisor.screen.watching import Watching

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXITS: dict[int, int] = {signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


@dataclass
class Ended:
    """How the REPL ended: its exit code, and what there is to go on with."""

    exit_code: int = 0
    conversation: str = ""
    """Empty where no turn was played, so there is nothing to resume."""


class Repl:
    """One run of the REPL.  `keys`: the descriptor that is read for Esc while a turn runs, or None."""

    def __init__(
        self,
        lines: Lines,
        output: Output,
        terminal: Terminal,
        prepared: Prepared,
        shown: Shown,
        keys: int | None,
    ) -> None:
        self._lines = lines
        self._output = output
        self._terminal = terminal
        self._prepared = prepared
        self._shown = shown
        self._keys = keys
        self._view = View(lines.write, terminal, output.size, prepared.harmless, prepared.show)
        self._watching = Watching(keys, lines, lambda: self._leave(HUNG_UP), self._stop)
        self._asker = ScreenAsker(
            self._view, lines.write, terminal, output.size, self._watching, has_keys=keys is not None
        )
        self._commands = SandboxCommands(self._view, terminal, output.size, self._asker, prepared.look)
        self._sandbox: Sandbox | None = None
        self._rung: Rung | None = None
        self._outcomes, self._incoming = _channel()
        self._interrupt: Callable[[], None] | None = None
        """Ends what runs now: a turn, a compaction.  None while the prompt is shown."""
        self._called_back = False
        """Ctrl-C came while a line waited to be played, since the conversation is still being opened."""
        self._leaving = False
        self._ended = Ended()

    async def run(self) -> Ended:
        """Play until the user leaves.  Raises StopError where a conversation can't be opened."""
        try:
            with self._outcomes, trio.open_signal_receiver(*SIGNALS) as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._obey_signals, signals, nursery.cancel_scope)
                    self._connect()
                    for notice in self._prepared.notices:
                        self._view.line(notice, Tone.WARNING)
                    opening: Open | None = self._prepared.open
                    while opening is not None and not self._leaving:
                        opening = await self._conversation(opening)
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise first_stop(group) or group from None
        return self._ended

    def _connect(self) -> None:
        token = trio.lowlevel.current_trio_token()

        def deliver(outcome: Outcome) -> None:
            with suppress(trio.RunFinishedError):  # the editor ends after the loop
                token.run_sync_soon(self._take, outcome)

        self._lines.connect(deliver)

    def _take(self, outcome: Outcome) -> None:
        if isinstance(outcome, Leave):
            # A terminal that went away ends the input as well, before or after its SIGHUP.
            gone = self._keys is not None and not os.isatty(self._keys)
            self._leave(HUNG_UP if gone else 0)
        if self._asker.is_open:
            self._asker.take_line(outcome)
            return
        with suppress(trio.BrokenResourceError):  # nobody asks any more
            self._incoming.send_nowait(outcome)

    def _stop(self) -> None:
        if self._interrupt is not None:
            self._interrupt()

    def _leave(self, code: int) -> None:
        if not self._leaving:
            self._leaving = True
            self._ended.exit_code = code

    async def _obey_signals(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for number in signals:
            if number in EXITS:
                self._leave(EXITS[number])
                self._incoming.send_nowait(Leave())
                if self._shown.source is None:
                    scope.cancel()  # it is still being opened, so nothing can be lost
            if self._interrupt is not None:
                self._interrupt()
            elif number == signal.SIGINT and not self._lines.press_interrupt():
                self._called_back = True

    async def _conversation(self, opening: Open) -> Open | None:
        """One conversation from its opening to its end; what to open next."""
        async with opening(self._tell, self._asker) as parts:
            session = parts.session
            self._sandbox = parts.sandbox
            self._shown.source = session
            self._sound_alarm()
            try:
                return await self._converse(session)
            finally:
                self._shown.source = self._sandbox = self._rung = None
                if session.turn > 1:
                    self._ended.conversation = session.id

    def _tell(self, event: AnyEvent) -> None:
        if isinstance(event, SandboxReady):
            self._rung = Rung(event.rung)
            self._sound_alarm()
        self._view(event)

    def _sound_alarm(self) -> None:
        """While nothing confines commands, every prompt says so."""
        mode = self._sandbox.mode if self._sandbox is not None else None
        self._shown.alarm = alarm(mode, self._rung)
        if self._shown.source is not None:
            self._lines.redraw()

    async def _converse(self, session: Talk) -> Open | None:
        while True:
            outcome = await self._outcomes.receive()
            match outcome:
                case Leave():
                    return None
                case Line(text):
                    again = ""
                    match meaning(text):
                        case Nothing():
                            pass
                        case Say(words) if self._called_back:
                            self._view.line("[interrupted before it was sent]")
                            again = words
                        case Say(words):
                            again = await self._turn(session, words)
                        case Unknown() as unknown:
                            self._view.line(refusal(unknown), Tone.WARNING)
                        case Command("exit"):
                            return None
                        case Command("new"):
                            self._ask()
                            return self._prepared.open_new
                        case Command() as command:
                            await self._command(session, command)
                            self._sound_alarm()
                case _:
                    assert_never(outcome)
            if self._leaving:
                return None
            self._ask(again)

    def _ask(self, default: str = "") -> None:
        self._called_back = False
        self._lines.ask(default)

    async def _turn(self, session: Talk, words: str) -> str:
        """Play one turn; what goes back to the editor, which is the line itself where it was withdrawn."""
        try:
            async with trio.open_nursery() as nursery:
                self._interrupt = session.interrupt
                nursery.start_soon(self._watching.watch, self._asker)
                finished = await session.say(User.says(words))
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            stop = first_stop(group)
            if stop is None:
                raise
            self._view.line(str(stop), Tone.BAD)
            return words
        finally:
            self._interrupt = None
        again = [words] if finished.reason is StopReason.WITHDRAWN else []
        if finished.reason in (StopReason.WITHDRAWN, StopReason.INTERRUPTED):
            # Who stops a turn doesn't mean lines that were typed ahead to be sent unseen.
            again += filter(None, [self._lines.take_back()])
        return " ".join(again)

    async def _command(self, session: Talk, command: Command) -> None:
        match command.name:
            case "help":
                for line in help_lines():
                    self._view.line(line, Tone.NEUTRAL)
            case "context":
                width = self._output.size()[0]
                lines = report.drawn(session.context(), self._terminal, width, self._prepared.harmless)
                self._lines.write("".join(f"{line}\n" for line in lines))
            case "sandbox":
                if self._sandbox is not None:
                    await self._commands.sandbox(self._sandbox, command.argument)
            case "try":
                await self._try(session, command.argument)
            case "trust":
                await self._with_keys(self._commands.trust)
            case _:
                await self._compact(session, command.argument)

    async def _try(self, session: Talk, command: str) -> None:
        if not command:
            self._view.line("/try needs a command, as in: /try rm -r build", Tone.WARNING)
            return
        try:
            await self._with_keys(lambda: session.try_command(command))
        except BaseExceptionGroup as group:
            stop = first_stop(group)
            if stop is None:
                raise
            self._view.line(str(stop), Tone.BAD)

    async def _with_keys(self, play: Callable[[], Awaitable[None]]) -> None:
        """A command that asks: keys are read while it runs, and Ctrl-C ends it."""
        async with trio.open_nursery() as nursery:
            self._interrupt = nursery.cancel_scope.cancel
            nursery.start_soon(self._watching.watch, self._asker)
            try:
                await play()
            finally:
                self._interrupt = None
                if nursery.cancel_scope.cancel_called:
                    self._view.line("[interrupted]")
            nursery.cancel_scope.cancel()

    async def _compact(self, session: Talk, focus: str) -> None:
        with trio.CancelScope() as scope:
            self._interrupt = scope.cancel
            self._view.waits("compacting…  (Ctrl-C leaves everything as it is)")
            try:
                await session.compact(focus)
            except (StopError, ModelError) as failure:
                self._view.line(str(failure), Tone.BAD)
            finally:
                self._interrupt = None
                self._view.waits("")
        if scope.cancelled_caught:
            self._view.line("[interrupted; nothing was changed]")


def _channel() -> tuple[trio.MemoryReceiveChannel[Outcome], trio.MemorySendChannel[Outcome]]:
    """Outcomes from the editor; one per question, so it never grows."""
    sending, receiving = trio.open_memory_channel[Outcome](float("inf"))
    return receiving, sending


def talk(
    lines: Lines, output: Output, terminal: Terminal, prepared: Prepared, shown: Shown, keys: int | None
) -> Ended:
    """Run the loop to its end."""
    return trio.run(Repl(lines, output, terminal, prepared, shown, keys).run)
