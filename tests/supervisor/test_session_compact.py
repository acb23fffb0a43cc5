"""Compaction as far as it goes: one summariser call over the closed pairs, and nothing changed on failure."""

import json
from pathlib import Path

import pytest
import trio

from protocol.events import Compacted
from supervisor.exits import StopError
from supervisor.model.errors import ModelError
from supervisor.options import Continue
from supervisor.rehearsal.script import ScriptedUsage, Stall, Status, Step
from supervisor.store.round_log import Sent, rows
from tests.supervisor.house import command, house, say

LONG = (command("seq 1 2000"), Step(text="Counted."))


async def test_a_summary_replaces_the_closed_pairs_and_keeps_the_users_words(tmp_path: Path) -> None:
    async with house(tmp_path, *LONG, Step(text="S: counted to 2000."), Step(text="Yes.")) as home:
        async with home.session() as session:
            await say(session, "count to 2000")
            compacted = await session.compact()
            assert session.turn == 2
            assert (await say(session, "did you?")).text == "Yes."
    assert compacted.pairs == 1
    assert compacted.after < compacted.before
    asked, after = (json.loads(body) for body in home.bodies()[2:])
    assert "tools" not in asked
    assert len(asked["messages"]) == 2
    texts = [message["content"] for message in after["messages"][1:]]
    assert "count to 2000" in texts[0]
    assert texts[1:] == ["S: counted to 2000.", "did you?"]


async def test_what_a_compaction_saved_is_told_in_one_measure(tmp_path: Path) -> None:
    steps = (Step(text="Hello."), Step(text="Good."), Step(text="S."))
    async with house(tmp_path, *steps) as home, home.session() as session:
        await say(session, "hello " * 20)
        await say(session, "bye " * 20)
        compacted = await session.compact()
        assert compacted.after < compacted.before
        assert session.context().used == compacted.after


async def test_the_summarisers_request_is_estimated_by_its_own_size(tmp_path: Path) -> None:
    first = Step(calls=LONG[0].calls, usage=ScriptedUsage(prompt=1_000))
    grown = Step(text="Counted.", usage=ScriptedUsage(prompt=50_000))
    async with house(tmp_path, first, grown, Step(text="S: counted.")) as home, home.session() as session:
        await say(session, "count to 2000")
        await session.compact()
        wanted = session.rounds.budget.tokens(home.server.requests()[2].size)
    (log,) = home.home.glob("sessions/*/rounds.jsonl")
    sent = [row for row in rows(log) if isinstance(row, Sent)]
    assert [row.estimate for row in sent if row.kind == "compaction"] == [wanted]


async def test_a_resume_reproduces_the_compacted_state(tmp_path: Path) -> None:
    async with house(tmp_path, *LONG, Step(text="S."), Step(text="Yes."), Step(text="Still.")) as home:
        async with home.session() as session:
            await say(session, "count to 2000")
            await session.compact()
            await say(session, "did you?")
        async with home.session(Continue()) as session:
            await say(session, "sure?")
    before, after = home.bodies()[3:]
    assert after.startswith(before[: before.index(b'],"tools"')])


async def test_a_summary_that_is_not_smaller_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="Hi."), Step(text="long " * 500), Step(text="Yes.")) as home:
        async with home.session() as session:
            await say(session, "hello")
            before = session.context()
            with pytest.raises(StopError, match="no smaller"):
                await session.compact()
            assert session.context() == before
            await say(session, "go on")
    assert "compaction" not in [line["kind"] for line in home.transcript()]
    assert not any(isinstance(event, Compacted) for event in home.told)


async def test_a_summariser_that_fails_changes_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="Hi."), Step(fault=Status(402, "Insufficient Balance"))) as home:
        async with home.session() as session:
            await say(session, "hello")
            before = session.context()
            with pytest.raises(ModelError, match="Insufficient"):
                await session.compact()
            assert session.context() == before


async def test_with_nothing_said_there_is_nothing_to_compact(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.session() as session:
        with pytest.raises(StopError, match="nothing to compact"):
            await session.compact()


async def test_the_context_is_told_part_by_part_in_calibrated_tokens(tmp_path: Path) -> None:
    async with house(tmp_path, *LONG) as home, home.session() as session:
        assert session.context().estimated
        await say(session, "count to 2000")
        report = session.context()
    names = [name for name, _ in report.parts]
    assert names == ["system prompt", "tools", "turn 1: count to 2000"]
    assert not report.estimated
    assert sum(tokens for _, tokens in report.parts) == pytest.approx(report.used, rel=0.1)


async def test_a_compaction_that_is_cancelled_changes_nothing(tmp_path: Path) -> None:
    stalled = Step(text="S: counted to 2000.", chunk=4, fault=Stall(after=2))
    async with house(tmp_path, *LONG, stalled, Step(text="Yes.")) as home:
        async with home.session() as session:
            await say(session, "count to 2000")
            before = session.context()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.compact)
                await home.server.wait_for(3)
                nursery.cancel_scope.cancel()
            assert session.context() == before
            assert (await say(session, "did you?")).turn == 2
        assert "compaction" not in [line["kind"] for line in home.transcript()]
    sent, again = home.bodies()[1], home.bodies()[3]
    assert again.startswith(sent[: sent.index(b'],"tools"')])
