"""What /sandbox and /trust do.  Not here: what is in force and how it changes (permits), how it is drawn
(confined.py).
"""

from collections.abc import Callable

from protocol.policy import Mode
from supervisor.exits import StopError
from supervisor.permits import trust
from supervisor.screen import confined
from supervisor.screen.asking import Option, ScreenAsker
from supervisor.screen.port import Sandbox
from supervisor.screen.tones import Terminal, Tone
from supervisor.screen.view import View

REVOKE = "revoke"
TRUST, NO = "trust", "no"
NEXT = "It takes force at the next start of agent."

_JOBS = (
    "background jobs still run with what was before; until they end, each call gets a worker of its own "
    "that has the new mode"
)


class SandboxCommands:
    """`look`: what the project's settings file asks for."""

    def __init__(
        self,
        view: View,
        terminal: Terminal,
        size: Callable[[], tuple[int, int]],
        asker: ScreenAsker,
        look: Callable[[], trust.Offered],
    ) -> None:
        self._view = view
        self._terminal = terminal
        self._size = size
        self._asker = asker
        self._look = look

    async def sandbox(self, sandbox: Sandbox, argument: str) -> None:
        """`/sandbox`, `/sandbox MODE`, `/sandbox revoke WORD`."""
        first, _, rest = argument.partition(" ")
        try:
            if not argument:
                columns = self._size()[0]
                self._view.lines(confined.drawn(await sandbox.in_force(), self._terminal, columns))
            elif first == REVOKE:
                self._revoke(sandbox, rest.strip())
            elif not rest and first in [mode.value for mode in Mode]:
                self._change(sandbox, Mode(first))
            else:
                self._view.line(f"/sandbox {argument}: unknown; there is: {confined.CHANGES}", Tone.WARNING)
        except StopError as stop:
            self._view.line(str(stop), Tone.BAD)

    def _change(self, sandbox: Sandbox, mode: Mode) -> None:
        if mode is sandbox.mode:
            self._view.line(f"the mode is {mode.value} already")
            return
        at_once = sandbox.change_mode(mode)
        words = f"for this session the mode is {mode.value}"
        if mode is Mode.UNCONFINED:
            words += ": commands may do all that you may"
        self._view.line(words, Tone.BAD if mode is Mode.UNCONFINED else Tone.GOOD)
        if not at_once:
            self._view.line(_JOBS, Tone.WARNING)

    def _revoke(self, sandbox: Sandbox, word: str) -> None:
        if not word:
            self._view.line(
                "which one? /sandbox shows what is granted; or: /sandbox revoke all", Tone.WARNING
            )
            return
        taken = sandbox.revoke(word)
        self._view.line(f"taken back: {', '.join(taken)}", Tone.GOOD)

    async def trust(self) -> None:
        """`/trust`: what the project's file would widen is shown, and asked about."""
        try:
            found = self._look()
            lines = [self._terminal.paint(line, Tone.STRONG) for line in trust.told(found)]
            if found.is_trusted or not found.lines:
                self._view.lines(lines)
                return
            if await self._asker.choose(lines, [Option(TRUST), Option(NO)], NO) == TRUST:
                self._view.line(f"{trust.keep(found)} {NEXT}", Tone.GOOD)
            else:
                self._view.line("not trusted")
        except StopError as stop:
            self._view.line(str(stop), Tone.BAD)
