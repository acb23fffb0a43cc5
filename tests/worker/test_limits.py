"""Limits with real bombs, small enough to be safe: each ends, is named, and leaves nothing behind."""

import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.policy import Limit, Limits
from protocol.tools.jobs import Jobs
from protocol.wire import Status
from tests.worker.command_desk import FORK_BOMB, CommandDesk, command_desk
from worker.call import Outcome
from worker.processes.tree import below

MIB = 1024**2
SMALL = Limits(
    grace_seconds=0.5,
    memory_bytes=200 * MIB,
    processes=64,
    cpu_seconds=1,
    output_bytes=10 * MIB,
    output_file_cap=1 * MIB,
)
"""Of the disk none: others write to it too."""
PYTHON = sys.executable
SECONDS = 240.0
"""For the end of a bomb, on a machine that it fills; a spin gets a second of a processor late where many
others want one."""


@pytest.fixture
def alone() -> Iterator[None]:
    """The machine's memory and /dev/shm are no other test's meanwhile."""
    with (Path(tempfile.gettempdir()) / "polier-test-memory").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[CommandDesk]:
    with command_desk(tmp_path, SMALL) as made:
        yield made
        assert made.run("echo still here").text == "still here"


def available() -> int:
    """Bytes of memory that the machine has left."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no MemAvailable")


def ended_by(desk: CommandDesk, command: str, limit: Limit, timeout: float = SECONDS) -> Outcome:
    """The outcome of a command that a limit ends, with nothing left of it."""
    before = {process.pid for process in below(os.getpid())}
    outcome = desk.run(command, timeout)

    assert (outcome.limit, outcome.status) == (limit, Status.FAILED), outcome.text[-500:]
    assert [one.pid for one in below(os.getpid()) if one.pid not in before] == []
    return outcome


# --- processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bomb",
    [
        f"{FORK_BOMB}; sleep 70",
        "b(){ [ $1 -lt 8 ] && { setsid -f true; (b $(($1 + 1)) &); (b $(($1 + 1)) &); sleep 60; }; }; b 0",
        "for i in $(seq 100); do (trap '' TERM; setsid sleep 70) & done; wait",
    ],
)
def test_a_fork_bomb_ends_with_the_number_that_is_allowed(desk: CommandDesk, bomb: str) -> None:
    outcome = ended_by(desk, bomb, Limit.PROCESSES)
    assert outcome.text.endswith(
        "ended: the limit of processes was reached (more than 64 run at a time); "
        "run fewer processes and threads at a time"
    )


def test_a_fork_bomb_whose_shell_ends_at_once_ends_too(desk: CommandDesk) -> None:
    before = {process.pid for process in below(os.getpid())}
    outcome = desk.run(FORK_BOMB, timeout=SECONDS)
    if outcome.limit is None:  # it had become a job before it was noticed
        assert desk.an_end_was_told.wait(SECONDS)
    told = outcome.text + "".join(line for _, line in desk.ended)

    assert "the limit of processes was reached (more than 64 run at a time)" in told
    assert [one.pid for one in below(os.getpid()) if one.pid not in before] == []


def test_a_bomb_of_threads_is_one_of_processes(desk: CommandDesk) -> None:
    code = (
        "import threading, time\nfor i in range(400): threading.Thread(target=time.sleep, args=(70,)).start()"
    )
    outcome = ended_by(desk, f"{PYTHON} -c '{code}'", Limit.PROCESSES)
    assert "threads run at a time, 256 are allowed" in outcome.text


def test_a_fork_bomb_in_the_background_is_a_job_that_ends(desk: CommandDesk) -> None:
    began = time.monotonic()
    desk.run(f"sleep 0.5; {FORK_BOMB}; sleep 70", background=True)
    assert desk.an_end_was_told.wait(SECONDS)

    assert time.monotonic() - began < SECONDS
    ((name, line),) = desk.ended
    assert name == "j1"
    assert "is over: the limit of processes was reached (more than 64 run at a time)" in line
    assert "the limit of processes was reached" in desk.jobs(Jobs("list")).text


# --- memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hog",
    [
        f"{PYTHON} -c 'import time\nb = []\nfor i in range(60): b += [bytearray(9 << 20)]\ntime.sleep(70)'",
        f"for i in $(seq 20); do {PYTHON} -c 'b = bytearray(20 << 20)\nimport time; time.sleep(70)' & done; "
        "wait",
        f"{PYTHON} -c 'import mmap, os, time\nm = mmap.mmap(-1, 300 << 20); m.write(bytes(150 << 20))\n"
        "[os.fork() for i in range(2)]; m.write(bytes(120 << 20)); time.sleep(70)'",
    ],
    ids=["one large process", "many small ones", "shared memory"],
)
@pytest.mark.usefixtures("alone")
def test_a_memory_hog_ends_and_the_machine_has_its_memory_back(desk: CommandDesk, hog: str) -> None:
    before = available()
    outcome = ended_by(desk, hog, Limit.MEMORY)

    assert "of 200.0 MiB in use by this command and its children); process the data in parts" in outcome.text
    # What others take meanwhile they give back as well.
    until = time.monotonic() + SECONDS
    while available() <= before - 150 * MIB and time.monotonic() < until:
        time.sleep(0.1)
    assert available() > before - 150 * MIB


@pytest.mark.usefixtures("alone")
def test_files_that_are_memory_count_and_are_named(tmp_path: Path) -> None:
    # Little: here /dev/shm is the machine's, so it counts against all that other tests run meanwhile.
    held = Path(f"/dev/shm/polier-test-{os.getpid()}")
    try:
        with command_desk(tmp_path, replace(SMALL, memory_bytes=60 * MIB)) as desk:
            outcome = ended_by(desk, f"head -c {80 * MIB} /dev/zero >{held}; sleep 70", Limit.MEMORY)
        assert "of it by files in /dev/shm, which stay until they are removed" in outcome.text
    finally:
        held.unlink(missing_ok=True)


@pytest.mark.usefixtures("alone")
def test_memory_that_processes_share_is_counted_once(desk: CommandDesk) -> None:
    code = "import os, time\nm = bytearray(80 << 20)\n[os.fork() for i in range(3)]\ntime.sleep(0.7)"
    outcome = desk.run(f"{PYTHON} -c '{code}'; echo whole", timeout=SECONDS)
    assert (outcome.text, outcome.limit) == ("whole", None)


@pytest.mark.usefixtures("alone")
def test_of_two_jobs_the_one_that_uses_most_is_ended(desk: CommandDesk) -> None:
    script = "import sys, time\ntime.sleep(0.7)\nb = bytearray(int(sys.argv[1]) << 20)\ntime.sleep(70)"
    (desk.workspace / "hold.py").write_text(script)
    desk.run(f"{PYTHON} hold.py 60", background=True)
    desk.run(f"{PYTHON} hold.py 250", background=True)
    assert desk.an_end_was_told.wait(SECONDS)

    ((name, line),) = desk.ended
    assert name == "j2"
    assert "in use by all commands and jobs" in line
    assert desk.jobs(Jobs("list")).text.startswith("j1 pid ")


# --- output -------------------------------------------------------------------------------------------


def test_more_output_than_is_allowed_ends_a_command(desk: CommandDesk) -> None:
    outcome = ended_by(desk, "yes", Limit.OUTPUT)
    assert "10.0 MiB are allowed); print less, or print into a file" in outcome.text


# --- disk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [".", "$TMPDIR"])
def test_who_fills_the_disk_is_ended(tmp_path: Path, place: str) -> None:
    dd = f"dd if=/dev/zero of={place}/f$i bs=1M count=10 status=none"
    with command_desk(tmp_path, Limits(disk_bytes=50 * MIB)) as desk:
        command = f"for i in $(seq 40); do {dd}; sleep 0.05; done; sleep 70"
        outcome = ended_by(desk, command, Limit.DISK)
        shutil.rmtree(desk.workspace)
        shutil.rmtree(desk.desk.policy.tmp)
    assert "50.0 MiB are allowed); remove what is not needed, and write less" in outcome.text


def test_a_job_that_does_nothing_is_not_ended_for_what_others_write(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with command_desk(tmp_path, Limits(disk_bytes=50 * MIB)) as desk:
        desk.run("sleep 60", background=True)
        time.sleep(0.5)
        for _ in range(12):
            with other.open("ab") as file:
                file.write(bytes(10 * MIB))
            time.sleep(0.1)
        assert desk.desk.jobs["j1"].how == ""
    other.unlink()


# --- what the kernel holds a process to ----------------------------------------------------------------


@pytest.mark.parametrize(
    "spin",
    ["while :; do :; done", f"{PYTHON} -c 'while True: pass'", "exec sh -c 'while :; do :; done'"],
)
def test_a_spin_ends_at_its_cpu_time(desk: CommandDesk, spin: str) -> None:
    outcome = ended_by(desk, spin, Limit.CPU)
    assert "the limit of CPU time was reached (1 s for one process)" in outcome.text


def test_a_spin_that_ignores_the_kernel_s_signal_ends_too(desk: CommandDesk) -> None:
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    outcome = ended_by(desk, f"{PYTHON} -c '{code}'", Limit.CPU)
    assert "by one process, 1 s are allowed" in outcome.text


def test_the_worker_itself_has_all_the_time_it_needs(desk: CommandDesk) -> None:
    desk.run("while :; do :; done", timeout=SECONDS)
    until = time.process_time() + 0.2
    while time.process_time() < max(until, 1.5):  # a limit would be of the whole process
        pass
    assert desk.run("ulimit -t").text == "1"


# --- where no limit struck ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("kill -KILL $$", "killed by SIGKILL (137)"),
        ("sh -c 'kill -KILL $$'; exit 137", "exit code 137: a command in it was killed by SIGKILL (137)"),
        ("exit 124", "exit code 124"),
        ("echo quiet", "quiet"),
        ("echo Too many open files", "Too many open files"),
    ],
)
def test_no_limit_is_named_where_none_struck(desk: CommandDesk, command: str, words: str) -> None:
    outcome = desk.run(command)
    assert outcome.limit is None
    assert outcome.text == words or outcome.text.endswith(f"\n{words}")


@pytest.mark.parametrize(
    "command", ["sleep 60 & echo done", "setsid sleep 60 & echo done", "nohup sleep 60 & disown; echo done"]
)
def test_a_command_that_leaves_something_running_returns_at_once_and_says_so(
    desk: CommandDesk, command: str
) -> None:
    began = time.monotonic()
    outcome = desk.run(command, timeout=10)

    assert time.monotonic() - began < 1
    assert outcome.status is Status.DONE
    assert outcome.text.startswith("done\n[still running, see `jobs`:]\nj1 pid ")
    assert "sleep 60" in outcome.background[0]


def test_nothing_looks_while_nothing_runs(desk: CommandDesk) -> None:
    desk.run("sleep 0.3")
    (guard,) = [one for one in threading.enumerate() if one.name == "guard" and one.native_id][-1:]

    def switches() -> int:
        status = Path(f"/proc/self/task/{guard.native_id}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)

    time.sleep(0.3)
    before = switches()
    time.sleep(0.5)
    assert switches() - before <= 1
