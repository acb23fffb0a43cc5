"""kill -9 of the product in the middle, as a user's machine would do it: then it is started again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from supervisor.rehearsal.script import Stall, Step
from tests.supervisor.house import House, calling, command, house


def start(home: House, *arguments: str) -> subprocess.Popen[bytes]:
    """`agent run` as a child, with a state directory of its own and no key."""
    environ = {"PATH": os.environ["PATH"], "AGENT_HOME": str(home.home), "HOME": str(home.home)}
    program = [sys.executable, "-m", "supervisor", "run", "--base-url", home.server.url()]
    return subprocess.Popen(
        [*program, "--workspace", str(home.workspace), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        cwd=Path(__file__).parent.parent.parent,
    )


async def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, once it has ended."""
    out, err = await trio.to_thread.run_sync(process.communicate)
    return process.returncode, out.decode(), err.decode()


def of(supervisor: int) -> list[str]:
    """The processes that this supervisor or one of its workers has started, by their command lines."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if f"POLIER_SUPERVISOR={supervisor}:".encode() in (directory / "environ").read_bytes():
                found.append((directory / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


async def killed(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    await ended(process)
    with trio.fail_after(5):
        while of(process.pid):
            await trio.sleep(0.01)


async def test_a_kill_during_a_command_loses_no_message_and_leaves_no_process(tmp_path: Path) -> None:
    both = calling(
        ("run_command", {"command": "echo x >> out; setsid sleep 300 & touch begun; sleep 300"}),
        ("read_file", {"path": "out"}),
        text="I append.",
    )
    async with house(tmp_path, both, Step(text="It is there once.")) as home:
        process = start(home, "append once")
        with trio.fail_after(30):
            while not (home.workspace / "begun").exists():
                await trio.sleep(0.01)
        assert of(process.pid)
        await killed(process)
        code, out, err = await ended(start(home, "--continue", "continue"))
    assert (code, out) == (0, "It is there once.\n"), err
    assert (home.workspace / "out").read_text() == "x\n"
    messages = json.loads(home.bodies()[1])["messages"]
    assert [message["role"] for message in messages[1:]] == [
        "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    for result in messages[3:5]:
        assert "interrupted; effect unknown, check before repeating" in result["content"]
    assert "interrupted before an answer" in messages[5]["content"]


async def test_a_kill_while_an_answer_is_shown_keeps_what_was_shown(tmp_path: Path) -> None:
    slow = Step(text="First part. " * 20, chunk=12, pause=0.05, fault=Stall(after=18))
    async with house(tmp_path, slow, Step(text="Where was I?")) as home:
        process = start(home, "tell me")
        with trio.fail_after(30):
            while b'"partial"' not in b"".join(p.read_bytes() for p in home.home.rglob("rounds.jsonl")):
                await trio.sleep(0.02)
        await killed(process)
        code, out, err = await ended(start(home, "--continue", "go on"))
    assert (code, out) == (0, "Where was I?\n"), err
    answer = json.loads(home.bodies()[1])["messages"][2]
    assert answer["role"] == "assistant"
    assert answer["content"].startswith("First part.")
    assert "[interrupted" in answer["content"]


async def test_a_second_process_is_told_who_holds_the_conversation_and_how_to_fork(tmp_path: Path) -> None:
    steps = (command("touch begun; sleep 300"), Step(text="From the fork."))
    async with house(tmp_path, *steps) as home:
        process = start(home, "wait")
        with trio.fail_after(30):
            while not (home.workspace / "begun").exists():
                await trio.sleep(0.01)
        code, out, err = await ended(start(home, "--continue", "me too"))
        assert code != 0
        assert out == ""
        assert str(process.pid) in err
        assert "--fork" in err
        identity = next(home.home.glob("sessions/*")).name
        code, out, err = await ended(start(home, "--fork", identity, "me too"))
        assert (code, out) == (0, "From the fork.\n"), err
        await killed(process)


@pytest.mark.parametrize("wanted", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_the_turn_properly(tmp_path: Path, wanted: signal.Signals) -> None:
    async with house(tmp_path, command("touch begun; sleep 300")) as home:
        process = start(home, "wait")
        with trio.fail_after(30):
            while not (home.workspace / "begun").exists():
                await trio.sleep(0.01)
        os.kill(process.pid, wanted)
        with trio.fail_after(10):
            code, _, err = await ended(process)
    assert code in (130, 143, 129)
    assert "Traceback" not in err
    last = home.messages()[-1]
    assert last["role"] == "assistant"
    assert "[" in str(last["content"])
    assert of(process.pid) == []


QUESTION = """
import os, sys
from pathlib import Path
import trio
from protocol.conversation import User
from supervisor.options import New
from supervisor.settings import Flags, load
from supervisor.wiring import open_session
from tests.supervisor.asking import ScriptedAsker

async def main(url, workspace):
    flags = Flags(base_url=url, workspace=workspace)
    settings = load(flags, os.environ, Path.cwd()).settings
    asker = ScriptedAsker()
    async with open_session(settings, None, New(), lambda event: None, asker) as session:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.say, User.says("write"))
            await asker.question()
            print("asked", flush=True)
            await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


def asking(home: House) -> subprocess.Popen[bytes]:
    """A session that prints when its question is open, and waits for ever for the answer."""
    return subprocess.Popen(
        [sys.executable, "-c", QUESTION, home.server.url(), str(home.workspace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "AGENT_HOME": str(home.home), "HOME": str(home.home)},
        cwd=Path(__file__).parent.parent.parent,
    )


async def test_a_kill_while_a_question_is_open_leaves_nothing_and_a_legal_conversation(
    tmp_path: Path,
) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    background = command("sleep 300", background=True)
    wants = command(f"touch {beside}/file", needs=[f"write:{beside}"])
    async with house(tmp_path, background, wants, Step(text="Yes.")) as home:
        process = asking(home)
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"asked\n"
        assert any("sleep" in line for line in of(process.pid))
        await killed(process)
        code, out, err = await ended(start(home, "--continue", "Go on"))
    assert (code, out) == (0, "Yes.\n"), err
    assert list(beside.iterdir()) == []
    answers = [line for line in home.messages() if line["role"] == "tool"]
    assert len(answers) == 2
    assert "effect" in str(answers[1]["content"])
