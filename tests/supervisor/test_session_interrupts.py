"""Turns that end early: what stays, what is withdrawn, and that the next line meets a legal conversation.

The scripted server refuses every history that the real one would refuse, so each "next line works" is a
check of the grammar.
"""

import json
from pathlib import Path

import trio

from protocol.events import (
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolFinished,
    ToolOutputDelta,
    TurnFinished,
)
from supervisor.rehearsal.script import Stall, Step
from supervisor.session.session import Session
from tests.supervisor.house import House, calling, command, house, say


async def interrupted(home: House, session: Session, line: str, wanted: type) -> TurnFinished:
    """Say the line, interrupt at the first event of this kind."""
    ends: list[TurnFinished] = []

    async def play() -> None:
        ends.append(await say(session, line))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(play)
        await home.heard(lambda event: isinstance(event, wanted))
        session.interrupt()
    return ends[0]


async def test_text_that_was_shown_stays_and_is_marked(tmp_path: Path) -> None:
    half = Step(text="The answer is forty-two, since", chunk=10, fault=Stall(after=2))
    async with house(tmp_path, half, Step(text="Sorry.")) as home, home.session() as session:
        finished = await interrupted(home, session, "why?", TextDelta)
        assert (finished.reason, session.turn) == (StopReason.INTERRUPTED, 2)
        assert "The answer" in finished.text
        assert "[interrupted by the user]" in finished.text
        assert (await say(session, "go on")).text == "Sorry."
    parts = home.messages()[1]["parts"]
    assert isinstance(parts, list)
    assert [part["author"] for part in parts] == ["model", "program"]


async def test_an_interrupt_while_thinking_withdraws_the_turn_and_its_number_is_used_again(
    tmp_path: Path,
) -> None:
    thinking = Step(thinking="Let me see.", text="Ah.", chunk=6, fault=Stall(after=2))
    async with house(tmp_path, thinking, Step(text="Here.")) as home, home.session() as session:
        finished = await interrupted(home, session, "hello", ReasoningDelta)
        assert (finished.reason, session.turn) == (StopReason.WITHDRAWN, 1)
        again = await say(session, "go on")
        assert (again.turn, again.text) == (1, "Here.")
    sent = json.loads(home.bodies()[-1])["messages"]
    assert [message["content"] for message in sent[1:]] == ["go on"]


async def test_a_command_that_is_interrupted_keeps_what_it_had_printed(tmp_path: Path) -> None:
    steps = (command("echo CHECKPOINT; sleep 30"), Step(text="As you wish."))
    async with house(tmp_path, *steps) as home, home.session() as session:
        finished = await interrupted(home, session, "run it", ToolOutputDelta)
        assert finished.reason is StopReason.INTERRUPTED
        assert (await say(session, "do it differently")).text == "As you wish."
    result = json.loads(home.bodies()[1])["messages"][3]
    assert result["role"] == "tool"
    assert "CHECKPOINT" in result["content"]
    assert "cancelled" in result["content"] or "interrupted" in result["content"]


async def test_of_two_calls_the_finished_one_keeps_its_result_and_the_other_is_answered(
    tmp_path: Path,
) -> None:
    both = calling(
        ("run_command", {"command": "echo first"}), ("run_command", {"command": "echo second; sleep 30"})
    )
    async with house(tmp_path, both, Step(text="Fine.")) as home, home.session() as session:
        ends: list[TurnFinished] = []

        async def play() -> None:
            ends.append(await say(session, "build it"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(play)
            await home.heard(lambda event: isinstance(event, ToolFinished))
            await home.heard(lambda event: isinstance(event, ToolOutputDelta) and "second" in event.text)
            session.interrupt()
        assert (await say(session, "stop, do it differently")).text == "Fine."
    messages = json.loads(home.bodies()[1])["messages"]
    assert [message["role"] for message in messages[2:]] == ["assistant", "tool", "tool", "assistant", "user"]
    assert messages[3]["content"].startswith("first")
    assert "second" in messages[4]["content"]


async def test_half_a_call_is_dropped_and_named(tmp_path: Path) -> None:
    half = calling(("run_command", {"command": "touch ran" + " " * 200}), text="I run it.")
    half = Step(text=half.text, calls=half.calls, chunk=20, fault=Stall(after=4))
    async with house(tmp_path, half, Step(text="Fine.")) as home, home.session() as session:
        finished = await interrupted(home, session, "go", TextDelta)
        assert "I run it." in finished.text
        assert (await say(session, "again")).text == "Fine."
    assert not (home.workspace / "ran").exists()
    assert "tool_calls" not in json.dumps(json.loads(home.bodies()[1])["messages"])


async def test_a_time_limit_around_the_turn_ends_it_as_properly(tmp_path: Path) -> None:
    async with house(tmp_path, command("sleep 30"), Step(text="Fine.")) as home, home.session() as session:
        with trio.move_on_after(1.0):
            await say(session, "wait")
        assert session.turn == 2
        assert (await say(session, "go on")).text == "Fine."


async def test_an_interrupt_while_nothing_runs_changes_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="Fine.")) as home, home.session() as session:
        session.interrupt()
        assert (await say(session, "hello")).text == "Fine."
