"""Workers for one call, and another main worker with another policy: real processes, also when they die."""

import json
import os
import signal
from itertools import count
from pathlib import Path

import pytest
import trio

from protocol.conversation import ToolCall
from protocol.policy import SandboxPolicy
from protocol.wire import JobEnded, Status, ToolFinished
from supervisor.pool.events import WorkerDied, WorkerReady
from supervisor.pool.opening import PoolOpening, open_pool
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch
from tests.supervisor.pool_play import LIMITS, Site, all_gone, call, carrying, family, processes, some

REAL = Launch(measure=os.environ.get("POLIER_MEASURE", ""))
"""The product's own tools."""
_ids = count(1)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "beside").mkdir()
    return Site(tmp_path)


def real(site: Site) -> PoolOpening:
    return site.pool(launch=REAL)


def wider(site: Site) -> SandboxPolicy:
    """A policy that allows writing beside the workspace too."""
    policy = site.policy
    return SandboxPolicy(
        **{name: getattr(policy, name) for name in policy.__struct_fields__ if name != "writable"},
        writable=(*policy.writable, str(site.root / "beside")),
    )


async def play(
    site: Site, pool: Pool, command: str, policy: SandboxPolicy | None = None, **more: object
) -> ToolFinished:
    results: list[ToolFinished] = []
    asked = ToolCall(f"one-{next(_ids)}", "run_command", json.dumps({"command": command, **more}))
    with trio.fail_after(20):
        await pool.run(asked, results.append, site.said.append, policy=policy)
    (result,) = results
    return result


async def test_a_call_with_its_own_policy_may_do_what_the_others_may_not(site: Site) -> None:
    command = f"echo x > {site.root}/beside/file"
    async with real(site) as pool:
        refused = await play(site, pool, command)
        assert "exit code 1" in refused.text
        assert not (site.root / "beside/file").exists()
        assert "no output, exit code 0" in (await play(site, pool, command, wider(site))).text
        assert (site.root / "beside/file").read_text() == "x\n"
        assert "exit code 1" in (await play(site, pool, command)).text


async def test_the_directory_goes_from_worker_to_worker_in_both_ways(site: Site) -> None:
    (site.workspace / "a/b").mkdir(parents=True)
    async with real(site) as pool:
        await play(site, pool, "cd a")
        assert pool.cwd == str(site.workspace / "a")
        alone = await play(site, pool, "pwd; cd b", wider(site))
        assert alone.text == str(site.workspace / "a")
        assert (await play(site, pool, "pwd")).text == str(site.workspace / "a/b")
        assert pool.replace(wider(site))
        assert (await play(site, pool, "pwd")).text == str(site.workspace / "a/b")


async def test_a_worker_of_one_call_is_gone_with_all_it_started_when_the_result_is_there(site: Site) -> None:
    async with real(site) as pool:
        await play(site, pool, "true")
        before = len(os.listdir("/proc/self/fd"))
        left: list[list[str]] = []
        results: list[ToolFinished] = []

        def deliver(result: ToolFinished) -> None:
            results.append(result)
            left.append([line for line in carrying(str(site.tmp)) if "sleep" in line])

        script = "setsid sleep 311 >/dev/null 2>&1 & echo ran"
        await pool.run(call(script), deliver, site.said.append, policy=wider(site))
        assert left == [[]]
        assert "ran" in results[0].text
        assert "ended, since its worker ends with the call" in results[0].text
        assert results[0].background == ()
        assert len(os.listdir("/proc/self/fd")) == before


async def test_a_background_command_is_refused_by_a_worker_that_ends_with_the_call(site: Site) -> None:
    async with real(site) as pool:
        result = await play(site, pool, "sleep 300", wider(site), background=True)
    assert result.status is Status.REFUSED
    assert "ends with the call" in result.text


async def test_jobs_of_the_main_worker_live_on_beside_a_worker_of_one_call(site: Site) -> None:
    async with real(site) as pool:
        await play(site, pool, "sleep 300", background=True)
        assert pool.jobs == 1
        await play(site, pool, "true", wider(site))
        assert pool.jobs == 1
        listed: list[ToolFinished] = []
        await pool.run(ToolCall("list", "jobs", '{"action": "list"}'), listed.append, site.said.append)
        assert "sleep 300" in listed[0].text


async def test_the_main_worker_is_replaced_only_when_its_last_job_has_ended(site: Site) -> None:
    command = f"echo x > {site.root}/beside/file"
    async with real(site) as pool:
        await play(site, pool, "until [ -e go ]; do sleep 0.02; done", background=True)
        assert not pool.replace(wider(site))
        assert "exit code 1" in (await play(site, pool, command)).text
        (site.workspace / "go").touch()
        await site.until(lambda: sum(isinstance(event, WorkerReady) for event in site.events) == 2)
        assert any(isinstance(event, JobEnded) and event.jobs == 0 for event in site.events)
        assert "exit code 0" in (await play(site, pool, command)).text
    assert not [event for event in site.events if isinstance(event, WorkerDied)]


async def test_a_job_that_is_stopped_lets_the_replacement_come(site: Site) -> None:
    async with real(site) as pool:
        await play(site, pool, "sleep 300", background=True)
        assert not pool.replace(wider(site))
        done: list[ToolFinished] = []
        await pool.run(ToolCall("s", "jobs", '{"action": "stop", "id": "j1"}'), done.append, site.said.append)
        assert done[0].jobs == 0
        assert "exit code 0" in (await play(site, pool, f"echo x > {site.root}/beside/file")).text


async def test_a_replacement_waits_for_the_call_that_runs(site: Site) -> None:
    async with site.pool() as pool:
        results: list[ToolFinished] = []
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                script = "touch go; until [ -e on ]; do sleep 0.01; done; echo whole"
                nursery.start_soon(pool.run, call(script), results.append, site.said.append)
                while not (site.workspace / "go").exists():
                    await trio.sleep(0.005)
                assert not pool.replace(wider(site))
                (site.workspace / "on").touch()
        assert results[0].text == "whole\n"
        await site.until(lambda: sum(isinstance(event, WorkerReady) for event in site.events) == 2)


async def test_replacing_before_the_first_worker_is_ready_gives_the_first_call_the_new_policy(
    site: Site,
) -> None:
    async with real(site) as pool:
        assert pool.replace(wider(site))
        assert "exit code 0" in (await play(site, pool, f"echo x > {site.root}/beside/file")).text
        assert pool.replace(wider(site)), "an equal policy changes nothing"


async def test_a_call_alone_that_is_cancelled_delivers_once_what_it_had(site: Site) -> None:
    async with site.pool() as pool:
        results: list[ToolFinished] = []
        with trio.fail_after(10), trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def run() -> None:
                    script = "echo so far; touch go; sleep 300"
                    await pool.run(call(script), results.append, site.said.append, policy=wider(site))

                nursery.start_soon(run)
                while not (site.workspace / "go").exists():
                    await trio.sleep(0.005)
                scope.cancel()
        assert scope.cancelled_caught
        assert [(result.status, result.text) for result in results] == [
            (Status.CANCELLED, "cancelled; so far\n")
        ]
        assert [line for line in carrying(str(site.tmp)) if "sleep" in line] == []
        assert (await site.play(pool, "!echo next")).text == "next"


@pytest.mark.parametrize("passes", [0, 1, 2, 4, 8, 16, 32])
async def test_a_call_alone_can_be_cancelled_at_any_point_of_its_birth(site: Site, passes: int) -> None:
    async with site.pool() as pool:
        await pool.ready()
        results: list[ToolFinished] = []
        with trio.fail_after(10), trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def run() -> None:
                    await pool.run(call("sleep 300"), results.append, site.said.append, policy=wider(site))

                nursery.start_soon(run)
                for _ in range(passes):
                    await trio.sleep(0.001)
                scope.cancel()
        assert [result.status for result in results] == [Status.CANCELLED]
        assert [line for line in carrying(str(site.tmp)) if "sleep" in line] == []
        assert (await site.play(pool, "!echo next")).text == "next"


async def test_a_worker_of_one_call_that_is_killed_says_so_and_the_main_one_lives_on(site: Site) -> None:
    async with site.pool() as pool:
        await pool.ready()
        main = processes()
        results: list[ToolFinished] = []

        async def run() -> None:
            script = "setsid sleep 321 & sleep 322"
            await pool.run(call(script), results.append, site.said.append, policy=wider(site))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await some(str(site.tmp), 3)
                os.kill(family()[-1], signal.SIGKILL)
        assert results[0].status is Status.DIED
        assert "killed by SIGKILL" in results[0].text
        assert [line for line in carrying(str(site.tmp)) if "sleep" in line] == []
        assert (await site.play(pool, "!echo next")).text == "next"
        assert processes() == main
    assert not [event for event in site.events if isinstance(event, WorkerDied)]


async def test_a_dead_zygote_takes_a_worker_of_one_call_with_it(site: Site) -> None:
    async with site.pool() as pool:
        await pool.ready()
        zygote, _ = processes()
        results: list[ToolFinished] = []

        async def run() -> None:
            await pool.run(call("touch go; sleep 323"), results.append, site.said.append, policy=wider(site))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                while not (site.workspace / "go").exists():
                    await trio.sleep(0.005)
                os.kill(zygote, signal.SIGKILL)
        assert results[0].status is Status.DIED
        assert (await site.play(pool, "!echo next")).text == "next"
    assert await all_gone(str(site.tmp)) < LIMITS.grace_seconds + 5


async def test_a_call_alone_is_refused_where_no_worker_can_be_had(site: Site) -> None:
    async with site.pool(launch=Launch(registry="no_such_registry")) as pool:
        result = await play(site, pool, "true", wider(site))
    assert result.status is Status.REFUSED
    assert "No module named 'no_such_registry'" in result.text


async def test_a_worker_that_enforces_less_than_is_required_gets_no_call(site: Site) -> None:
    """The first one may have had more than the machine gives to the next."""
    lacking: list[str] = []
    opening = open_pool(
        site.policy, LIMITS, site.open_output, site.tell, environ=os.environ, launch=REAL,
        unmet=lambda ready: "".join(lacking),
    )  # fmt: skip
    async with opening as pool:
        assert (await play(site, pool, "echo main")).status is Status.DONE
        lacking.append("full is required")
        for policy in (wider(site), None):
            result = await play(site, pool, "echo x > file", policy)
            assert (result.status, result.text) == (Status.REFUSED, "Not run: full is required")
        assert not (site.workspace / "file").exists()
