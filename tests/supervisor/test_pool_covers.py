"""A file that is closed in a worker and replaced from outside: no call sees the new one."""

import os
from pathlib import Path

import pytest
import trio

from protocol.policy import Rung
from protocol.wire import Status
from supervisor.pool.events import WorkerReady
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch
from tests.supervisor.pool_play import Site


def edited(path: Path, text: str) -> None:
    """As editors do it."""
    beside = path.with_name("edited~")
    beside.write_text(text)
    beside.replace(path)


async def needs_namespaces(pool: Pool) -> None:
    if (await pool.ready()).rung is not Rung.FULL:
        pytest.skip("no namespaces here")


@pytest.mark.parametrize("without", ["native", "bubblewrap"])
async def test_a_new_worker_closes_it_before_the_next_call(tmp_path: Path, without: str) -> None:
    site = Site(tmp_path)
    env, notes = site.workspace / ".env", site.workspace / "AGENTS.md"
    for path in (env, notes):
        path.write_text("one\n")
    async with site.pool(launch=Launch(without=(without,))) as pool:
        await needs_namespaces(pool)
        for text in ("two\n", "three\n"):
            for path in (env, notes):
                edited(path, text)
            result = await site.play(pool, "cat .env; echo more >> AGENTS.md")
            assert result.status is Status.DONE
            assert text not in result.text
            assert notes.read_text() == text
        births = sum(isinstance(event, WorkerReady) for event in site.events)
        assert births == 3
        # Written in place it is as closed as before.
        env.write_text("four\n")
        assert "four" not in (await site.play(pool, "cat .env")).text
        assert sum(isinstance(event, WorkerReady) for event in site.events) == births


async def test_while_jobs_run_they_go_on_and_a_worker_of_its_own_takes_the_call(tmp_path: Path) -> None:
    site = Site(tmp_path)
    env = site.workspace / ".env"
    env.write_text("one\n")
    async with site.pool(launch=Launch()) as pool:
        await needs_namespaces(pool)
        await site.play(pool, "sleep 60 & echo $! > pid; disown")
        assert pool.jobs == 1
        edited(env, "two\n")
        for _ in range(2):
            result = await site.play(pool, "cat .env; touch done")
            assert result.status is Status.DONE
            assert "two" not in result.text
            assert pool.jobs == 1
        assert os.path.exists(site.workspace / "done")
        with trio.CancelScope() as scope:
            scope.cancel()
            await site.play(pool, "cat .env")
