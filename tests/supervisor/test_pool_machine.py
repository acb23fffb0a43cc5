"""The machine: where Polier runs, and what a dead run has left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor import machine
from supervisor.exits import USAGE, StopError
from tests.supervisor.pool_play import CHECKOUT, all_gone, carrying


def test_elsewhere_than_on_linux_the_program_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    machine.require_linux()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(StopError, match="runs on Linux") as stopped:
        machine.require_linux()
    assert stopped.value.exit_code == USAGE


def leave_behind(mark: str, environ: dict[str, str], command: str = "sleep 300") -> int:
    """A process whose parent is gone at once."""
    done = subprocess.run(
        ["/bin/bash", "-c", f": {mark}; {command} >/dev/null 2>&1 & echo $!"],
        env={"PATH": os.environ["PATH"], "TEST_MARK": mark} | environ,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    return int(done.stdout)


def ended_of(pids: list[int]) -> list[str]:
    """What a sweep ends and tells of these; another test may have strays of its own."""
    return [line for line in machine.end_strays() if any(f": {pid} " in line for pid in pids)]


async def test_what_a_dead_supervisor_left_is_ended_with_all_below_it(tmp_path: Path) -> None:
    mark = str(tmp_path)
    dead = machine.marker().split(":")
    dead[1] = "1"  # this pid, but another process
    value = ":".join(dead)
    pid = leave_behind(mark, {machine.MARKER: value}, "bash -c 'env -u POLIER_SUPERVISOR sleep 301; true'")
    assert ended_of([pid])
    assert await all_gone(mark) < 1
    assert not ended_of([pid])


def test_what_was_dead_when_it_became_ours_is_reaped_and_a_child_that_somebody_waits_for_is_not(
    tmp_path: Path,
) -> None:
    # In a process of its own: here, threads of other tests reap what they take for theirs.
    # The orphan ends when it reads: sooner, and the shell that started it might reap it.
    code = """
import os, subprocess, sys
from pathlib import Path
from supervisor import machine
from tests.supervisor.test_pool_machine import leave_behind
machine.adopt_orphans()
awaited = subprocess.Popen(["true"], start_new_session=True)
kept = machine.children(os.getpid())
os.mkfifo(sys.argv[1])
orphan = leave_behind("orphan", {}, f"cat '{sys.argv[1]}'")
os.close(os.open(sys.argv[1], os.O_WRONLY))
for pid in (orphan, awaited.pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(machine.end_marked("nobody's", keep=kept), Path(f"/proc/{orphan}").exists(), awaited.wait())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "fifo")],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0 False 0\n"


async def test_what_belongs_to_somebody_else_is_left_alone(tmp_path: Path) -> None:
    mark = str(tmp_path)
    mine = machine.marker()
    pid, _, namespace, token = mine.split(":")
    values = (mine, f"{pid}:1:{int(namespace) + 1}:{token}", "nonsense")
    left = [leave_behind(mark, {machine.MARKER: value}) for value in values]
    before = len(carrying(mark))
    assert ended_of(left) == []
    assert len(carrying(mark)) == before >= 3
    machine.end_marked(mine, keep=machine.children(os.getpid()))
    assert len(carrying(mark)) == before - 1
    for line in carrying(mark):
        os.kill(int(line.split()[0]), signal.SIGKILL)


def test_a_hardened_process_is_closed_to_its_user_and_adopts_orphans() -> None:
    code = """
import os, subprocess, time
from supervisor import machine
machine.harden()
print(os.stat("/proc/self/environ").st_uid)
subprocess.run(["sh", "-c", "sleep 30 & :"], start_new_session=True)
child, = machine.children(os.getpid())
print(machine.end_marked(machine.marker()), machine.children(os.getpid()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    # Files of a process that can't be dumped belong to root, whoever runs it.
    assert done.stdout.split("\n")[:2] == ["0", "1 []"]
