"""The session's Tools port: what runs side by side, and what is answered without a worker."""

from collections.abc import Callable

import pytest
import trio
import trio.testing

from protocol import wire
from protocol.conversation import ToolCall, ToolResult
from protocol.display import Display
from protocol.events import AnyEvent, ToolFinished
from protocol.policy import SandboxPolicy
from supervisor.exits import StopError
from supervisor.masks import Masks
from supervisor.model.dialect import NO_OUTPUT
from supervisor.session.calls import NOT_BEGUN, SessionTools, StopTurnError, batches
from tests.supervisor.session_play import Everything


def call(id: str, name: str = "read_file", problem: str = "") -> ToolCall:
    return ToolCall(id, name, '{"path":"x"}', problem)


class RecordingPool:
    """Ends a call when it is told to, and writes down when each began and ended."""

    def __init__(self, hold: bool = False, text: str = "ok") -> None:
        self.log: list[str] = []
        self.text = text
        self.hold = trio.Event()
        if not hold:
            self.hold.set()

    async def run(
        self,
        call: ToolCall,
        deliver: Callable[[wire.ToolFinished], None],
        on_output: Callable[[str], None],
        *,
        policy: SandboxPolicy | None = None,
        approved: bool = False,
    ) -> None:
        self.log.append(f"+{call.id}")
        on_output("some")
        try:
            await self.hold.wait()
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            deliver(wire.ToolFinished(call.id, wire.Status.CANCELLED, "half", Display("cancelled")))
            raise
        self.log.append(f"-{call.id}")
        deliver(wire.ToolFinished(call.id, wire.Status.DONE, self.text, Display("done")))


class Told(list[AnyEvent]):
    def __call__(self, event: AnyEvent) -> None:
        self.append(event)


async def results_of(
    pool: RecordingPool, calls: list[ToolCall], key: str | None = None
) -> tuple[list[ToolResult], Told]:
    told, results = Told(), list[ToolResult]()
    await SessionTools(pool, Everything(), told, Masks(key)).run(calls, results.append)
    return results, told


def test_neighbours_that_only_read_are_one_batch_and_writers_stand_alone() -> None:
    calls = [call("a"), call("b", "search"), call("c", "edit_file"), call("d", "run_command"), call("e")]
    assert [[c.id for c in batch] for batch in batches(calls)] == [["a", "b"], ["c"], ["d"], ["e"]]


async def test_reading_calls_run_side_by_side() -> None:
    pool = RecordingPool(hold=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(results_of, pool, [call("a"), call("b")])
        with trio.fail_after(5):
            while len(pool.log) < 2:
                await trio.lowlevel.checkpoint()
        pool.hold.set()
    assert sorted(pool.log[:2]) == ["+a", "+b"]


async def test_a_writing_call_waits_for_those_before_it() -> None:
    pool = RecordingPool()
    await results_of(pool, [call("a"), call("w", "write_file"), call("b")])
    assert pool.log == ["+a", "-a", "+w", "-w", "+b", "-b"]


async def test_a_call_with_unusable_arguments_is_answered_and_never_run() -> None:
    pool = RecordingPool()
    results, told = await results_of(pool, [call("a", problem="no JSON at place 3"), call("b")])
    assert pool.log == ["+b", "-b"]
    assert ToolResult("a", "not run: no JSON at place 3", failed=True) in results
    assert [event.status for event in told if isinstance(event, ToolFinished)] == ["refused", "done"]


async def test_three_unusable_replies_running_stop_the_turn_with_all_results_delivered() -> None:
    tools, results = SessionTools(RecordingPool(), Everything(), Told(), Masks(None)), list[ToolResult]()
    tools.start_turn()
    for number in range(2):
        await tools.run([call(f"a{number}", problem="bad")], results.append)
    with pytest.raises(StopTurnError, match="3 replies running"):
        await tools.run([call("a3", problem="bad"), call("b")], results.append)
    assert [result.call_id for result in results] == ["a0", "a1", "a3", "b"]


async def test_a_good_reply_between_bad_ones_starts_the_count_anew() -> None:
    tools, results = SessionTools(RecordingPool(), Everything(), Told(), Masks(None)), list[ToolResult]()
    for number, problem in enumerate(["bad", "bad", "", "bad", "bad"]):
        await tools.run([call(f"a{number}", problem=problem)], results.append)
    assert len(results) == 5


async def test_an_unknown_tool_is_refused_with_the_names_that_there_are() -> None:
    pool = RecordingPool()
    results, _ = await results_of(pool, [call("a", "fly")])
    assert pool.log == []
    assert "run_command" in results[0].text
    assert results[0].failed


async def test_our_own_key_is_masked_in_the_result_and_on_the_screen() -> None:
    pool = RecordingPool(text="key=sk-0123456789")
    results, told = await results_of(pool, [call("a")], "sk-0123456789")
    assert "masked" in results[0].text
    assert not any("sk-0123456789" in repr(event) for event in told)


async def test_an_empty_result_gets_a_placeholder() -> None:
    results, _ = await results_of(RecordingPool(text=""), [call("a")])
    assert results[0].text == NO_OUTPUT


async def test_an_interrupt_answers_the_running_call_with_what_it_had_and_the_others_as_not_begun() -> None:
    pool, told, results = RecordingPool(hold=True), Told(), list[ToolResult]()
    tools = SessionTools(pool, Everything(), told, Masks(None))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tools.run, [call("a"), call("w", "write_file")], results.append)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert results == [ToolResult("a", "half", failed=True), ToolResult("w", NOT_BEGUN, failed=True)]


async def test_a_full_disk_stops_the_batch_as_one_clear_error() -> None:
    def deliver(result: ToolResult) -> None:
        if result.call_id == "a":
            raise StopError("the disk is full")

    with pytest.raises(StopError, match="disk is full"):
        await SessionTools(RecordingPool(), Everything(), Told(), Masks(None)).run(
            [call("a"), call("b")], deliver
        )


async def test_an_interrupt_of_calls_side_by_side_answers_what_comes_after_them_as_not_begun() -> None:
    results = list[ToolResult]()
    tools = SessionTools(RecordingPool(hold=True), Everything(), Told(), Masks(None))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            calls = [call("a"), call("b"), call("w", "write_file")]
            nursery.start_soon(tools.run, calls, results.append)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert sorted(result.call_id for result in results) == ["a", "b", "w"]
    assert ToolResult("w", NOT_BEGUN, failed=True) in results


@pytest.mark.parametrize(
    ("whole", "shown"), [(False, ""), (True, "[masked: the key of the model's server]!")]
)
async def test_who_wants_to_see_everything_is_shown_what_the_model_gets(whole: bool, shown: str) -> None:
    told, results = Told(), list[ToolResult]()
    pool = RecordingPool(text="sk-a-key-of-ours!")
    tools = SessionTools(pool, Everything(), told, Masks("sk-a-key-of-ours"), whole=whole)
    await tools.run([call("a")], results.append)
    assert results[0].text == "[masked: the key of the model's server]!"
    (end,) = [event for event in told if isinstance(event, ToolFinished)]
    assert end.display.preview == shown
