"""Turns played whole: over HTTP, in a real worker, with everything on disk."""

import itertools
import json
import os
import signal
from pathlib import Path

import pytest
import trio

from protocol.events import Notice, ReplyFinished, StopReason, ToolFinished
from supervisor.exits import StopError
from supervisor.options import Continue, Resume
from supervisor.rehearsal.script import Status, Step
from tests.supervisor.house import calling, command, house, say
from tests.supervisor.pool_play import processes

FOUR_ROUNDS = (
    calling(("read_file", {"path": "a.txt"}), text="I read it.", thinking="Look first."),
    calling(("edit_file", {"path": "a.txt", "edits": [{"old": "hello", "new": "goodbye"}]})),
    command("cat a.txt"),
    Step(text="It says goodbye."),
)


def prefix(body: bytes) -> bytes:
    """The messages of a request as they were sent, without the bracket that ends them."""
    return body[: body.index(b'],"tools"')]


async def test_a_task_of_four_rounds_changes_the_file_and_is_all_on_disk(tmp_path: Path) -> None:
    async with house(tmp_path, *FOUR_ROUNDS) as home:
        (home.workspace / "a.txt").write_text("hello\n")
        async with home.session() as session:
            finished = await say(session, "change it")
            assert (session.turn, session.turns) == (2, 1)
    assert (finished.reason, finished.text, finished.rounds) == (
        StopReason.ANSWERED,
        "It says goodbye.",
        4,
    )
    assert (home.workspace / "a.txt").read_text() == "goodbye\n"
    roles = [message["role"] for message in home.messages()]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant"]
    assert "goodbye" in str(home.messages()[6]["content"])


async def test_each_request_begins_with_the_one_before_byte_for_byte(tmp_path: Path) -> None:
    async with house(tmp_path, *FOUR_ROUNDS, Step(text="You are welcome.")) as home:
        (home.workspace / "a.txt").write_text("hello\n")
        async with home.session() as session:
            await say(session, "change it")
            await say(session, "thanks")
    bodies = home.bodies()
    assert len(bodies) == 5
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(prefix(before))


async def test_at_the_round_limit_the_last_request_has_no_tools_and_a_line_that_is_stored_nowhere(
    tmp_path: Path,
) -> None:
    steps = [command(f"echo {number}") for number in range(2)]
    async with house(tmp_path, *steps, Step(text="Two done."), Step(text="Next.")) as home:
        async with home.session(max_tool_rounds_per_turn=2) as session:
            finished = await say(session, "work")
            turn_after = session.turn
            await say(session, "go on")
    last, following = (json.loads(body) for body in home.bodies()[2:])
    assert "tools" not in last
    assert last["messages"][-1]["role"] == "user"
    volatile = last["messages"][-1]["content"]
    assert volatile not in json.dumps(following, ensure_ascii=False)
    assert volatile not in json.dumps(home.transcript(), ensure_ascii=False)
    assert (finished.reason, finished.text, turn_after) == (StopReason.ROUNDS, "Two done.", 2)


async def test_a_model_that_calls_tools_though_none_are_offered_still_ends_the_turn(tmp_path: Path) -> None:
    async with house(tmp_path, command("echo 1"), command("echo 2"), validate=False) as home:
        async with home.session(max_tool_rounds_per_turn=1) as session:
            finished = await say(session, "work")
    assert finished.reason is StopReason.ROUNDS
    assert "no summary" in finished.text
    assert len([event for event in home.told if isinstance(event, ToolFinished)]) == 1


async def test_a_provider_that_fails_before_anything_came_leaves_nothing_behind(tmp_path: Path) -> None:
    refusal = Step(fault=Status(401, "Authentication Fails, Your api key: ****abcd is invalid"))
    async with house(tmp_path, refusal, Step(text="Now it works.")) as home:
        async with home.session() as session:
            failed = await say(session, "hello")
            assert (failed.reason, failed.text, session.turn) == (StopReason.WITHDRAWN, "", 1)
            assert "401" in failed.error or "key" in failed.error
            again = await say(session, "hello again")
    assert (again.turn, again.reason) == (1, StopReason.ANSWERED)
    sent = json.loads(home.bodies()[-1])["messages"]
    assert [message["content"] for message in sent[1:]] == ["hello again"]
    assert "withdrawn" in [line["kind"] for line in home.transcript()]


async def test_a_provider_that_fails_after_a_round_closes_the_pair_in_words(tmp_path: Path) -> None:
    refusal = Step(fault=Status(402, "Insufficient Balance"))
    async with house(tmp_path, command("echo done"), refusal, Step(text="Paid.")) as home:
        async with home.session() as session:
            failed = await say(session, "work")
            assert (failed.reason, session.turn) == (StopReason.FAILED, 2)
            assert "Insufficient Balance" in failed.text
            assert (await say(session, "go on")).text == "Paid."


async def test_arguments_that_do_not_parse_are_never_run_and_what_is_stored_parses(tmp_path: Path) -> None:
    broken = calling(("run_command", '{"command": "touch ran", timeout": 5}'))
    async with house(tmp_path, broken, Step(text="I see.")) as home:
        async with home.session() as session:
            assert (await say(session, "run it")).text == "I see."
    assert not (home.workspace / "ran").exists()
    call = json.loads(home.bodies()[1])["messages"][2]["tool_calls"][0]
    assert 'touch ran", timeout' in json.loads(call["function"]["arguments"])["invalid_arguments"]
    result = json.loads(home.bodies()[1])["messages"][3]["content"]
    assert "not run" in result
    assert "timeout" in result


async def test_after_three_such_replies_running_the_turn_stops_and_the_next_line_works(
    tmp_path: Path,
) -> None:
    broken = [calling(("run_command", '{"command": "x", timeout": 5}'))] * 3
    async with house(tmp_path, *broken, Step(text="Better.")) as home:
        async with home.session() as session:
            stopped = await say(session, "run it")
            assert stopped.reason is StopReason.FAILED
            assert "3 replies running" in stopped.text
            assert len(home.bodies()) == 3
            assert (await say(session, "in other words")).text == "Better."


async def test_a_reply_of_thinking_only_is_asked_for_once_more_and_then_told_to_the_user(
    tmp_path: Path,
) -> None:
    silent = Step(thinking="Let me see.")
    async with house(tmp_path, silent, silent, Step(text="Here.")) as home:
        async with home.session() as session:
            nothing = await say(session, "hello")
            assert nothing.reason is StopReason.WITHDRAWN
            assert nothing.error
            assert len(home.bodies()) == 2
            assert (await say(session, "go on")).text == "Here."


async def test_an_answer_that_was_cut_is_not_passed_off_as_whole(tmp_path: Path) -> None:
    steps = (Step(text="Half of", finish_reason="length"), Step(text="Whole."))
    async with house(tmp_path, *steps) as home, home.session() as session:
        assert (await say(session, "tell me")).text == "Half of"
        await say(session, "again")
    warned = [event.text for event in home.told if isinstance(event, Notice) and "incomplete" in event.text]
    assert len(warned) == 1
    assert "max_output_tokens" in warned[0]


async def test_a_resume_goes_on_in_the_same_file_with_the_same_bytes(tmp_path: Path) -> None:
    async with house(tmp_path, *FOUR_ROUNDS, Step(text="Still goodbye.")) as home:
        (home.workspace / "a.txt").write_text("hello\n")
        async with home.session() as session:
            await say(session, "change it")
            identity = session.id
        async with home.session(Resume(identity)) as session:
            assert session.turn == 2
            again = await say(session, "and now?")
    assert (again.turn, again.text) == (2, "Still goodbye.")
    assert home.bodies()[4].startswith(prefix(home.bodies()[3]))
    rounds = [message["round"] for message in home.messages() if message["role"] == "assistant"]
    assert rounds == [1, 2, 3, 4, 5]
    assert [line["kind"] for line in home.transcript()].count("session") == 2


async def test_continue_without_a_conversation_says_so(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        with pytest.raises(StopError, match="no conversation of this project"):
            async with home.session(Continue()):
                pass


async def test_our_own_key_never_enters_the_conversation(tmp_path: Path) -> None:
    key = "sk-test-0123456789abcdef0123"
    async with house(tmp_path, command(f"echo {key[:8]}''{key[8:]}"), Step(text="Done.")) as home:
        async with home.session(key=key) as session:
            await say(session, "print it")
    result = json.loads(home.bodies()[1])["messages"][3]["content"]
    assert "masked" in result
    assert key not in json.dumps(home.transcript())
    assert not any(key in repr(event) for event in home.told)


async def test_the_limit_of_turns_is_a_brake_on_the_session_that_a_resume_releases(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="One."), Step(text="Two.")) as home:
        async with home.session(max_turns_per_session=1) as session:
            await say(session, "one")
            with pytest.raises(StopError, match=session.id):
                await say(session, "two")
        async with home.session(Continue(), max_turns_per_session=1) as session:
            assert (await say(session, "two")).text == "Two."


async def test_text_beside_calls_is_narration_and_text_without_is_the_answer(tmp_path: Path) -> None:
    async with house(tmp_path, *FOUR_ROUNDS) as home:
        (home.workspace / "a.txt").write_text("hello\n")
        async with home.session() as session:
            await say(session, "change it")
    replies = [event for event in home.told if isinstance(event, ReplyFinished)]
    assert [(reply.kind, reply.text) for reply in replies] == [
        ("narration", "I read it."),
        ("narration", ""),
        ("narration", ""),
        ("answer", "It says goodbye."),
    ]


async def kill_the_worker(once: Path) -> None:
    while not once.exists():
        await trio.sleep(0.005)
    os.kill(processes()[1], signal.SIGKILL)


async def test_a_worker_that_is_killed_is_told_of_at_the_next_boundary(tmp_path: Path) -> None:
    async with house(tmp_path, command("touch go; sleep 5"), Step(text="Oh.")) as home:
        async with home.session() as session, trio.open_nursery() as nursery:
            nursery.start_soon(kill_the_worker, home.workspace / "go")
            assert (await say(session, "try")).text == "Oh."
    messages = json.loads(home.bodies()[1])["messages"]
    assert [message["role"] for message in messages[3:]] == ["tool", "user"]
    assert "unknown" in messages[3]["content"]
    assert "the worker died" in messages[4]["content"]
    assert "background jobs ended" in messages[4]["content"]
    assert "starts in the workspace" in messages[4]["content"]
    assert any(isinstance(event, Notice) and "worker died" in event.text for event in home.told)


async def test_what_the_model_was_to_be_told_outlives_a_turn_that_is_withdrawn(tmp_path: Path) -> None:
    refusal = Step(fault=Status(401, "no"))
    async with house(tmp_path, refusal, command("true"), Step(text="I see.")) as home:
        async with home.session() as session:
            session.note("background job ended: 1")
            await say(session, "lost")
            await say(session, "again")
    assert json.loads(home.bodies()[2])["messages"][-1]["content"] == "[background job ended: 1]"
