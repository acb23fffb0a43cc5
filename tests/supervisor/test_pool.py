"""The pool with real processes: results, output, cancellation, death and restart."""

import os
import signal
import time
from pathlib import Path

import pytest
import trio

from protocol.conversation import ToolCall
from protocol.policy import Limits
from protocol.wire import JobEnded, Status, ToolFinished
from supervisor.pool.events import WorkerDied, WorkerReady
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch
from tests.supervisor.pool_play import LIMITS, Site, all_gone, call, carrying, processes, some


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def pids(pool: Pool) -> tuple[int, int]:
    """(zygote, worker), once there is one."""
    await pool.ready()
    return processes()


async def test_a_call_runs_in_a_worker_and_comes_back_with_its_result(site: Site) -> None:
    async with site.pool() as pool:
        result = await site.play(pool, "!echo hello")
    assert (result.status, result.text, result.display.summary) == (Status.DONE, "hello", "hello")


async def test_a_worker_leads_its_own_session_in_the_workspace_and_reads_nothing(site: Site) -> None:
    async with site.pool() as pool:
        pid, _, session, stdin, cwd = (await site.play(pool, "!about")).text.split()
        assert pid == session
        assert (stdin, cwd) == ("/dev/null", str(site.workspace))
        zygote, worker = await pids(pool)
        assert os.getsid(worker) == worker
        assert os.getsid(zygote) == zygote


async def test_every_call_goes_to_the_same_worker_and_calls_run_side_by_side(site: Site) -> None:
    async with site.pool() as pool:
        results: list[ToolFinished] = []
        before = await pids(pool)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for command in (
                    "until [ -e b ]; do sleep 0.01; done; touch a",
                    "touch b; until [ -e a ]; do sleep 0.01; done",
                ):
                    nursery.start_soon(pool.run, call(command), results.append, site.said.append)
        assert [result.status for result in results] == [Status.DONE] * 2
        assert (await pids(pool)) == before


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("!raise no luck", Status.FAILED, "RuntimeError: no luck"),
        ("!system-exit", Status.FAILED, "SystemExit"),
        ("!surrogate", Status.FAILED, "its result can't be sent"),
        ("!large 17000000", Status.DONE, "bytes left out here"),
    ],
)
async def test_whatever_a_tool_does_is_a_result_and_the_worker_lives_on(
    site: Site, command: str, status: Status, words: str
) -> None:
    async with site.pool() as pool:
        before = await pids(pool)
        result = await site.play(pool, command)
        assert result.status is status
        assert words in result.text
        assert await pids(pool) == before


async def test_calls_that_can_t_be_understood_are_refused_with_words(site: Site) -> None:
    async def refusal(pool: Pool, asked: ToolCall) -> str:
        results: list[ToolFinished] = []
        await pool.run(asked, results.append, site.said.append)
        assert [result.status for result in results] == [Status.REFUSED]
        return results[0].text

    async with site.pool() as pool:
        assert "there is no tool 'fly'" in await refusal(pool, ToolCall("a", "fly", "{}"))
        assert "its arguments are: command" in await refusal(pool, ToolCall("b", "run_command", '{"x": 1}'))
        assert "not JSON" in await refusal(pool, ToolCall("c", "run_command", "{"))
        assert "at most" in await refusal(pool, ToolCall("d", "run_command", "x" * 17_000_000))
        assert "only commands here" in await refusal(pool, ToolCall("e", "read_file", '{"path": "a"}'))
        assert (await site.play(pool, "!echo still here")).text == "still here"


async def test_what_a_command_prints_arrives_while_it_runs(site: Site) -> None:
    async with site.pool() as pool:
        await site.play(pool, "!say half done")
    assert site.said == ["half done"]


async def test_the_end_of_a_background_job_is_told(site: Site) -> None:
    async with site.pool() as pool:
        await site.play(pool, "!job j1 sleep 1: exit 0")
    assert JobEnded("j1", "j1 sleep 1: exit 0") in site.events


async def test_the_whole_output_goes_to_a_file_that_the_supervisor_opened(site: Site) -> None:
    async with site.pool() as pool:
        await site.play(pool, "!output one")  # by now it has handed over all that it hands over at its start
        before = len(os.listdir("/proc/self/fd"))
        first = await site.play(pool, "!output all of it")
        await site.play(pool, "!output another")
        assert len(os.listdir("/proc/self/fd")) == before
    assert (site.output / first.text).read_text() == "all of it"
    assert (site.output / first.text).stat().st_mode & 0o777 == 0o600


async def test_a_tool_is_told_when_no_file_can_be_had(site: Site) -> None:
    site.output.rmdir()
    async with site.pool() as pool:
        result = await site.play(pool, "!output x")
    assert result.status is Status.FAILED
    assert "No such file or directory" in result.text


async def test_fifty_calls_leave_no_descriptor_and_no_thread_behind(site: Site) -> None:
    async with site.pool() as pool:

        async def counted() -> tuple[int, str, int]:
            fds = len(os.listdir("/proc/self/fd"))
            return fds, (await site.play(pool, "!fds")).text, int((await site.play(pool, "!threads")).text)

        for command in ("true", "!output first"):
            await site.play(pool, command)
        before = await counted()
        for number in range(17):
            for command in ("true", f"!echo {number}", "!output x"):
                await site.play(pool, command)
        after = await counted()
        assert after[:2] == before[:2]
        # Threads are kept for later calls; one that has just answered is not idle yet: then another is made.
        assert after[2] <= before[2] + 3


async def test_a_pool_that_is_closed_leaves_nothing_behind(site: Site) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with site.pool() as pool:
        await site.play(pool, "sleep 300 >/dev/null 2>&1 & setsid sleep 301 >/dev/null 2>&1 &")
        await some(str(site.tmp), 2)
    assert carrying(str(site.tmp)) == []
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_pool_can_be_closed_at_once_and_its_block_s_exception_stays_itself(site: Site) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with site.pool():
            raise KeyError("mine")
    with trio.move_on_after(0):
        async with site.pool():
            await trio.sleep_forever()
    assert carrying(str(site.tmp)) == []


async def cancelled(site: Site, pool: Pool, command: str, started: str) -> tuple[ToolFinished, float]:
    """Cancel a call once the file `started` is there: its one result, and how long it took to come."""
    results: list[ToolFinished] = []
    begun = 0.0
    with trio.fail_after(10), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run, call(command), results.append, site.said.append)
            while not (site.workspace / started).exists():
                await trio.sleep(0.005)
            begun = trio.current_time()
            scope.cancel()
    assert scope.cancelled_caught
    (result,) = results
    return result, trio.current_time() - begun


async def test_a_cancelled_call_delivers_what_it_had_and_its_processes_are_gone(site: Site) -> None:
    async with site.pool() as pool:
        result, seconds = await cancelled(site, pool, "echo so far; touch go; sleep 300", "go")
        assert (result.status, result.text) == (Status.CANCELLED, "cancelled; so far\n")
        assert seconds < 1
        assert [line for line in carrying(str(site.tmp)) if "sleep" in line] == []
        assert (await site.play(pool, "!echo next")).text == "next"


async def test_a_command_that_ignores_its_end_is_killed_after_the_grace(site: Site) -> None:
    async with site.pool() as pool:
        result, seconds = await cancelled(
            site, pool, "trap '' TERM; touch go; while :; do sleep 1; done", "go"
        )
        assert result.status is Status.CANCELLED
        assert LIMITS.grace_seconds <= seconds < LIMITS.grace_seconds + 1.5


async def test_a_call_cancelled_before_it_began_is_delivered_as_such(site: Site) -> None:
    results: list[ToolFinished] = []
    async with site.pool() as pool:
        with trio.move_on_after(0) as scope:
            await pool.run(call("true"), results.append, site.said.append)
    assert scope.cancelled_caught
    assert [result.status for result in results] == [Status.CANCELLED]


async def test_a_wedged_worker_is_killed_after_the_bound_and_another_one_takes_over(site: Site) -> None:
    async with site.pool(Limits(grace_seconds=0)) as pool:
        _, pid = await pids(pool)
        os.kill(pid, signal.SIGSTOP)
        results: list[ToolFinished] = []
        with trio.move_on_after(0.05) as scope:
            begun = trio.current_time()
            await pool.run(call("!echo never"), results.append, site.said.append)
        assert scope.cancelled_caught
        assert 1.9 < trio.current_time() - begun < 3
        assert results[0].status is Status.CANCELLED
        assert "killed" in results[0].text
        assert (await pids(pool))[1] != pid


async def test_a_call_whose_worker_is_killed_says_so_and_nothing_of_it_runs_on(site: Site) -> None:
    async with site.pool() as pool:
        _, pid = await pids(pool)
        results: list[ToolFinished] = []
        left: list[list[str]] = []

        def deliver(result: ToolFinished) -> None:
            results.append(result)
            left.append([line for line in carrying(str(site.tmp)) if "sleep" in line])

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pool.run, call("setsid sleep 300 & sleep 301"), deliver, site.said.append)
                await some(str(site.tmp), 3)
                os.kill(pid, signal.SIGKILL)
        assert results[0].status is Status.DIED
        assert "killed by SIGKILL" in results[0].text
        assert "effect of this call is unknown" in results[0].text
        assert left == [[]]
        assert (await pids(pool))[1] != pid
    assert [type(event) for event in site.events] == [WorkerReady, WorkerDied, WorkerReady]
    assert isinstance(site.events[1], WorkerDied)
    assert site.events[1].will_restart


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("!exit 7", "exit code 7"),
        ("!crash", "SIGSEGV"),
        ("!garbage", "what is no message"),
    ],
)
async def test_the_way_a_worker_died_is_named(site: Site, command: str, words: str) -> None:
    async with site.pool() as pool:
        result = await site.play(pool, command)
        assert result.status is Status.DIED
        assert words in result.text
        assert (await site.play(pool, "!echo next")).text == "next"


async def test_after_three_deaths_in_a_minute_calls_are_refused_with_the_reason(site: Site) -> None:
    async with site.pool() as pool:
        for _ in range(3):
            assert (await site.play(pool, "!exit 9")).status is Status.DIED
        result = await site.play(pool, "!echo x")
        assert result.status is Status.REFUSED
        assert "exit code 9" in result.text
        assert "3 times" in result.text
        assert "exit code 9" in (await pool.ready()).refuse_commands
    died = [event for event in site.events if isinstance(event, WorkerDied)]
    assert [event.will_restart for event in died] == [True, True, False]


async def test_a_dead_zygote_is_replaced_and_what_ran_below_it_is_ended(site: Site) -> None:
    stripped = f"sleep 3{time.time_ns()}"
    async with site.pool() as pool:
        zygote, pid = await pids(pool)
        results: list[ToolFinished] = []
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                command = f"setsid env -i {stripped} & trap '' TERM; touch go; sleep 301; sleep 302"
                nursery.start_soon(pool.run, call(command), results.append, site.said.append)
                while not (site.workspace / "go").exists():
                    await trio.sleep(0.005)
                os.kill(pid, signal.SIGSTOP)
                os.kill(zygote, signal.SIGKILL)
        assert results[0].status is Status.DIED
        assert (await pids(pool))[0] != zygote
        assert carrying(stripped.replace(" ", "\0")) == []


async def test_a_zygote_that_can_t_start_is_named_with_its_last_words(site: Site) -> None:
    async with site.pool(launch=Launch(registry="no_such_registry")) as pool:
        result = await site.play(pool, "true")
    assert result.status is Status.REFUSED
    assert "No module named 'no_such_registry'" in result.text


async def test_neither_zygote_nor_worker_nor_command_sees_the_user_s_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame-of-the-user")
    async with site.pool() as pool:
        zygote, _ = await pids(pool)
        assert b"sesame" not in Path(f"/proc/{zygote}/environ").read_bytes()
        assert "sesame" not in (await site.play(pool, "env; cat /proc/$PPID/environ")).text


@pytest.mark.slow
async def test_a_command_on_an_otherwise_idle_worker_outlives_twelve_seconds(site: Site) -> None:
    async with site.pool() as pool:
        assert (await site.play(pool, "sleep 12.5; echo alive")).text == "alive\n"


async def test_all_that_was_started_is_gone_soon_after_the_end(site: Site) -> None:
    async with site.pool() as pool:
        await site.play(pool, "sleep 300 >/dev/null 2>&1 &")
    assert await all_gone(str(site.tmp)) < 0.25
