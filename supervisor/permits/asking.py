"""Questions to the user about what a call may do, and their answers.

One at a time, in the order in which the calls came.  Whoever asks waits itself: a call that is cancelled
takes its question with it.  Not here: what is asked and what follows from an answer (gate.py), and how a
question looks (the front).
"""

from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Protocol

import trio
from msgspec import Struct
from msgspec.structs import replace

from protocol.events import AnyEvent, PermissionAsked


class Scope(Enum):
    """For how long a yes holds."""

    ONCE = "once"
    """For this call."""
    SESSION = "session"
    PROJECT = "project"
    """For all later sessions of this project too."""


class Decider(Enum):
    """Who decided."""

    USER = "user"
    RULE = "rule"
    GRANT = "grant"
    """The user, earlier."""
    FLAG = "flag"
    """The user, at the start of this run."""
    PROGRAM = "program"
    """It can't be had here."""
    NOBODY = "nobody"
    """There is nobody to ask."""
    CANCELLED = "cancelled"
    """The call ended before there was an answer."""


class Question(Struct, frozen=True):
    """What the user is asked.  All texts are raw: whoever shows them makes them harmless first."""

    call_id: str
    tool: str
    subject: str
    """The command; of another tool, its arguments."""
    reason: str
    """Why the program asks: one sentence."""
    permissions: tuple[str, ...] = ()
    """What the call needs beyond the sandbox."""
    cwd: str = ""
    """Where the command would start."""
    why: str = ""
    """The model's reason, which is a claim."""
    scopes: tuple[Scope, ...] = (Scope.ONCE,)
    """What may be chosen, beside no."""
    notes: tuple[str, ...] = ()
    yes: str = ""
    """What a yes does, in a word, where it is no permission: "apply"."""
    no: str = ""
    """The same of a no."""
    diff: str = ""
    """What it is about: sections that begin with `= PATH`, each with the hunks of one file."""
    beside: tuple[str, ...] | None = None
    """Those of the notes that say something which the whole diff doesn't; None for all."""
    own: bool = False
    """It is about the user's own command: no model waits for words."""
    agent: str = "main"
    """Who asks: the label of the question."""
    number: int = 0
    waiting: int = 0
    """How many more wait behind it."""


class Effects(Struct, frozen=True):
    """What a dry run did to files.  `ended`: how the command did; `counts`: in one line; `lines`: one for
    each path; `diff`, `beside` and `own`: as in a Question."""

    ended: str
    counts: str
    lines: tuple[str, ...]
    diff: str
    beside: tuple[str, ...] | None = None
    own: bool = False


class Answer(Struct, frozen=True):
    """`scope`: None for no.  `words`: what the user has to say to the model with it."""

    scope: Scope | None = None
    words: str = ""


class Asker(Protocol):
    """A front with a person before it."""

    async def ask(self, question: Question) -> Answer:
        """Wait for an answer.  When this is cancelled, the question disappears."""
        ...


class Questions:
    """One queue in front of one asker.  `asker`: None where nobody is there."""

    def __init__(self, asker: Asker | None, tell: Callable[[AnyEvent], None]) -> None:
        self._asker = asker
        self._tell = tell
        self._turn = trio.Lock()  # hands over in the order of arrival
        self._numbers = count(1)

    @property
    def somebody(self) -> bool:
        return self._asker is not None

    async def ask(self, question: Question, settled: Callable[[], Answer | None]) -> tuple[int, Answer]:
        """The number that the question got, and its answer.  `settled` is called when its turn comes: where
        it knows the answer by then, nobody is asked and the number is 0.  Without an asker the answer is
        no."""
        async with self._turn:
            if (known := settled()) is not None:
                return 0, known
            if self._asker is None:
                return 0, Answer()
            waiting = self._turn.statistics().tasks_waiting
            question = replace(question, number=next(self._numbers), waiting=waiting)
            self._tell(_asked(question))
            return question.number, await self._asker.ask(question)


def _asked(question: Question) -> PermissionAsked:
    return PermissionAsked(
        agent=question.agent,
        question=question.number,
        call_id=question.call_id,
        name=question.tool,
        subject=question.subject,
        permissions=question.permissions,
        reason=question.reason,
        why=question.why,
        choices=(question.yes,) if question.yes else tuple(scope.value for scope in question.scopes),
        notes=question.notes,
    )
