"""The disk fails in the middle of a turn: once it takes lines again, memory, request and transcript agree."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.events import (
    AnyEvent,
    ReplyFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from supervisor.exits import StopError
from supervisor.options import Continue
from supervisor.rehearsal.script import Stall, Step
from supervisor.session.session import Session
from supervisor.store.load import load
from tests.supervisor.full_disk import full_disk
from tests.supervisor.house import House, calling, command, house, say


async def fails(home: House, session: Session, line: str, wanted: type, then: Callable[[], None]) -> None:
    """Say the line; the disk is full from the first event of this kind on, when `then` is called as well."""
    with ExitStack() as stack:

        def fill(event: AnyEvent) -> None:
            if isinstance(event, wanted):
                home.react = None
                stack.enter_context(full_disk(0))
                then()

        home.react = fill
        with pytest.raises(StopError, match="File too large"):
            await say(session, line)
    assert home.react is None
    assert isinstance(home.told[-1], TurnFinished)  # no front is left in the middle of a turn


def nothing() -> None:
    """Only the disk fails."""


def agree(home: House, session: Session) -> None:
    (path,) = home.home.glob("sessions/*/myagent_conversation_*.jsonl")
    loaded = load(path)
    assert loaded.notices == ()
    assert list(loaded.conversation.pairs) == session.pairs
    assert loaded.open == ()


def contents(body: bytes) -> list[str]:
    return [message["content"] for message in json.loads(body)["messages"][1:]]


async def test_an_answer_that_did_not_fit_is_kept_and_written_before_the_next_line(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="Done."), Step(text="Yes.")) as home, home.session() as session:
        await fails(home, session, "work", ReplyFinished, nothing)
        assert session.turn == 2
        assert (await say(session, "really?")).text == "Yes."
        agree(home, session)
    assert contents(home.bodies()[1]) == ["work", "Done.", "really?"]


async def test_results_that_did_not_fit_are_kept_and_what_had_not_begun_is_answered_so(
    tmp_path: Path,
) -> None:
    calls = calling(
        ("run_command", {"command": "echo first"}), ("run_command", {"command": "echo second > made"})
    )
    async with house(tmp_path, calls, Step(text="I see.")) as home, home.session() as session:
        await fails(home, session, "work", ToolStarted, nothing)
        assert (await say(session, "go on")).text == "I see."
        agree(home, session)
    assert not (home.workspace / "made").exists()
    _, _, first, second, closing, _ = contents(home.bodies()[1])
    assert first.startswith("first")
    assert "before this call began" in second
    assert "could not be written" in closing


async def test_a_full_disk_before_anything_arrived_withdraws_the_turn(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="Hello.")) as home:
        async with home.session() as session:
            await fails(home, session, "lost", TurnStarted, nothing)
            assert session.turn == 1
            assert (await say(session, "hello")).turn == 1
            agree(home, session)
        assert contents(home.bodies()[0]) == ["hello"]
        async with home.session(Continue()) as session:
            assert [pair.turn for pair in session.pairs] == [1]


async def test_text_that_was_shown_when_the_turn_is_interrupted_on_a_full_disk_stays(tmp_path: Path) -> None:
    half = Step(text="The answer is forty-two, since", chunk=10, fault=Stall(after=2))
    async with house(tmp_path, half, Step(text="Go on.")) as home, home.session() as session:
        await fails(home, session, "why?", TextDelta, session.interrupt)
        assert (await say(session, "well?")).text == "Go on."
        agree(home, session)
    assert "The answer" in contents(home.bodies()[1])[1]


async def test_while_the_disk_is_full_no_line_is_taken_and_nothing_changes(tmp_path: Path) -> None:
    async with house(tmp_path, command("echo 1"), Step(text="Fine.")) as home, home.session() as session:
        await fails(home, session, "work", ToolFinished, nothing)
        turn, before = session.turn, session.context()
        with full_disk(0), pytest.raises(StopError):
            await say(session, "again")
        with full_disk(0), pytest.raises(StopError):
            await session.compact()
        assert (session.turn, session.context()) == (turn, before)
        assert (await say(session, "again")).text == "Fine."
        agree(home, session)
