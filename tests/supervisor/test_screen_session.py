"""The whole program at a terminal: the real command, a real session and worker, the scripted server."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.supervisor.terminal import Terminal

CTRL_C, CTRL_D, CTRL_U = "\x03", "\x04", "\x15"

SLOW = {"text": "slow words that never seem to end, " * 40, "chunk": 5, "pause": 0.05}
SCRIPT = {
    "cases": [
        {
            "match": "mend",
            "steps": [
                {"text": "I read it.", "calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]},
                {
                    "thinking": "One word.",
                    "calls": [
                        {
                            "name": "edit_file",
                            "arguments": {"path": "a.txt", "edits": [{"old": "wrong", "new": "right"}]},
                        }
                    ],
                },
                {"calls": [{"name": "run_command", "arguments": {"command": "cat a.txt"}}]},
                {"text": "It is right now."},
            ],
        },
        {"match": "slow", "steps": [SLOW]},
        {"match": "silent", "steps": [{"text": "late", "delay": 60.0}]},
        {
            "match": "sleep",
            "steps": [{"calls": [{"name": "run_command", "arguments": {"command": "sleep 60"}}]}],
        },
        {"match": "", "steps": [{"text": "Yes, I am here."}]},
    ]
}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    command = [sys.executable, "-m", "supervisor.rehearsal.server", str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["url"]
        server.terminate()


def agent(tmp_path: Path, url: str, *more: str) -> Terminal:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "a.txt").write_text("first\nwrong\nlast\n", encoding="utf-8")
    environ = {
        "AGENT_HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "DEEPSEEK_API_KEY": None,
    }
    arguments = ["--base-url", url, "--workspace", str(workspace), *more]
    return Terminal("supervisor", arguments, environ, columns=100, rows=40)


def transcript(tmp_path: Path) -> list[dict[str, object]]:
    (path,) = (tmp_path / "home" / "sessions").glob("*/myagent_conversation_*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_turn_an_interrupted_turn_and_a_third_one(tmp_path: Path, url: str) -> None:
    with agent(tmp_path, url) as terminal:
        terminal.wait_for("You 1 ❯ 0%", "sandbox")
        terminal.send("mend it\r")
        terminal.wait_for("It is right now.", "You 2 ❯")
        screen = terminal.text()
        assert "● read_file a.txt · " in screen
        assert "2 - wrong" in screen
        assert "2 + right" in screen
        assert "  │ right" in screen
        assert terminal.colour("I read it.") == "8a8a8a"
        assert terminal.colour("It is right now.") == "ffaf00"

        terminal.send("slow\r")
        terminal.wait_for("slow words")
        terminal.send(CTRL_C)
        terminal.wait_for("[interrupted by the user]", "You 3 ❯")

        terminal.send("and now?\r")
        terminal.wait_for("Yes, I am here.", "You 4 ❯")
        terminal.send(CTRL_D)
        assert terminal.wait_for_exit() == 0
        assert "to go on: agent --resume" in terminal.text()
        assert terminal.restored()
    assert (tmp_path / "workspace" / "a.txt").read_text(encoding="utf-8") == "first\nright\nlast\n"
    roles = [line["role"] for line in transcript(tmp_path) if line["kind"] == "message"]
    assert "system" not in roles
    assert roles[-4:] == ["user", "assistant", "user", "assistant"]


def test_a_turn_without_a_word_of_reply_is_withdrawn_into_the_editor(tmp_path: Path, url: str) -> None:
    with agent(tmp_path, url) as terminal:
        terminal.wait_for("You 1 ❯ 0%")
        terminal.send("silent\r")
        terminal.wait_for("waiting for the model")
        terminal.send(CTRL_C)
        terminal.wait_for("nothing was kept of this turn (interrupted by the user)")
        terminal.wait_for_last_line("You 1 ❯ 0% silent")
        terminal.send(CTRL_U + "hello\r")
        terminal.wait_for("Yes, I am here.", "You 2 ❯")


def test_what_was_typed_during_a_turn_that_is_stopped_comes_back_unsent(tmp_path: Path, url: str) -> None:
    with agent(tmp_path, url) as terminal:
        terminal.wait_for("You 1 ❯ 0%", "sandbox")
        terminal.send("slow\r")
        terminal.wait_for("slow words")
        terminal.send("delete it all\r")
        terminal.send(CTRL_C)
        terminal.wait_for("[interrupted by the user]", "You 2 ❯ 0% delete it all")
        terminal.send(CTRL_U + "hello\r")
        terminal.wait_for("Yes, I am here.", "You 3 ❯")
    said = [line["content"] for line in transcript(tmp_path) if line.get("role") == "user"]
    assert said == ["slow", "hello"]


def test_ctrl_c_while_the_connection_is_made_keeps_the_session(tmp_path: Path) -> None:
    """A server whose queue of connections is full: the client waits for the first packet."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        with ExitStack() as callers, agent(tmp_path, f"http://127.0.0.1:{port}") as terminal:
            for _ in range(2):  # one is accepted by the kernel beyond the queue's length
                caller = callers.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(("127.0.0.1", port))
            terminal.wait_for("You 1 ❯ 0%")
            terminal.send("hello\r")
            terminal.wait_for("waiting for the model")
            terminal.send(CTRL_C)
            terminal.wait_for("nothing was kept of this turn (interrupted by the user)")
            terminal.wait_for_last_line("You 1 ❯ 0% hello")


def test_ctrl_c_in_a_command_ends_the_command_and_keeps_the_session(tmp_path: Path, url: str) -> None:
    with agent(tmp_path, url) as terminal:
        terminal.wait_for("You 1 ❯ 0%", "sandbox")
        terminal.send("sleep\r")
        terminal.wait_for("run_command sleep 60 …")
        terminal.send(CTRL_C)
        terminal.wait_for("You 2 ❯")
        terminal.send("hello\r")
        terminal.wait_for("Yes, I am here.", "You 3 ❯")


def test_a_conversation_is_resumed_where_it_was(tmp_path: Path, url: str) -> None:
    with agent(tmp_path, url) as terminal:
        terminal.wait_for("You 1 ❯ 0%")
        terminal.send("hello\r")
        terminal.wait_for("You 2 ❯")
        terminal.send(CTRL_D)
        terminal.wait_for_exit()
    with agent(tmp_path, url, "--continue") as terminal:
        terminal.wait_for("(resumed)", "You 2 ❯")
        terminal.send("/context\r")
        terminal.wait_for("turn 1: hello")


def test_an_unknown_conversation_is_one_clear_line(tmp_path: Path, url: str) -> None:
    with agent(tmp_path, url, "--resume", "nosuchid") as terminal:
        assert terminal.wait_for_exit() == 2
        assert "nosuchid" in terminal.text()
        assert "Traceback" not in terminal.text()
        assert terminal.restored()


def test_a_server_that_refuses_is_an_error_that_keeps_the_session(tmp_path: Path, url: str) -> None:
    with agent(tmp_path, f"{url}/nowhere") as terminal:
        terminal.wait_for("You 1 ❯ 0%")
        terminal.send("hello\r")
        terminal.wait_for("nothing was kept of this turn", "nowhere")
        terminal.wait_for_last_line("You 1 ❯ 0% hello")


def test_a_piped_line_is_played_without_a_terminal(tmp_path: Path, url: str) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "--base-url", url, "--workspace", str(workspace)],
        input=b"hello\n",
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "AGENT_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert b"Yes, I am here." in done.stdout
    assert b"\x1b" not in done.stdout
