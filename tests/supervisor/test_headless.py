"""`agent run` as a child process against the scripted server: outputs, exit codes, ways to end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from supervisor.rehearsal.script import Reset, Script, ScriptedCall, Stall, Status, Step
from supervisor.rehearsal.thread import ServerThread
from tests.product import COMMAND, SECONDS, Product, end, one_line

WORK = (
    Step(text="I look.", calls=(ScriptedCall("read_file", {"path": "a.txt"}),)),
    Step(
        calls=(ScriptedCall("edit_file", {"path": "a.txt", "edits": [{"old": "1", "new": "2"}]}),),
        expect="one 1",
    ),
    Step(calls=(ScriptedCall("run_command", {"command": "cat a.txt; echo done > ran"}),)),
    Step(thinking="Good.", text="It says **two** now: é ❯ 🙂", expect="one 2"),
)
NOTHING = Step(calls=(ScriptedCall("run_command", {"command": "true"}),))


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread({}) as running:
        yield running


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def serve(server: ServerThread, product: Product, *steps: Step, repeat: bool = False) -> str:
    """Give the product a conversation of its own on the server; its name."""
    name = f"t{abs(hash(product.home))}"
    product.environ["AGENT_BASE_URL"] = server.add(name, Script(steps=steps, repeat_last=repeat))
    return name


def sent(server: ServerThread, name: str, number: int = -1) -> list[str]:
    """The contents of a request's messages, without the system's."""
    body = json.loads(server.requests(name)[number].body)
    return [str(message["content"]) for message in body["messages"]][1:]


def test_a_task_of_four_rounds_does_what_the_script_says(server: ServerThread, product: Product) -> None:
    (product.workspace / "a.txt").write_text("one 1\n")
    name = serve(server, product, *WORK)
    done = product.run("run", "Change it")
    assert (done.returncode, done.stdout) == (0, "It says **two** now: é ❯ 🙂\n")
    assert "edit_file · edited 1 place" in done.stderr
    assert (product.workspace / "a.txt").read_text() == "one 2\n"
    assert (product.workspace / "ran").read_text() == "done\n"
    roles = [line["role"] for line in product.messages()]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant"]
    bodies = [request.body for request in server.requests(name)]
    for earlier, later in pairwise(bodies):
        assert later.startswith(earlier[: earlier.rindex(b'],"tools":')])


def test_json_prints_every_event_numbered_and_closes_with_the_exit_code(
    server: ServerThread, product: Product
) -> None:
    (product.workspace / "a.txt").write_text("one 1\n")
    serve(server, product, *WORK)
    events, code = product.events("Change it")
    assert code == 0
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["v"] for event in events} == {1}
    types = [event["type"] for event in events]
    assert types[0] == "session_started"
    assert types.count("tool_finished") == 3
    assert types[-2:] == ["turn_finished", "session_closed"]
    assert events[-1]["exit_code"] == 0
    assert events[-1]["turns"] == 1


def test_the_round_limit_is_exit_4_with_the_answer_printed(server: ServerThread, product: Product) -> None:
    name = serve(server, product, NOTHING, NOTHING, Step(text="So far: nothing."))
    done = product.run("run", "--max-tool-rounds", "2", "Go on")
    assert (done.returncode, done.stdout) == (4, "So far: nothing.\n")
    assert "tools" not in server.requests(name)[-1].json()
    volatile = sent(server, name)[-1]
    assert volatile not in [line.get("content") for line in product.transcript()]


def test_a_refusal_by_the_server_is_exit_3_and_one_line(server: ServerThread, product: Product) -> None:
    serve(server, product, Step(fault=Status(401, "no such key")))
    done = product.run("run", "Hello")
    assert (done.returncode, done.stdout) == (3, "")
    one_line(done.stderr, ["401", "no such key"])


def test_a_task_that_got_no_reply_is_named_in_the_error(server: ServerThread, product: Product) -> None:
    serve(server, product, Step(fault=Status(400, "bad")))
    done = product.run("run", "The task of the day")
    assert done.returncode == 3
    one_line(done.stderr, ["withdrawn: The task of the day"])


def test_the_time_limit_is_exit_124_and_closes_the_turn(server: ServerThread, product: Product) -> None:
    slow = Step(text="I wait.", calls=(ScriptedCall("run_command", {"command": "echo begun; sleep 60"}),))
    serve(server, product, slow)
    done = product.run("run", "--timeout", "1.5", "Wait")
    assert (done.returncode, done.stdout) == (124, "")
    assert "I wait." in done.stderr
    assert "run_command (cancelled)" in done.stderr
    assert "time limit" in done.stderr
    messages = product.messages()
    assert [line["role"] for line in messages] == ["user", "assistant", "tool", "assistant"]
    assert "begun" in str(messages[2]["content"])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_turn_and_keeps_what_it_did(
    server: ServerThread, product: Product, number: signal.Signals, code: int
) -> None:
    serve(server, product, Step(text="I work.", chunk=4, fault=Stall(after=2)))
    with product.start("run", "--json", "Work") as child:
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line)["type"] == "text":
                break
        ended, out, err = end(child, number)
    assert ended == code
    closing = [json.loads(line) for line in out.splitlines()][-2:]
    assert [event["type"] for event in closing] == ["turn_finished", "session_closed"]
    assert closing[0]["reason"] == "interrupted"
    assert closing[1]["exit_code"] == code
    assert [line["role"] for line in product.messages()] == ["user", "assistant"]
    assert "Traceback" not in err


def test_a_signal_before_anything_arrived_withdraws_the_turn(server: ServerThread, product: Product) -> None:
    name = serve(server, product, Step(fault=Stall()))
    with product.start("run", "The line") as child:
        server.wait_for(1, name)
        code, out, err = end(child, signal.SIGINT)
    assert (code, out) == (130, "")
    assert "The line" in err


def test_continue_goes_on_in_the_same_transcript(server: ServerThread, product: Product) -> None:
    name = serve(server, product, Step(text="One."), Step(text="Two."))
    assert product.run("run", "First").stdout == "One.\n"
    assert product.run("run", "--continue", "Second").stdout == "Two.\n"
    assert [line["role"] for line in product.messages()] == ["user", "assistant"] * 2
    assert sent(server, name) == ["First", "One.", "Second"]
    listed = product.run("sessions")
    assert "First" in listed.stdout
    assert listed.stdout.count("\n") == 2  # with the head of the table


@pytest.mark.parametrize("flag", ["--resume", "--fork"])
def test_an_unknown_conversation_is_exit_2(product: Product, flag: str) -> None:
    product.environ["AGENT_BASE_URL"] = "http://127.0.0.1:9"
    done = product.run("run", flag, "nosuchid", "Hello")
    assert done.returncode == 2
    one_line(done.stderr, ["nosuchid"])


# Where the task comes from, and what stands at the other end of the streams.


def test_the_task_comes_from_stdin_or_a_file(server: ServerThread, product: Product) -> None:
    name = serve(server, product, Step(text="Yes."), repeat=True)
    (product.workspace / "task.md").write_bytes("\ufeffAus der Datei: ü\n".encode())
    assert product.run("run", "-", given="Von stdin: ä".encode()).returncode == 0
    assert product.run("run", "--file", "task.md").returncode == 0
    assert [sent(server, name, number)[-1] for number in (0, 1)] == ["Von stdin: ä", "Aus der Datei: ü\n"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", ""], ["empty"]),
        (["run", "  \n"], ["empty"]),
        (["run", "-"], ["stdin", "empty"]),
        (["run", "--file", "missing.md"], ["missing.md"]),
        (["run"], ["no task"]),
        (["run", "--nope", "x"], ["--nope"]),
        (["run", "--workspace", "/nowhere/at/all", "x"], ["/nowhere/at/all"]),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(product: Product, arguments: list[str], words: list[str]) -> None:
    done = product.run(*arguments, environ={"AGENT_BASE_URL": "http://127.0.0.1:9"})
    assert (done.returncode, done.stdout) == (2, "")
    one_line(done.stderr, words)
    assert not list(product.home.glob("sessions/*"))


@pytest.mark.parametrize("arguments", [["run", "Hello"], []])
def test_without_a_model_the_ways_on_are_named(product: Product, arguments: list[str]) -> None:
    done = product.run(*arguments)
    assert done.returncode == 3
    one_line(done.stderr, ["DEEPSEEK_API_KEY", "--base-url", "agent rehearse"])


def test_json_tells_a_refused_start_as_events_too(product: Product) -> None:
    events, code = product.events("Hello")
    assert code == 3
    assert [event["type"] for event in events] == ["notice", "session_closed"]
    assert events[-1]["exit_code"] == 3


def test_a_silent_pipe_on_stdin_is_not_waited_for(server: ServerThread, product: Product) -> None:
    serve(server, product, Step(text="Yes."))
    silent, _writer = pipe = os.pipe()
    try:
        with product.start("run", "Hello", stdin=silent) as child:
            out, _ = child.communicate(timeout=SECONDS)
    finally:
        for descriptor in pipe:
            os.close(descriptor)
    assert (child.returncode, out) == (0, b"Yes.\n")


def test_a_wait_for_stdin_can_be_interrupted(product: Product) -> None:
    silent, _writer = pipe = os.pipe()
    product.environ["AGENT_BASE_URL"] = "http://127.0.0.1:9"
    try:
        with product.start("run", "--json", "--timeout", "0.3", "-", stdin=silent) as child:
            out, _ = child.communicate(timeout=SECONDS)
    finally:
        for descriptor in pipe:
            os.close(descriptor)
    assert child.returncode == 124
    assert json.loads(out.splitlines()[-1])["exit_code"] == 124


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_reason_to_fail(server: ServerThread, product: Product, closed: str) -> None:
    serve(server, product, Step(text="Yes."))
    (product.workspace / "sub").mkdir()
    done = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "bash", *COMMAND, "run", "Hello"],
        cwd=product.workspace,
        env=product.environ,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0
    assert [line["role"] for line in product.messages()] == ["user", "assistant"]


def test_a_reader_that_goes_away_ends_the_run_quietly(server: ServerThread, product: Product) -> None:
    serve(server, product, Step(text="word " * 200, chunk=5, pause=0.01), repeat=True)
    with product.start("run", "--json", "Talk") as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr is not None
        err = child.stderr.read()
        assert child.wait(SECONDS) == 141
    assert err == b""


def test_a_full_disk_behind_stdout_is_one_line(server: ServerThread, product: Product) -> None:
    serve(server, product, Step(text="Yes."))
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with product.start("run", "Hello", stdout=full) as child:
            _, err = child.communicate(timeout=SECONDS)
    finally:
        os.close(full)
    assert child.returncode == 1
    one_line(err.decode(), ["stdout", "No space left"])


@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
    ],
)
def test_a_poor_encoding_degrades_characters_and_never_fails(
    server: ServerThread, product: Product, environ: dict[str, str]
) -> None:
    serve(server, product, Step(text="It says: é ❯ 🙂 完 \x1b]0;title\x07"))
    done = product.run("run", "Schöne Grüße 完", environ=environ)
    assert done.returncode == 0
    assert done.stdout.startswith("It says: ")
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stderr


def test_a_broken_connection_is_told_and_retried(server: ServerThread, product: Product) -> None:
    serve(server, product, Step(fault=Reset()), Step(text="Yes."))
    done = product.run("run", "Hello")
    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    assert "again" in done.stderr
