"""The grammar of a turn, as a state machine without I/O.

    user -> (calls -> result per call -> note*)* -> answer

    AWAITING_MODEL --Calls------------> AWAITING_TOOLS
    AWAITING_MODEL --Note (not first)-> AWAITING_MODEL
    AWAITING_MODEL --Answer-----------> CLOSED
    AWAITING_TOOLS --ToolResult-------> AWAITING_TOOLS   some calls are still open
    AWAITING_TOOLS --last ToolResult--> AWAITING_MODEL

This file alone decides what may follow what, and it can't tell which process it runs in, so the main turn
and a subagent's turn are legal by the same lines.  An illegal event raises and changes nothing.  An
`OpenTurn` holds what was *said*; what is *sent* (stubs, compaction) is the supervisor's business.
"""

from collections.abc import Iterable
from enum import Enum

from protocol.conversation import (
    Answer,
    Calls,
    Message,
    Note,
    Pair,
    Round,
    ToolCall,
    ToolResult,
    User,
    flatten,
)

Event = Calls | ToolResult | Note | Answer


class State(Enum):
    """What a turn is waiting for."""

    AWAITING_MODEL = "awaiting model"
    AWAITING_TOOLS = "awaiting tools"
    CLOSED = "closed"


class IllegalEventError(ValueError):
    """This event can't come in this state.  The turn has not changed."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{type(event).__name__} can't come while {state.value}")
        self.state = state
        self.event = event


class OpenTurn:
    """A turn in progress.  It only says what is missing; others go and get it."""

    def __init__(self, user: User, number: int | None = None) -> None:
        self.user = user
        self.number = number
        self._rounds: list[Round] = []
        self._calls: Calls | None = None
        self._results: dict[str, ToolResult] = {}
        self._answer: Answer | None = None
        self._ids: set[str] = set()
        self._told = 0

    @classmethod
    def resumed(cls, messages: Iterable[Message], number: int | None = None) -> "OpenTurn":
        """The turn whose messages these are, the user line first.  Raises IllegalEventError."""
        user, *events = messages
        if not isinstance(user, User):
            raise ValueError("a turn begins with a user line")
        turn = cls(user, number)
        for event in events:
            if isinstance(event, User):
                raise ValueError("a turn has one user line")
            turn.receive(event)
        return turn

    @property
    def state(self) -> State:
        if self._answer is not None:
            return State.CLOSED
        return State.AWAITING_MODEL if self._calls is None else State.AWAITING_TOOLS

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that still lack a result, in call order."""
        if self._calls is None:
            return ()
        return tuple(call for call in self._calls.calls if call.id not in self._results)

    @property
    def rounds(self) -> int:
        """Rounds that are complete."""
        return len(self._rounds)

    @property
    def untouched(self) -> bool:
        """True while nothing but the user line is there, so that the turn may be withdrawn."""
        return not self._rounds and self._calls is None and self._answer is None

    def messages(self) -> list[Message]:
        """All that was said so far, in call order."""
        told = flatten(self.user, self._rounds, self._answer)
        if self._calls is not None:
            told.append(self._calls)
            told += [self._results[c.id] for c in self._calls.calls if c.id in self._results]
        return told

    def untold(self) -> list[Message]:
        """What was added since the last call of this method: what the model has not seen yet.

        Only complete rounds are handed out.  Work is in proportion to what is new.
        """
        fresh: list[Message] = [] if self._told else [self.user]
        for done in self._rounds[max(self._told - 1, 0) :]:
            fresh += [done.reply, *done.results, *done.notes]
        self._told = len(self._rounds) + 1
        return fresh

    def receive(self, event: Event) -> None:
        """Take the next event, or raise IllegalEventError and change nothing."""
        match self.state, event:
            case State.AWAITING_MODEL, Calls() if self._ids.isdisjoint(c.id for c in event.calls):
                self._calls = event
                self._ids.update(call.id for call in event.calls)
            case State.AWAITING_MODEL, Answer():
                self._answer = event
            case State.AWAITING_MODEL, Note() if self._rounds and self._told <= len(self._rounds):
                last = self._rounds[-1]
                self._rounds[-1] = Round(last.reply, last.results, (*last.notes, event))
            case State.AWAITING_TOOLS, ToolResult() if any(call.id == event.call_id for call in self.pending):
                self._results[event.call_id] = event
                self._close_round_if_complete()
            case _:
                raise IllegalEventError(self.state, event)

    def interrupt(self, why: str, answer: Answer) -> list[Event]:
        """Close the turn now: each open call fails with `why`, then `answer` closes.  The new events."""
        events: list[Event] = [ToolResult(call.id, why, failed=True) for call in self.pending]
        events.append(answer)
        for event in events:
            self.receive(event)
        return events

    def close(self) -> Pair:
        """The closed pair.  Raises ValueError while something is missing."""
        if self._answer is None:
            raise ValueError(f"the turn is {self.state.value}")
        return Pair(self.user, tuple(self._rounds), self._answer, self.number)

    def _close_round_if_complete(self) -> None:
        if self._calls is None or self.pending:
            return
        results = tuple(self._results[call.id] for call in self._calls.calls)
        self._rounds.append(Round(self._calls, results))
        self._calls = None
        self._results = {}
