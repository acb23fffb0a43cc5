"""The state machine of a turn, step by step against an oracle that is a regular expression.

The comparison has caught these planted faults (`test_the_comparison_catches_a_planted_fault` runs them all):

 1. a note is taken before the first round           8. a refused result is kept all the same
 2. a note is taken after its round was handed out   9. results come in order of arrival
 3. an id may come again in a later round           10. the user line is handed out with every request
 4. an answer may come while calls are open         11. a note is forgotten
 5. an unknown result is taken                      12. calls may come while others are open
 6. a second result for a call is taken             13. `untouched` stays true after a reply
 7. something is taken after the answer             14. the turn is closed before its answer
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation import Answer, Calls, Message, Note, Pair, Round, ToolResult, User, parse
from protocol.turn import Event, IllegalEventError, OpenTurn, State
from tests.protocol import strategies
from tests.protocol.spelling import (
    ALPHABET,
    ANSWER,
    NOTE,
    ONE,
    RESULTS,
    TURN,
    TWO,
    Step,
    Told,
    in_call_order,
    letters,
    may_follow,
)

LINE = User.says("do it")


def seen(turn: OpenTurn) -> tuple[object, ...]:
    """All that a turn shows without being changed by looking."""
    return turn.state, turn.pending, turn.rounds, turn.untouched, turn.messages()


def expected(history: Sequence[Step]) -> tuple[object, ...]:
    """The same, read from the history alone."""
    said = [step for step in history if not isinstance(step, Told)]
    answered = {m.call_id for m in said if isinstance(m, ToolResult)}
    replies = [m for m in said if isinstance(m, Calls)]
    pending = tuple(call for reply in replies for call in reply.calls if call.id not in answered)
    if isinstance(said[-1], Answer):
        state = State.CLOSED
    else:
        state = State.AWAITING_TOOLS if pending else State.AWAITING_MODEL
    return state, pending, len(replies) - bool(pending), len(said) == 1, in_call_order(history)


def wrong_hand_out(history: Sequence[Step], handed: Sequence[Message]) -> bool:
    """Whether `untold` gave anything but the complete rounds, once each."""
    complete = in_call_order(history)
    open_ids = expected(history)[1]
    if open_ids:
        last = max(i for i, m in enumerate(complete) if isinstance(m, Calls))
        complete = complete[:last]
    return list(handed) != [m for m in complete if not isinstance(m, Answer)]


def replay(make: Callable[[], OpenTurn], history: Sequence[Step]) -> tuple[OpenTurn, list[Message]]:
    turn, handed = make(), list[Message]()
    for step in history[1:]:
        if isinstance(step, Told):
            handed += turn.untold()
        elif not isinstance(step, User):
            turn.receive(step)
    return turn, handed


def disagreement(make: Callable[[], OpenTurn], history: list[Step], depth: int) -> str:
    """Where the turn and the oracle differ below this legal history; empty where they don't."""
    word = letters(history, reuse=False)
    try:
        turn, handed = replay(make, history)
    except (IllegalEventError, ValueError) as error:
        return f"{word}: refused: {error}"
    before = expected(history)
    if seen(turn) != before:
        return f"{word}: shows {seen(turn)}, wanted {before}"
    if isinstance(history[-1], Told) and wrong_hand_out(history, handed):
        return f"{word}: handed out {handed}"
    if closes_wrongly(turn, history):
        return f"{word}: closes wrongly"
    for step in ALPHABET:
        if may_follow(history, step):
            found = disagreement(make, [*history, step], depth - 1) if depth else ""
        elif isinstance(step, (User, Told)):
            continue
        else:
            found = taken_or_changed(make, history, step)
        if found:
            return found
    return ""


def closes_wrongly(turn: OpenTurn, history: Sequence[Step]) -> bool:
    wanted = list(parse(in_call_order(history), [turn.number] * len(history)).pairs)
    try:
        return [turn.close()] != wanted
    except ValueError:
        return wanted != []


def taken_or_changed(make: Callable[[], OpenTurn], history: list[Step], step: Event) -> str:
    turn, _ = replay(make, history)
    before = seen(turn)
    try:
        turn.receive(step)
    except IllegalEventError as error:
        if seen(turn) != before or error.event != step or error.state is not before[0]:
            return f"{letters([*history, step], reuse=False)}: the refusal changed the turn"
        return ""
    return f"{letters([*history, step], reuse=False)}: was taken"


def test_the_turn_agrees_with_the_regular_expression_on_every_short_history() -> None:
    assert disagreement(lambda: OpenTurn(LINE, 4), [LINE], depth=6) == ""


class NoteFirst(OpenTurn):
    def receive(self, event: Event) -> None:
        if not (isinstance(event, Note) and self.untouched):
            super().receive(event)


class NoteAfterHandOut(OpenTurn):
    def receive(self, event: Event) -> None:
        told, self._told = self._told, 0
        try:
            super().receive(event)
        finally:
            self._told = told


class IdAgain(OpenTurn):
    def receive(self, event: Event) -> None:
        self._ids.clear()
        super().receive(event)


class AnswerWhileOpen(OpenTurn):
    def receive(self, event: Event) -> None:
        if isinstance(event, Answer) and self.pending:
            self._answer = event
        else:
            super().receive(event)


class UnknownResult(OpenTurn):
    def receive(self, event: Event) -> None:
        if not (isinstance(event, ToolResult) and event.call_id == "unknown" and self.pending):
            super().receive(event)


class SecondResult(OpenTurn):
    def receive(self, event: Event) -> None:
        if not (isinstance(event, ToolResult) and event.call_id in self._results):
            super().receive(event)


class AfterTheAnswer(OpenTurn):
    def receive(self, event: Event) -> None:
        if self.state is State.CLOSED and isinstance(event, Answer):
            self._answer = event
        else:
            super().receive(event)


class KeptThoughRefused(OpenTurn):
    def receive(self, event: Event) -> None:
        try:
            super().receive(event)
        except IllegalEventError:
            if isinstance(event, Calls) and self.state is State.AWAITING_TOOLS:
                self._calls = event
            raise


class OrderOfArrival(OpenTurn):
    def messages(self) -> list[Message]:
        told = super().messages()
        if self._calls is not None and len(self._results) > 1:
            told[-len(self._results) :] = self._results.values()
        if self._rounds and len(self._rounds[-1].results) > 1 and self._answer is None:
            told[-1], told[-2] = told[-2], told[-1]
        return told


class UserLineAlways(OpenTurn):
    def untold(self) -> list[Message]:
        fresh = super().untold()
        return fresh if fresh and fresh[0] is self.user else [self.user, *fresh]


class NoteForgotten(OpenTurn):
    def receive(self, event: Event) -> None:
        super().receive(event)
        if isinstance(event, Note):
            last = self._rounds[-1]
            self._rounds[-1] = Round(last.reply, last.results, last.notes[:-1])


class CallsWhileOpen(OpenTurn):
    def receive(self, event: Event) -> None:
        if isinstance(event, Calls) and self.pending:
            self._calls = event
        else:
            super().receive(event)


class AlwaysUntouched(OpenTurn):
    @property
    def untouched(self) -> bool:
        return not self._rounds and self._answer is None


class ClosedTooEarly(OpenTurn):
    def close(self) -> Pair:
        return Pair(self.user, tuple(self._rounds), self._answer or ANSWER, self.number)


FAULTS = [
    NoteFirst,
    NoteAfterHandOut,
    IdAgain,
    AnswerWhileOpen,
    UnknownResult,
    SecondResult,
    AfterTheAnswer,
    KeptThoughRefused,
    OrderOfArrival,
    UserLineAlways,
    NoteForgotten,
    CallsWhileOpen,
    AlwaysUntouched,
    ClosedTooEarly,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_catches_a_planted_fault(fault: type[OpenTurn]) -> None:
    assert disagreement(lambda: fault(LINE, 4), [LINE], depth=4) != ""


@given(st.lists(st.one_of(strategies.calls, strategies.results, strategies.notes, strategies.answers)))
def test_the_turn_agrees_with_the_regular_expression_on_long_histories(events: list[Event]) -> None:
    turn, history = OpenTurn(LINE), list[Step]([LINE])
    for event in events:
        legal = TURN.fullmatch(letters([*history, event], reuse=False)) is not None
        if legal:
            turn.receive(event)
            history.append(event)
        else:
            with pytest.raises(IllegalEventError):
                turn.receive(event)
        assert turn.messages() == in_call_order(history)


@given(strategies.pairs, st.integers(0, 12))
def test_an_interrupted_turn_closes_legally_wherever_it_stood(pair: Pair, stop: int) -> None:
    turn = OpenTurn(pair.user, 9)
    events: list[Event] = []
    for done in pair.rounds:
        events += [done.reply, *done.results, *done.notes]
    for event in events[:stop]:
        try:
            turn.receive(event)
        except IllegalEventError:
            return  # ids that come again are not the point here
    before, pending = turn.messages(), turn.pending
    added = turn.interrupt("interrupted", ANSWER)
    assert added == [*(ToolResult(call.id, "interrupted", failed=True) for call in pending), ANSWER]
    assert turn.state is State.CLOSED
    kept = [m for m in turn.messages() if m not in added]
    assert [m for m in before if m not in added] == kept
    assert parse(turn.messages(), [9]).pairs == (turn.close(),)


def test_a_turn_that_is_resumed_stands_where_it_was_left() -> None:
    turn = OpenTurn.resumed([LINE, ONE, RESULTS[0], NOTE, TWO, RESULTS[2]], 3)
    assert [call.id for call in turn.pending] == ["b"]
    assert (turn.number, turn.rounds) == (3, 1)


def test_a_turn_is_resumed_from_one_user_line_only() -> None:
    with pytest.raises(ValueError, match="begins with a user line"):
        OpenTurn.resumed([ONE])
    with pytest.raises(ValueError, match="one user line"):
        OpenTurn.resumed([LINE, LINE])


def test_an_open_turn_says_what_it_waits_for() -> None:
    with pytest.raises(ValueError, match="awaiting model"):
        OpenTurn(LINE).close()
