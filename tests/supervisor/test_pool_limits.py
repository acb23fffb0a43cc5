"""Limits in the real sandbox, on each rung: a bomb ends, its result names the limit, the worker serves on."""

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from protocol.conversation import ToolCall
from protocol.policy import Limit, Limits
from protocol.wire import JobEnded, Status, ToolFinished
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch
from tests.supervisor.pool_play import LAUNCH, Site, processes
from tests.worker.command_desk import FORK_BOMB

MIB = 1024**2
LIMITS = Limits(
    grace_seconds=0.5,
    memory_bytes=200 * MIB,
    processes=64,
    cpu_seconds=1,
    open_files=256,
    file_bytes=20 * MIB,
)
PYTHON = str(Path(sys.executable).resolve())


@pytest.fixture(params=[(), ("native", "bubblewrap")], ids=["full", "landlock"])
async def pool(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pool]:
    launch = Launch(without=request.param, roots=LAUNCH.roots, measure=LAUNCH.measure)
    site = Site(tmp_path)
    async with site.pool(LIMITS, launch) as made:
        ready = await made.ready()
        assert ready.rung.value == request.node.callspec.id.split("-")[0] or not request.param
        yield made
        assert (await ran(made, "echo still here")).text == "still here"
        _, worker = processes()
        assert not Path(f"/proc/{worker}/task/{worker}/children").read_text()


async def ran(pool: Pool, command: str, **more: object) -> ToolFinished:
    results: list[ToolFinished] = []
    arguments = json.dumps({"command": command, "timeout": 20, **more})
    with trio.fail_after(40):
        await pool.run(
            ToolCall(f"call-{time.monotonic_ns()}", "run_command", arguments),
            results.append,
            lambda text: None,
        )
    (result,) = results
    return result


async def test_a_fork_bomb(pool: Pool) -> None:
    for _ in range(4):  # each of them uses up numbers of processes
        result = await ran(pool, f"{FORK_BOMB}; sleep 20")
        assert (result.status, result.limit) == (Status.FAILED, Limit.PROCESSES)


async def test_a_memory_hog(pool: Pool) -> None:
    script = "import time\nb = []\nfor i in range(60): b.append(bytearray(10 << 20))\ntime.sleep(20)"
    result = await ran(pool, f"{PYTHON} -I -c '{script}'")
    assert (result.status, result.limit) == (Status.FAILED, Limit.MEMORY)


async def test_a_file_above_its_size(pool: Pool) -> None:
    result = await ran(pool, "dd if=/dev/zero of=big bs=1M count=30 status=none; ls -s --block-size=1M big")
    assert "20 big" in result.text
    result = await ran(pool, "dd if=/dev/zero of=big bs=1M count=30")
    assert (result.status, result.limit) == (Status.FAILED, Limit.FILE_SIZE)
    result = await ran(pool, f'{PYTHON} -I -c \'open("b", "wb").write(bytes(30 << 20))\'')
    assert (result.status, result.limit) == (Status.DONE, Limit.FILE_SIZE)
    assert "probably the limit of file size was reached (20.0 MiB for one file)" in result.text


async def test_too_many_open_files(pool: Pool) -> None:
    result = await ran(pool, f"{PYTHON} -I -c 'f = [open(\"/dev/null\") for i in range(300)]'")
    assert (result.status, result.limit) == (Status.DONE, Limit.FILES)
    assert "probably the limit of open files was reached (256 for one process)" in result.text


async def test_a_spin(pool: Pool) -> None:
    result = await ran(pool, "while :; do :; done")
    assert (result.status, result.limit) == (Status.FAILED, Limit.CPU)


async def test_a_sleep_beyond_its_time(pool: Pool) -> None:
    result = await ran(pool, "sleep 30", timeout=0.5)
    assert (result.status, result.limit) == (Status.TIMED_OUT, Limit.WALL)


async def test_commands_stand_behind_other_programs(pool: Pool) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert (await ran(pool, "nice")).text == str(min(own + 5, 19))


async def test_a_job_s_end_names_its_limit(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.pool(replace(LIMITS, cpu_seconds=1), Launch()) as pool:
        await ran(pool, "sleep 0.5; while :; do :; done", background=True)
        await site.until(lambda: any(isinstance(event, JobEnded) for event in site.events), 20)
    (ended,) = [event for event in site.events if isinstance(event, JobEnded)]
    assert "the limit of CPU time was reached (1 s for one process)" in ended.line


async def test_a_command_starts_where_the_machine_allows_few_open_files(tmp_path: Path) -> None:
    async with Site(tmp_path).pool(replace(LIMITS, open_files=64), Launch()) as pool:
        assert (await ran(pool, "ulimit -n; cat /dev/null <(echo x)")).text == "64\nx"
