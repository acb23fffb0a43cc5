"""What the REPL needs from the rest of the program, as types.  Whoever starts it builds these parts once."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from protocol.conversation import User
from protocol.events import AnyEvent, Compacted, TurnFinished
from protocol.policy import Mode
from supervisor.permits.asking import Asker
from supervisor.permits.standing import InForce
from supervisor.permits.trust import Offered
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

    async def try_command(self, command: str) -> None:
        """A dry run of the user's own.  Raises StopError."""
        ...

    def context(self) -> Report:
        """What the next request holds."""
        ...


class Sandbox(Protocol):
    """What confines a session's commands; supervisor.permits.standing.Standing is one."""

    @property
    def mode(self) -> Mode: ...

    async def in_force(self) -> InForce: ...

    def change_mode(self, mode: Mode) -> bool:
        """False where jobs keep it from happening at once.  Raises StopError."""
        ...

    def revoke(self, word: str) -> tuple[str, ...]:
        """What was taken back.  Raises StopError."""
        ...


class Parts(Protocol):
    """What is open while a conversation is; supervisor.wiring.Parts is one."""

    @property
    def session(self) -> Talk: ...
    @property
    def sandbox(self) -> Sandbox: ...


Open = Callable[[Tell, Asker], AbstractAsyncContextManager[Parts]]


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
    look: Callable[[], Offered]
    """What the project's settings file asks for, for /trust.  Raises StopError."""
    notices: Sequence[str] = ()
    """Lines about the settings."""


Prepare = Callable[[], AbstractContextManager[Prepared]]
"""Called once the editor is on the screen, so what it imports delays no key."""
