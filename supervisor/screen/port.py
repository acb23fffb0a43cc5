"""What the REPL needs from the rest of the program, as types.  Whoever starts it builds these parts once."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from protocol.conversation import User
from protocol.events import AnyEvent, Compacted, TurnFinished
from supervisor.permits.asking import Asker
from supervisor.screen.report import Report

Tell = Callable[[AnyEvent], None]


class Talk(Protocol):
    """A session as the REPL sees it; supervisor.session.Session is one."""

    @property
    def id(self) -> str:
        """The conversation's id, for `--resume`."""
        ...

    @property
    def turn(self) -> int:
        """The number that the next turn will have."""
        ...

    @property
    def share(self) -> float:
        """The calibrated part of the budget that the next request uses, 0..1."""
        ...

    async def say(self, user: User) -> TurnFinished:
        """Play one turn.  Raises StopError where the program can't go on with it."""
        ...

    def interrupt(self) -> None:
        """End the turn that runs, if one does."""
        ...

    async def compact(self, focus: str = "") -> Compacted:
        """Replace the closed pairs by a summary.  Raises StopError or ModelError; then nothing changed."""
        ...

    def context(self) -> Report:
        """What the next request holds."""
        ...


Open = Callable[[Tell, Asker], AbstractAsyncContextManager[Talk]]


@dataclass(frozen=True)
class Prepared:
    """The parts that a REPL is made of, ready before anything is opened."""

    open: Open
    """Opens the conversation that the command line asked for."""
    open_new: Open
    """Opens a new one, for /new."""
    harmless: Callable[[str], str]
    """Text from outside -> text that a terminal can't obey."""
    show: str
    """`show_tool_results`: off, summary, preview or full."""
    notices: Sequence[str] = ()
    """Lines about the settings."""


Prepare = Callable[[], AbstractContextManager[Prepared]]
"""Called once the editor is on the screen, so what it imports delays no key."""
