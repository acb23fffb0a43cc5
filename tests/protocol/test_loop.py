"""The loop of a turn with scripted ports: what it asks, in which order, and what it keeps when cancelled."""

from collections.abc import Callable, Sequence

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.conversation import (
    Answer,
    Calls,
    Message,
    Note,
    Pair,
    Reply,
    ToolCall,
    ToolResult,
    User,
    flatten,
)
from protocol.loop import run_turn
from protocol.turn import Event, OpenTurn, State
from tests.protocol import strategies
from tests.protocol.spelling import ANSWER, NOTE, ONE, RESULTS, TWO

LINE = User.says("do it")


class Script:
    """A Model port that plays replies and keeps what it was handed."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.handed: list[Sequence[Message]] = []

    async def reply(self, added: Sequence[Message]) -> Reply:
        await trio.lowlevel.checkpoint()
        self.handed.append(added)
        return self.replies.pop(0)


class Desk:
    """A Tools port that delivers a text per call, the last call first."""

    async def run(self, calls: Sequence[ToolCall], deliver: Callable[[ToolResult], None]) -> None:
        await trio.lowlevel.checkpoint()
        for call in reversed(calls):
            deliver(ToolResult(call.id, f"result {call.id}"))


class LazyDesk(Desk):
    """A Tools port that forgets the first call."""

    async def run(self, calls: Sequence[ToolCall], deliver: Callable[[ToolResult], None]) -> None:
        await super().run(calls[1:], deliver)


class StuckDesk(Desk):
    """A Tools port that delivers its last call's result and then waits for ever."""

    def __init__(self) -> None:
        self.stuck = trio.Event()

    async def run(self, calls: Sequence[ToolCall], deliver: Callable[[ToolResult], None]) -> None:
        await super().run(calls[-1:], deliver)
        self.stuck.set()
        await trio.sleep_forever()


async def test_a_turn_fetches_replies_and_results_until_it_is_closed() -> None:
    model = Script([ONE, TWO, ANSWER])
    pair = await run_turn(OpenTurn(LINE, 2), model, Desk())
    assert (pair.answer, pair.turn) == (ANSWER, 2)
    assert model.handed == [[LINE], [ONE, RESULTS[0]], [TWO, RESULTS[1], RESULTS[2]]]


async def test_notes_are_handed_in_at_each_boundary_but_the_first() -> None:
    asked = 0

    def boundary() -> Sequence[Note]:
        nonlocal asked
        asked += 1
        return [NOTE] if asked == 1 else []

    model = Script([ONE, TWO, ANSWER])
    pair = await run_turn(OpenTurn(LINE), model, Desk(), boundary=boundary)
    assert asked == 2
    assert [done.notes for done in pair.rounds] == [(NOTE,), ()]
    assert model.handed[1] == [ONE, RESULTS[0], NOTE]


async def test_every_event_goes_through_take() -> None:
    turn, taken = OpenTurn(LINE), list[Event]()

    def take(event: Event) -> None:
        turn.receive(event)
        taken.append(event)

    await run_turn(turn, Script([TWO, ANSWER]), Desk(), take)
    assert taken == [TWO, RESULTS[2], RESULTS[1], ANSWER]


async def test_a_desk_that_forgets_a_call_is_a_fault_of_the_program() -> None:
    with pytest.raises(RuntimeError, match="one result per call"):
        await run_turn(OpenTurn(LINE), Script([TWO]), LazyDesk())


async def test_a_cancelled_turn_keeps_the_results_that_had_arrived() -> None:
    turn, desk = OpenTurn(LINE), StuckDesk()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_turn, turn, Script([TWO]), desk)
        with trio.fail_after(5):
            await desk.stuck.wait()
        nursery.cancel_scope.cancel()
    assert [call.id for call in turn.pending] == ["b"]
    turn.interrupt("interrupted", Answer.by("program", "[interrupted]"))
    assert [result.failed for result in turn.close().rounds[0].results] == [True, False]


async def test_a_turn_that_is_closed_already_asks_nobody() -> None:
    turn = OpenTurn.resumed([LINE, ANSWER])
    assert await run_turn(turn, Script([]), Desk()) == turn.close()
    assert turn.state is State.CLOSED


@settings(max_examples=50)
@given(st.lists(strategies.calls, max_size=5), strategies.answers)
def test_the_model_is_handed_each_message_once(replies: list[Calls], answer: Answer) -> None:
    fresh = [
        Calls(tuple(ToolCall(f"{index}-{call.id}", call.name, call.arguments) for call in reply.calls))
        for index, reply in enumerate(replies)
    ]
    model = Script([*fresh, answer])
    pair: Pair = trio.run(run_turn, OpenTurn(LINE), model, Desk())
    assert [message for added in model.handed for message in added] == flatten(pair.user, pair.rounds)
