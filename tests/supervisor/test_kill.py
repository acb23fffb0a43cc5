"""Whichever process is killed, in whatever state: nothing runs on, or the next run ends it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from supervisor import machine
from tests.supervisor.pool_play import CHECKOUT, all_gone, carrying, some

COMMANDS = (
    "touch 1; sleep 300 & wait",
    "setsid sleep 301 & disown; touch 2; sleep 302",
    "trap '' TERM HUP INT; touch 3; while :; do sleep 1; done",
)
"""A background child, one that leaves its session, one that does not listen."""
PROCESSES = 2 + 6
"""Zygote, worker; three shells or what they became, and three children at least."""
BOUND = 0.5
"""Seconds until all are gone; a quiet machine needs 0.04."""


class Run(NamedTuple):
    supervisor: int
    zygote: int
    worker: int
    mark: str
    rung: str


RUNGS = {"full": "", "landlock": "native,bubblewrap"}
"""Means that are left out for it."""


@pytest.fixture(params=RUNGS)
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    mark = str(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.supervisor.killed_supervisor", mark, RUNGS[request.param], *COMMANDS],
        stdout=subprocess.PIPE,
        cwd=CHECKOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        deadline = time.monotonic() + 10
        while not all((tmp_path / "workspace" / name).exists() for name in "123"):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        found = Run(pids[0], pids[1], pids[2], f"{machine.MARKER}={pids[0]}:", request.param)
        yield found
        process.kill()
    for line in carrying(found.mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


async def killed(pid: int) -> None:
    """Kill a process and wait until it is dead; the signal alone is only a promise."""
    pidfd = os.pidfd_open(pid)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    with trio.fail_after(5):
        await trio.lowlevel.wait_readable(pidfd)
    os.close(pidfd)


@pytest.mark.parametrize("wedged", [False, True], ids=["serving", "wedged"])
async def test_a_killed_supervisor_takes_everything_with_it(run: Run, wedged: bool) -> None:
    await some(run.mark, PROCESSES)
    if wedged:
        os.kill(run.worker, signal.SIGSTOP)
    os.kill(run.supervisor, signal.SIGKILL)
    assert await all_gone(run.mark) < BOUND


@pytest.mark.parametrize("wedged", [False, True], ids=["serving", "wedged"])
@pytest.mark.parametrize("victim", ["zygote", "worker"])
async def test_a_killed_zygote_or_worker_takes_its_commands_with_it(
    run: Run, victim: str, wedged: bool
) -> None:
    await some(run.mark, PROCESSES)
    if wedged:
        os.kill(run.worker, signal.SIGSTOP)
    os.kill({"zygote": run.zygote, "worker": run.worker}[victim], signal.SIGKILL)
    # The supervisor ends by itself once its calls have their results.
    assert await all_gone(run.mark) < BOUND * 2


async def test_supervisor_and_zygote_killed_at_once_leave_nothing(run: Run) -> None:
    await some(run.mark, PROCESSES)
    os.kill(run.supervisor, signal.SIGKILL)
    os.kill(run.zygote, signal.SIGKILL)
    assert await all_gone(run.mark) < BOUND


async def test_what_outlives_the_death_of_all_three_is_ended_by_the_next_run(run: Run) -> None:
    await some(run.mark, PROCESSES)
    # None of the three may find the time to end the commands.
    for pid in (run.supervisor, run.zygote, run.worker):
        os.kill(pid, signal.SIGSTOP)
    for pid in (run.worker, run.supervisor, run.zygote):
        await killed(pid)
    lines = machine.end_strays()
    assert await all_gone(run.mark) < BOUND
    # With namespaces the kernel has ended them already.
    assert any("sleep" in line for line in lines) is (run.rung == "landlock")


async def test_the_processes_of_a_live_supervisor_are_nobody_s_strays(run: Run) -> None:
    await some(run.mark, PROCESSES)
    before = len(carrying(run.mark))
    assert machine.end_strays() == []
    assert len(carrying(run.mark)) >= before


async def test_a_terminated_zygote_ends_all_below_it_first(run: Run) -> None:
    await some(run.mark, PROCESSES)
    os.kill(run.zygote, signal.SIGTERM)
    assert await all_gone(run.mark) < BOUND * 2
