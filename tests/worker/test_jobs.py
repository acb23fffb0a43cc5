"""What runs on after its call: named, followed, fed, awaited, stopped; and nothing of it is forgotten."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.policy import Limits
from protocol.tools.jobs import Jobs
from protocol.wire import Status
from tests.worker.command_desk import CommandDesk, command_desk
from worker.call import ToolError
from worker.processes import tree


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[CommandDesk]:
    with command_desk(tmp_path) as made:
        yield made


def alive(pid: int) -> bool:
    process = tree.look(pid)
    return process is not None and not process.zombie


def pid_in(line: str) -> int:
    """Of `j1 pid 123 sleep 60`."""
    return int(line.split()[2])


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("sleep 60 & echo done", "sleep 60"),
        ("sleep 60 </dev/null >/dev/null 2>&1 & echo done", "sleep 60"),
        ("setsid sleep 60 & echo done", "sleep 60"),
        ("nohup sleep 60 & disown; echo done", "sleep 60"),
        ("(setsid sleep 60 &) ; echo done", "sleep 60"),
        ("(env -i $(command -v setsid) $(command -v sleep) 60 &) ; echo done", "sleep 60"),
    ],
)
def test_a_command_returns_though_a_child_runs_on_and_names_it(
    desk: CommandDesk, command: str, runs: str
) -> None:
    began = time.monotonic()
    outcome = desk.run(command, timeout=10)
    took = time.monotonic() - began

    assert took < 1
    assert outcome.status is Status.DONE
    assert outcome.text.startswith("done\n")
    (line,) = outcome.background
    assert line.startswith("j1 pid ")
    assert line.endswith(runs)
    assert line in outcome.text
    assert line in desk.jobs(Jobs("list")).text

    assert desk.jobs(Jobs("stop", "j1")).text == "j1 is stopped"
    assert not alive(pid_in(line))
    assert desk.ended == []


def test_what_a_child_prints_after_the_call_is_kept_and_read_on_from_a_byte(desk: CommandDesk) -> None:
    outcome = desk.run("(until [ -e go ]; do sleep 0.02; done; echo tick; sleep 60) & echo done")
    first = desk.jobs(Jobs("output", "j1"))
    (desk.workspace / "go").touch()
    name = desk.opened[0]
    deadline = time.monotonic() + 5
    while (desk.output / name).read_bytes() != b"done\ntick\n":
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)

    assert f"/run/polier/output/{name}" in outcome.text
    assert "bash (a part of the script)" in outcome.text
    assert first.text == "done\n[bytes 0 to 5; next since=5; j1 still runs]"
    assert (
        desk.jobs(Jobs("output", "j1", since=5)).text == "tick\n[bytes 5 to 10; next since=10; j1 still runs]"
    )


def test_a_command_s_time_limit_does_not_follow_what_it_left(desk: CommandDesk) -> None:
    outcome = desk.run("(sleep 0.6; echo late) & echo done", timeout=0.4)
    ended = desk.jobs(Jobs("wait", "j1", timeout=5))

    assert outcome.text.startswith("done\n")
    assert ended.text == "j1 is over: ended"
    assert "late" in desk.jobs(Jobs("output", "j1")).text


def test_many_left_processes_don_t_crowd_the_result(desk: CommandDesk) -> None:
    outcome = desk.run("seq 1 100000; for i in $(seq 20); do sleep 60 & done")

    assert len(outcome.background) == 20
    assert "[and 12 more]" in outcome.text
    assert len(outcome.text.encode()) <= 32_000


def test_what_ends_within_a_moment_is_no_job(desk: CommandDesk) -> None:
    outcome = desk.run("echo first > >(cat; sleep 0.05; echo late)")
    assert outcome.text == "first\nlate"
    assert outcome.background == ()


def test_a_job_is_started_at_once_and_says_how_to_follow_it(desk: CommandDesk) -> None:
    outcome = desk.run("echo ready; sleep 60", background=True)
    line = outcome.background[0]

    assert outcome.status is Status.DONE
    assert outcome.text.startswith(
        f"j1 runs in the background, pid {pid_in(line)}\n[the whole output: /run/polier/"
    )
    assert outcome.text.endswith("its first output (6 bytes):\nready")
    assert line.endswith(" echo ready; sleep 60")
    assert alive(pid_in(line))


def test_the_end_of_a_job_is_told_with_its_exit_code(desk: CommandDesk) -> None:
    desk.run("read x; echo got:$x; exit 7", background=True)
    assert desk.jobs(Jobs("input", "j1", text="a line\n")).text == "7 bytes written to j1"
    assert desk.an_end_was_told.wait(5)

    assert desk.ended == [("j1", "j1 (read x; echo got:$x; exit 7) is over: exit code 7")]
    assert desk.jobs(Jobs("output", "j1")).text == (
        "got:a line\n[bytes 0 to 11; next since=11; j1 is over: exit code 7]"
    )
    assert desk.jobs(Jobs("list")).text == (
        "j1 (read x; echo got:$x; exit 7) is over: exit code 7 [11 bytes of output]"
    )
    with pytest.raises(ToolError, match="j1 has ended: exit code 7"):
        desk.jobs(Jobs("input", "j1", text="more"))


def test_a_job_that_ends_during_its_call_is_told_by_the_call_alone(desk: CommandDesk) -> None:
    outcome = desk.run("echo quick; exit 3", background=True)

    assert outcome.text.startswith("j1 is already over: exit code 3\n")
    assert outcome.background == ()
    assert desk.ended == []


def test_a_job_whose_shell_has_ended_runs_as_long_as_its_children(desk: CommandDesk) -> None:
    os.mkfifo(desk.workspace / "fifo")
    desk.run("(read x <fifo) & exit 5", background=True)
    job = desk.desk.jobs["j1"]
    deadline = time.monotonic() + 5
    while job.lines()[0].endswith("exit 5"):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)

    assert job.lines()[0].endswith("bash (a part of the script)")
    assert desk.jobs(Jobs("wait", "j1", timeout=0.1)).text == "after 0.1 s j1 still runs"
    (desk.workspace / "fifo").write_text("go\n")
    assert desk.an_end_was_told.wait(5)
    assert desk.ended == [("j1", "j1 ((read x <fifo) & exit 5) is over: exit code 5")]


def test_an_empty_input_closes_it(desk: CommandDesk) -> None:
    desk.run("cat; echo end of input", background=True)
    desk.jobs(Jobs("input", "j1", text="kept"))
    assert desk.jobs(Jobs("input", "j1", text="")).text == "the input of j1 is closed"

    assert desk.jobs(Jobs("wait", "j1", timeout=5)).text == "j1 is over: exit code 0"
    assert desk.jobs(Jobs("output", "j1")).text.startswith("keptend of input\n")
    with pytest.raises(ToolError, match="j1 has ended"):
        desk.jobs(Jobs("input", "j1", text="x"))


def test_input_that_is_not_read_is_an_error_in_words(desk: CommandDesk) -> None:
    desk.run("exec <&-; sleep 60", background=True)
    desk.run("sleep 60 & true")
    with pytest.raises(ToolError, match="doesn't read its input any more"):
        desk.jobs(Jobs("input", "j1", text="x"))
    with pytest.raises(ToolError, match="j2 has no input"):
        desk.jobs(Jobs("input", "j2", text="x"))
    with pytest.raises(ToolError, match="input needs `text`"):
        desk.jobs(Jobs("input", "j1"))


def test_a_full_input_is_given_up_after_a_while(desk: CommandDesk) -> None:
    desk.run("sleep 60", background=True)
    with pytest.raises(ToolError, match=r"j1 took only 65,536 of 100,000 bytes"):
        desk.jobs(Jobs("input", "j1", text="x" * 100_000))


def test_wait_says_when_its_time_is_over_and_hears_a_cancel(desk: CommandDesk) -> None:
    desk.run("sleep 60", background=True)
    assert desk.jobs(Jobs("wait", "j1", timeout=0.1)).text == "after 0.1 s j1 still runs"

    cancelled = threading.Event()
    cancelled.set()
    outcome = desk.jobs(Jobs("wait", "j1"), cancelled)
    assert (outcome.status, outcome.text) == (Status.CANCELLED, "cancelled; j1 still runs")


def test_a_long_command_names_its_job_by_its_beginning(desk: CommandDesk) -> None:
    desk.run("sleep 60; true " + "x" * 200, background=True)
    assert desk.desk.jobs["j1"].command == "sleep 60; true " + "x" * 64 + "…"


def test_a_cancel_while_a_job_starts_stops_it(desk: CommandDesk) -> None:
    cancelled = threading.Event()
    cancelled.set()
    outcome = desk.run("sleep 60", background=True, cancelled=cancelled)

    assert outcome.status is Status.CANCELLED
    assert desk.jobs(Jobs("stop", "j1")).text == "j1 is over: stopped"


def test_stop_ends_the_whole_tree_of_a_job_that_ignores_sigterm(tmp_path: Path) -> None:
    with command_desk(tmp_path, Limits(grace_seconds=0.2)) as desk:
        desk.run(
            "trap '' TERM; setsid sleep 61 & (sleep 62 &); echo up; while :; do sleep 0.05; done",
            background=True,
        )
        lines = desk.desk.jobs["j1"].lines()
        assert len(lines) >= 3
        desk.jobs(Jobs("stop", "j1"))

        assert not any(alive(pid_in(line)) for line in lines)
        assert desk.desk.shells == set()


@pytest.mark.parametrize("asked", ["j9", None])
def test_an_unknown_job_is_answered_with_the_ones_there_are(desk: CommandDesk, asked: str | None) -> None:
    with pytest.raises(ToolError, match="there are none"):
        desk.jobs(Jobs("stop", asked))
    desk.run("true", background=True)
    with pytest.raises(ToolError, match="there are: j1"):
        desk.jobs(Jobs("output", asked))


def test_an_empty_list_says_so(desk: CommandDesk) -> None:
    assert desk.jobs(Jobs("list")).text == "there are no jobs"


def test_long_output_of_a_job_comes_in_pieces_that_make_up_the_whole(tmp_path: Path) -> None:
    with command_desk(tmp_path, Limits(result_cap_bytes=900)) as desk:
        desk.run("for i in $(seq 300); do echo -n äöü€$i; done", background=True)
        desk.jobs(Jobs("wait", "j1", timeout=10))
        text, since, pieces = "", 0, 0
        while since < desk.desk.jobs["j1"].size:
            piece, note = desk.jobs(Jobs("output", "j1", since=since)).text.split("\n")[:2]
            text += piece
            since = int(note.split("next since=")[1].split(";")[0])
            pieces += 1

    assert text == "".join(f"äöü€{n}" for n in range(1, 301))
    assert pieces > 5


def test_where_no_file_can_be_had_a_job_keeps_its_newest_output(tmp_path: Path) -> None:
    with command_desk(tmp_path, Limits(result_cap_bytes=3000)) as desk:
        desk.no_files = "the disk is full"
        outcome = desk.run("seq 1 5000", background=True)
        desk.jobs(Jobs("wait", "j1", timeout=10))
        text = desk.jobs(Jobs("output", "j1", since=0)).text

    assert "only its newest output is kept: the disk is full" in outcome.text
    assert text.startswith("[the bytes before ")
    assert " are lost]" in text


def test_a_dead_child_that_was_adopted_is_reaped(desk: CommandDesk) -> None:
    others = {process.pid for process in tree.below(os.getpid())}
    desk.run("(setsid sh -c 'sleep 0.3' >/dev/null 2>&1 &) ; true")
    assert desk.jobs(Jobs("wait", "j1", timeout=5)).text == "j1 is over: ended"

    left = [process for process in tree.below(os.getpid()) if process.pid not in others]
    assert [process for process in left if process.zombie] == []


def test_a_child_of_another_tool_is_never_reaped_here(desk: CommandDesk) -> None:
    # Other tools' children stay in the worker's own session; their exit status is theirs to fetch.
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    deadline = time.monotonic() + 5
    while alive(pid):
        assert time.monotonic() < deadline
    desk.run("true")

    assert os.waitpid(pid, 0) == (pid, 0)


def test_two_jobs_at_once_keep_their_processes_apart(desk: CommandDesk) -> None:
    first = desk.run("setsid sleep 61 & sleep 60", background=True)
    second = desk.run("setsid sleep 62 & true")
    ours = {pid_in(line) for line in desk.desk.jobs["j1"].lines()}
    theirs = {pid_in(line) for line in second.background}

    assert len(theirs) == 1
    assert not ours & theirs
    desk.jobs(Jobs("stop", "j1"))
    assert first.background
    assert all(alive(pid) for pid in theirs)


def test_jobs_leave_no_descriptor_and_no_thread(desk: CommandDesk) -> None:
    desk.run("true")
    fds, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    desk.run("true", background=True)
    desk.run("sleep 60", background=True)
    desk.run("sleep 60 & true")
    for job in desk.desk.jobs.values():
        job.stop()
    deadline = time.monotonic() + 5
    while threading.active_count() > threads:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)

    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_job_of_many_processes_takes_no_more_descriptors_than_one_of_few(desk: CommandDesk) -> None:
    desk.run("true")
    fds = len(os.listdir("/proc/self/fd"))
    desk.run("for n in $(seq 150); do sleep 60 & done")
    job = desk.desk.jobs["j1"]
    assert len(job.pids) == 150
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) < fds + 60:
        assert time.monotonic() < deadline
    desk.run("true")

    assert len(os.listdir("/proc/self/fd")) < fds + 100
    job.stop()
    assert job.pids == frozenset()


def test_a_number_that_is_used_again_is_not_signalled() -> None:
    own = tree.look(os.getpid())
    assert own is not None
    impostor = tree.Process(own.pid, own.parent, own.group, own.session, own.start - 1, zombie=False)
    tree.send([impostor, tree.Process(2**22 + 1, 0, 0, 0, 0, zombie=False)], signal.SIGKILL)

    assert alive(os.getpid())
    assert tree.look(2**22 + 1) is None
    assert tree.command_line(2**22 + 1) == "?"
