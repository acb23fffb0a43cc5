"""A worker process that is served by hand: its handshake, its wire, its end."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import wire
from protocol.policy import Limits, Mode, SandboxPolicy
from protocol.wire import Status, ToolFinished, ToSupervisor, ToWorker
from worker.sandbox import tree
from worker.serve.process import BROKEN

CHECKOUT = Path(__file__).parents[2]


class Served:
    """The supervisor's part, played by the test.  `program`: a module that reads its sockets' numbers from
    its arguments."""

    def __init__(
        self,
        workspace: Path,
        *,
        second: bool = True,
        wire_is_stdin: bool = False,
        program: str = "tests.worker.serving",
    ) -> None:
        self.policy = SandboxPolicy(str(workspace), Mode.UNCONFINED)
        self.wire, theirs = socket.socketpair()
        self.descriptors, their_second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.wire.settimeout(10)
        self.frames = wire.Frames()
        self.waiting: list[bytes] = []
        with theirs, their_second:
            fds = [0 if wire_is_stdin else theirs.fileno(), *([their_second.fileno()] if second else [])]
            self.process = subprocess.Popen(
                [sys.executable, "-m", program, *map(str, fds)],
                cwd=CHECKOUT,
                stdin=theirs.fileno() if wire_is_stdin else subprocess.DEVNULL,
                stdout=theirs.fileno() if wire_is_stdin else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), their_second.fileno()),
                umask=0o027,
            )

    def hear(self) -> ToSupervisor:
        while not self.waiting:
            data = self.wire.recv(1 << 20)
            assert data, "the worker has closed its wire"
            self.waiting += self.frames.feed(data)
        return wire.decode_to_supervisor(self.waiting.pop(0))

    def say(self, *messages: ToWorker) -> None:
        for message in messages:
            self.wire.sendall(wire.encode(message))

    def greet(self) -> wire.Ready:
        assert isinstance(self.hear(), wire.Hello)
        self.say(wire.Welcome(1, self.policy, Limits(grace_seconds=0.2)))
        ready = self.hear()
        assert isinstance(ready, wire.Ready)
        return ready

    def play(self, command: str, call_id: str = "a") -> ToolFinished:
        self.say(run(command, call_id))
        finished = self.hear()
        assert isinstance(finished, ToolFinished)
        return finished

    def play_while_deaf(self, command: str) -> ToolFinished:
        """With a call that keeps the only thread.  One that has just answered may not be free yet."""
        while True:
            self.say(run("!deaf", "deaf"))
            finished = self.play(command)
            if finished.call_id != "deaf":
                return finished
            self.hear()

    def end(self) -> tuple[int, str]:
        """Its exit code and what it printed to stderr."""
        _, errors = self.process.communicate(timeout=10)
        return self.process.returncode, errors.decode()

    def close(self) -> None:
        self.wire.close()
        self.descriptors.close()
        with self.process:  # it leaves by itself, and what it saves of a measure is whole
            try:
                self.process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise


def run(command: str, call_id: str = "a") -> wire.RunTool:
    return wire.RunTool(call_id, "run_command", f'{{"command": "{command}"}}')


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path)
    yield found
    found.close()


def test_a_worker_says_hello_takes_the_policy_and_is_ready(served: Served, tmp_path: Path) -> None:
    ready = served.greet()
    assert "nothing is confined" in ready.notes[0]
    assert served.play("!echo hi").text == "hi"
    assert served.play("pwd; umask").text == f"{tmp_path}\n0027\n"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (wire.encode(wire.Nope("two installations")), "two installations"),
        (wire.encode(wire.Cancel("a")), "expected a welcome, got Cancel"),
        (b"HTTP/1.1 400 Bad Request\r\n", "a frame of 1213486160 bytes"),
        (b"\0\0\0\1\xc1", "not a message for a worker"),
    ],
)
def test_a_worker_that_is_not_welcome_leaves_and_says_why(served: Served, said: bytes, words: str) -> None:
    assert isinstance(served.hear(), wire.Hello)
    served.wire.sendall(said)
    code, errors = served.end()
    assert code == BROKEN
    assert words in errors


def test_a_second_welcome_breaks_the_wire(served: Served) -> None:
    served.greet()
    served.say(wire.Welcome(1, served.policy, Limits()))
    assert served.end()[0] == BROKEN


def test_a_wire_on_the_standard_streams_is_moved_away_from_stray_prints(tmp_path: Path) -> None:
    served = Served(tmp_path, second=False, wire_is_stdin=True)
    try:
        served.greet()
        assert served.play("!print Traceback").status is Status.DONE
        assert served.play("!echo intact").text == "intact"
    finally:
        served.close()


def test_a_cancel_stops_the_call_that_it_names_and_no_other(served: Served) -> None:
    served.greet()
    served.say(wire.Cancel("nobody"), run("sleep 30", "a"), run("sleep 0.3; echo b", "b"), wire.Cancel("a"))
    first, second = served.hear(), served.hear()
    assert isinstance(first, ToolFinished)
    assert isinstance(second, ToolFinished)
    assert (first.call_id, first.status) == ("a", Status.CANCELLED)
    assert (second.call_id, second.status, second.text) == ("b", Status.DONE, "b\n")


@pytest.mark.parametrize("way", ["closed wire", "SIGTERM"])
def test_a_worker_that_ends_takes_all_that_it_started_with_it(served: Served, way: str) -> None:
    served.greet()
    served.say(run("setsid sleep 300 & trap '' TERM; sleep 301; true"))
    deadline = time.monotonic() + 10
    while len(below := tree.descendants(served.process.pid)) < 3:
        assert time.monotonic() < deadline
    if way == "closed wire":
        served.wire.shutdown(socket.SHUT_RDWR)
    else:
        served.process.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_a_file_for_the_whole_output_is_asked_for_and_taken(served: Served, tmp_path: Path) -> None:
    served.greet()
    with (tmp_path / "out").open("wb") as file:
        for call_id in ("a", "b"):
            served.say(run(f"!output from {call_id}", call_id))
            assert served.hear() == wire.OpenOutput(call_id)
            socket.send_fds(served.descriptors, [call_id.encode()], [file.fileno()])
            served.say(wire.OutputOpened(call_id, "out"))
            finished = served.hear()
            assert isinstance(finished, ToolFinished)
            assert (finished.status, finished.text) == (Status.DONE, "out")
    assert (tmp_path / "out").read_text() == "from afrom b"


def test_a_refused_file_is_a_failure_with_the_reason_and_a_late_one_is_closed(served: Served) -> None:
    served.greet()
    fds = int(served.play("!fds").text)
    served.say(run("!output x"))
    assert served.hear() == wire.OpenOutput("a")
    served.say(wire.OutputRefused("nobody", "?"), wire.OutputRefused("a", "the disk is full"))
    finished = served.hear()
    assert isinstance(finished, ToolFinished)
    assert "the disk is full" in finished.text
    socket.send_fds(served.descriptors, [b"a"], [0])
    served.say(wire.OutputOpened("a", "late"))
    assert int(served.play("!fds").text) == fds


@pytest.mark.parametrize("second", [False, True], ids=["no second socket", "closed second socket"])
def test_a_descriptor_that_can_t_come_breaks_the_wire(tmp_path: Path, second: bool) -> None:
    served = Served(tmp_path, second=second)
    try:
        served.greet()
        served.descriptors.close()
        served.say(wire.OutputOpened("a", "name"))
        code, errors = served.end()
        assert code == BROKEN
        assert "descriptor" in errors
    finally:
        served.close()


def test_text_for_the_screen_is_dropped_while_nobody_reads_and_cancels_are_still_heard(
    served: Served,
) -> None:
    served.greet()
    served.say(run("!flood 400"), run("sleep 30", "b"), wire.Cancel("b"))
    served.process.poll()
    ends: dict[str, ToolFinished] = {}
    outputs = 0
    # Nothing is read until the worker has met a full wire.
    poll = select.poll()
    poll.register(served.wire, select.POLLIN)
    assert poll.poll(5000)
    while len(ends) < 2:
        match served.hear():
            case ToolFinished() as finished:
                ends[finished.call_id] = finished
            case _:
                outputs += 1
    assert ends["b"].status is Status.CANCELLED
    assert outputs <= 400


@pytest.mark.parametrize("second", [False, True], ids=["without a second socket", "with one"])
def test_a_worker_on_its_own_serves_the_real_tools(tmp_path: Path, second: bool) -> None:
    served = Served(tmp_path, second=second, program="worker")
    asked = {
        "write_file": ('{"path": "a.txt", "content": "one\\n"}', "a.txt: created, +1 -0"),
        "edit_file": (
            '{"path": "a.txt", "edits": [{"old": "one", "new": "two"}]}',
            "a.txt: edited 1 place, +1 -1",
        ),
        "read_file": ('{"path": "a.txt"}', "1\ttwo"),
        "list_files": ("{}", "a.txt"),
        "search": ('{"pattern": "tw."}', "a.txt:1:two"),
        "run_command": ('{"command": "cat a.txt"}', "two"),
        "jobs": ('{"action": "list"}', "there are no jobs"),
    }
    try:
        served.greet()
        for name, (arguments, text) in asked.items():
            served.say(wire.RunTool(name, name, arguments))
            while not isinstance(finished := served.hear(), ToolFinished):
                assert isinstance(finished, wire.ToolOutput)
            assert (finished.call_id, finished.text) == (name, text)
        served.wire.shutdown(socket.SHUT_RDWR)
        assert served.end() == (0, "")
    finally:
        served.close()


@pytest.mark.parametrize(
    "asked",
    [run("!large 100000"), run(f"!raise {'r' * 100_000}")],
    ids=["text", "words of an error"],
)
def test_no_result_is_longer_than_the_cap_and_its_closing_words(served: Served, asked: wire.RunTool) -> None:
    served.greet()
    served.say(asked)
    finished = served.hear()
    assert isinstance(finished, ToolFinished)
    assert len(finished.text.encode()) <= Limits().result_cap_bytes + 2000
    assert "bytes left out here ...]" in finished.text


def test_a_call_for_which_there_is_no_thread_is_not_run_and_the_worker_lives_on(served: Served) -> None:
    served.greet()
    assert served.play("!threads-of 70368744177664").text == "0"
    finished = served.play_while_deaf("!echo never")
    assert finished.status is Status.REFUSED
    assert finished.text.startswith("Not run: no thread can be had for it")
    assert served.play("!echo never").status is Status.REFUSED
    assert served.process.poll() is None


def test_descendants_are_found_where_the_kernel_has_no_lists_of_children() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 30 & wait"], start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 5
            while not (below := tree.children(process.pid)):
                assert time.monotonic() < deadline
            assert [pid for pid, parent in tree.parents() if parent == process.pid] == below
        finally:
            os.killpg(process.pid, signal.SIGKILL)
