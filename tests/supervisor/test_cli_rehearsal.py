"""The rehearsal: it checks itself without a person, notices what is broken, takes nothing of the user's."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from protocol.display import Display
from protocol.events import ToolFinished
from protocol.tools.catalog import decode
from supervisor.exits import HUNG_UP
from supervisor.harmless import for_stream
from supervisor.options import REHEARSAL
from supervisor.rehearsal import check, play
from supervisor.rehearsal.stage import Played, Stage, play_task, set_up
from supervisor.rehearsal.tour import ANSWER, KNOWN, PLANTED, REFUSALS, script
from tests.product import COMMAND, SECONDS, Product
from tests.pseudo_terminal import PseudoTerminal
from tests.supervisor.terminal import Terminal


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def test_the_check_passes_and_says_what_it_saw(product: Product) -> None:
    done = product.run("rehearse", "--check", environ={"DEEPSEEK_API_KEY": "sk-of-the-user-0123456789"})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == REHEARSAL
    assert sum(line.startswith("  ok  ") for line in lines) == len(check.CHECKS)
    assert f"The answer: {ANSWER}" in lines
    assert any("DEEPSEEK_API_KEY" in line for line in lines)
    assert "sk-of-the-user" not in done.stdout
    assert not product.home.exists()  # the user's state is not touched


def test_without_a_terminal_the_task_is_shown_and_nothing_is_waited_for(product: Product) -> None:
    done = product.run("rehearse")
    assert done.returncode == 0
    for words in (REHEARSAL, "read_file · ", "+    echo $(( $1 + $2 ))", "total 2 3 = 5: right", ANSWER):
        assert words in done.stdout


def test_nearly_every_check_fails_where_nothing_happened() -> None:
    """Each check looks at the effect, so a stage on which nothing happened fails nearly all of them."""
    with set_up() as stage:
        wrong = [what for what, test in check.CHECKS if test(stage, Played())]
    assert len(wrong) == len(check.CHECKS) - 2  # nothing is left over and nothing is open to others


def test_a_wrong_effect_is_noticed_by_the_check_that_is_about_it() -> None:
    with set_up() as stage:
        played = next(event for event in play_task(stage) if isinstance(event, Played))
        assert failed(stage, played) == []
        total = stage.workspace / "total.sh"
        total.write_text(total.read_text() + "# and more\n")
        (stage.workspace / "verdict.txt").write_text("total 2 3 = 5: wrong\n")
        (transcript,) = stage.home.glob("sessions/*/myagent_conversation_*.jsonl")
        with transcript.open("a") as file:
            file.write(json.dumps({"kind": "message", "role": "system"}) + "\n")
        transcript.chmod(0o644)
        lines = stage.requests.read_text().splitlines(keepends=True)
        stage.requests.write_text("".join(lines[:-1]))
        played.exit_code = 3
        played.events = [event for event in played.events if type(event).__name__ != "SandboxReady"]
        with subprocess.Popen(["sleep", "60"]) as left:
            try:
                assert failed(stage, played) == [
                    "_worker", "_edited", "_ran", "_answered", "_requests", "_transcript", "_private",
                    "_nothing_left",
                ]  # fmt: skip
            finally:
                left.kill()


def test_what_the_sandbox_shall_refuse_is_possible_without_it_and_noticed_by_its_check() -> None:
    with set_up() as stage:
        played = next(event for event in play_task(stage) if isinstance(event, Played))
        command = next(
            str(call.arguments["command"])
            for step in script().steps
            for call in step.calls
            if isinstance(call.arguments, dict) and PLANTED in str(call.arguments)
        )
        ran = subprocess.run(
            ["bash", "-c", command], cwd=stage.workspace, capture_output=True, text=True, check=True
        )
        for what in REFUSALS:
            assert f"{what}: NOT REFUSED" in ran.stdout
        assert failed(stage, played) == ["_refused"]  # the file is there now
        (stage.workspace.parent / PLANTED).unlink()
        assert failed(stage, played) == []
        ran_as_well = [
            msgspec.structs.replace(event, display=Display("", preview=ran.stdout))
            if isinstance(event, ToolFinished)
            else event
            for event in played.events
        ]
        played.events = ran_as_well
        assert failed(stage, played) == ["_refused"]


def failed(stage: Stage, played: Played) -> list[str]:
    return [test.__name__ for _, test in check.CHECKS if test(stage, played)]


def test_the_stage_passes_no_key_on_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-0123456789")
    monkeypatch.setenv("AGENT_MODEL", "of-the-user")
    with set_up() as stage:
        assert "DEEPSEEK_API_KEY" not in stage.environment
        assert "AGENT_MODEL" not in stage.environment
        scratch = stage.workspace.parent
        assert Path(f"/proc/{stage.server}").exists()
    assert not scratch.exists()
    assert not Path(f"/proc/{stage.server}").exists()


def test_a_rehearsal_that_is_told_to_end_takes_its_stage_down(product: Product, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with PseudoTerminal([*COMMAND, "rehearse"], product, TERM="dumb", TMPDIR=str(scratch)) as terminal:
        terminal.wait_for("Ctrl-D leaves.")
        terminal.signal(signal.SIGTERM)
        assert terminal.ended() in (143, -signal.SIGTERM)
    assert list(scratch.iterdir()) == []


def test_a_rehearsal_whose_terminal_is_closed_ends_quietly_and_takes_its_stage_down(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environ = {name: None for name in os.environ if name.startswith("AGENT_") or name == "DEEPSEEK_API_KEY"}
    kept = {"TMPDIR": str(scratch), "XDG_CONFIG_HOME": str(tmp_path), "AGENT_HOME": str(tmp_path / "home")}
    with Terminal("supervisor", [], {**environ, **kept}) as terminal:
        terminal.wait_for("You 1 ❯ 0%")
        terminal.vanish()
        assert terminal.process.wait(SECONDS) == HUNG_UP
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "home").exists()


def test_every_call_of_the_script_is_one_that_the_tools_take() -> None:
    plan = script()
    steps = [*plan.steps, *(step for case in plan.cases for step in case.steps)]
    calls = [call for step in steps for call in step.calls]
    assert len(calls) > 8
    for call in calls:
        decode(call.name, json.dumps(call.arguments))


@pytest.mark.parametrize("line", [*KNOWN, "hello"])
def test_each_thing_to_type_has_a_case_of_its_own(line: str) -> None:
    first = next(case for case in script().cases if case.match in line)
    assert bool(first.match) == (line in KNOWN)
    assert len({next(c.match for c in script().cases if c.match in each) for each in KNOWN}) == len(KNOWN)


def test_a_listening_port_is_named_but_nothing_is_sent_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(play, "LOCAL_SERVERS", {port: "Something", 9: "Nobody"})
        assert play.local_servers() == {port: "Something"}
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(SECONDS)
            assert connection.recv(1) == b""


def test_bare_agent_at_a_terminal_plays_it_and_answers_what_is_typed(product: Product) -> None:
    with PseudoTerminal(COMMAND, product, TERM="dumb", NO_COLOR="1") as terminal:
        assert REHEARSAL in terminal.wait_for("Ctrl-D leaves.")
        terminal.type("show the sandbox\r")
        seen = terminal.wait_for("reaches no network")
        assert "write in the workspace: done" in seen
        for what in REFUSALS:
            assert f"{what}: refused" in seen
        terminal.type("ask for a permission\r")
        terminal.wait_for("[o]nce  [s]ession  [p]roject  [n]o  (Esc: no) > ")
        terminal.type("once\r")
        terminal.wait_for("only you can permit")
        terminal.type("what is the weather\r")
        terminal.wait_for("I am a script, no model")
        terminal.type("\x04")
        terminal.wait_for("To get a real one")
        assert terminal.ended() == 0
    assert not product.home.exists()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_the_rehearsal_speaks_the_encoding_of_its_terminal(encoding: str) -> None:
    line = "❯ it says … ä"
    done = subprocess.run(
        [sys.executable, "-c", f"from supervisor.rehearsal.play import say; say({line!a})"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
        timeout=SECONDS,
    )
    assert done.stdout.decode(encoding) == for_stream(line, encoding) + "\n"
