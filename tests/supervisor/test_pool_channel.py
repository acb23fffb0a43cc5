"""The supervisor's end of the wire against peers that are no good workers."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from protocol import wire
from protocol.conversation import ToolCall
from protocol.display import Display
from protocol.policy import Limits, Rung, SandboxPolicy
from protocol.wire import Status, ToolFinished
from supervisor.pool import channel
from supervisor.pool.bounds import BLOCK, LINE, bounded
from supervisor.pool.channel import HIGH_WATER, Channel, ChannelBrokenError, ChannelClosedError
from supervisor.pool.worker import Running, Worker
from supervisor.pool.zygote import Born, NoWorkerError, ended
from supervisor.store.disk import StoreError

HELLO = wire.encode(wire.Hello(1, 1))
READY = wire.encode(wire.Ready(Rung.OFF))
POLICY = SandboxPolicy("/")


class Peer:
    """A worker whose part the test plays; a sleeping process stands for its life."""

    def __init__(self) -> None:
        self.buried = False
        self.fails: Exception | None = None
        self.process = subprocess.Popen(["sleep", "60"])
        wire_, self.wire = channel.pair(socket.SOCK_STREAM)
        descriptors, self.descriptors = channel.pair(socket.SOCK_SEQPACKET)
        born = Born(self.process.pid, os.pidfd_open(self.process.pid), wire_, descriptors)
        self.jobs: list[wire.JobEnded] = []
        self.worker = Worker(born, self.open_output, self.jobs.append)
        self.wire.settimeout(5)

    def open_output(self, call_id: str) -> tuple[str, int]:
        if self.fails is not None:
            raise self.fails
        return "name", os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.wire.close()
        self.descriptors.close()
        self.bury("is over")

    def bury(self, how: str) -> str:
        said: list[str] = []
        if not self.buried:
            self.worker.bury(how, said.append)
        words = "".join(said)
        self.buried = True
        return words

    def hear(self) -> bytes:
        size = int.from_bytes(self.wire.recv(wire.HEADER), "big")
        return self.wire.recv(size, socket.MSG_WAITALL)

    async def live(self, *said: bytes) -> None:
        """Hear this and then the end of the wire."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.worker.live)
            await trio.to_thread.run_sync(self.wire.sendall, b"".join(said))
            self.wire.shutdown(socket.SHUT_WR)

    async def broken(self, *said: bytes) -> str:
        """Say this to a worker that lives, with one call running; what that call is told."""
        running = Running(ToolCall("a", "run_command", "{}"), lambda text: None)
        self.worker.start(running)
        self.wire.sendall(b"".join(said))
        with trio.fail_after(5):
            await self.worker.live()
        assert self.process.wait() == -signal.SIGKILL
        words = self.bury("was killed")
        assert running.finished is not None
        assert running.finished.status is Status.DIED
        assert words in running.finished.text
        return words


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    found = Peer()
    yield found
    found.close()


async def greeted(peer: Peer, *said: bytes) -> wire.Ready:
    peer.wire.sendall(b"".join(said))
    with trio.fail_after(5):
        return await peer.worker.greet(POLICY, Limits())


async def test_versions_that_do_not_meet_are_named_to_both(peer: Peer) -> None:
    with pytest.raises(NoWorkerError, match="versions 7 to 9 of the protocol"):
        await greeted(peer, wire.encode(wire.Hello(7, 9)))
    assert isinstance(wire.decode_to_worker(peer.hear()), wire.Nope)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (READY, "Ready instead of Hello"),
        (b"Traceback (most recent call last)", "a frame of 1416782179 bytes"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\0\0\0\2{}", "no message"),
        (HELLO + HELLO, "Hello instead of Hello"),
    ],
)
async def test_a_handshake_that_is_none_has_its_own_error(peer: Peer, said: bytes, words: str) -> None:
    with pytest.raises(NoWorkerError, match=words):
        await greeted(peer, said)


async def test_a_worker_that_dies_in_the_handshake_is_told_apart(peer: Peer) -> None:
    peer.wire.shutdown(socket.SHUT_RDWR)
    with pytest.raises(NoWorkerError, match="its wire is closed"):
        await peer.worker.greet(POLICY, Limits())


async def test_silence_at_the_handshake_ends_at_its_deadline(peer: Peer, autojump_clock: MockClock) -> None:
    with pytest.raises(NoWorkerError, match="not ready within 10 s"):
        await peer.worker.greet(POLICY, Limits())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (HELLO, "it said Hello twice"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\0\0\0\1\xc1", "no message"),
    ],
)
async def test_a_worker_that_talks_nonsense_is_killed_and_its_calls_say_why(
    peer: Peer, said: bytes, words: str
) -> None:
    assert words in await peer.broken(said)


async def test_what_a_worker_says_of_calls_that_it_does_not_have_is_passed_over(peer: Peer) -> None:
    stranger = ToolFinished("z", Status.DONE, "", Display(""))
    said: list[wire.ToSupervisor] = [
        wire.ToolOutput("z", "x"),
        stranger,
        wire.OpenOutput("z"),
        wire.JobEnded("j1", "over"),
    ]
    running = Running(ToolCall("a", "run_command", "{}"), lambda text: None)
    peer.worker.start(running)
    peer.hear()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.worker.live)
            peer.wire.sendall(b"".join(wire.encode(message) for message in said))
            peer.wire.sendall(wire.encode(ToolFinished("a", Status.DONE, "mine", Display(""))))
            await running.done.wait()
            refused = wire.decode_to_worker(peer.hear())
            nursery.cancel_scope.cancel()
    assert refused == wire.OutputRefused("z", "this call can have no more files")
    assert running.finished is not None
    assert running.finished.text == "mine"
    assert peer.jobs == [wire.JobEnded("j1", "over")]


async def test_the_files_of_one_call_are_counted(peer: Peer) -> None:
    peer.worker.start(Running(ToolCall("a", "run_command", "{}"), lambda text: None))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.worker.live)
            peer.wire.sendall(wire.encode(wire.OpenOutput("a")) * 9 + wire.encode(wire.JobEnded("", "")))
            while not peer.jobs:
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    kinds = [type(wire.decode_to_worker(peer.hear())).__name__ for _ in range(10)]
    assert kinds == ["RunTool", *["OutputOpened"] * 8, "OutputRefused"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StoreError(Path("/out/a.txt"), OSError(28, "No space left on device")), "No space left on device"),
        (OSError(2, "gone", "/out/\udcff"), "[Errno 2] gone: '/out/\\udcff'"),
    ],
)
async def test_a_file_that_can_t_be_opened_is_refused_and_the_worker_lives_on(
    peer: Peer, error: Exception, words: str
) -> None:
    peer.fails = error
    peer.worker.start(Running(ToolCall("a", "run_command", "{}"), lambda text: None))
    peer.hear()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.worker.live)
            peer.wire.sendall(wire.encode(wire.OpenOutput("a")) + wire.encode(wire.JobEnded("", "")))
            while not peer.jobs:
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    refused = wire.decode_to_worker(peer.hear())
    assert isinstance(refused, wire.OutputRefused)
    assert words in refused.why


async def test_what_a_worker_says_is_cut_to_what_one_that_is_well_says(peer: Peer) -> None:
    printed: list[str] = []
    running = Running(ToolCall("a", "run_command", "{}"), printed.append)
    peer.worker.start(running)
    huge = "ä" * 3_000_000
    said: list[wire.ToSupervisor] = [
        wire.ToolOutput("a", huge),
        wire.JobEnded(huge, huge),
        ToolFinished("a", Status.DONE, huge, Display("fine")),
    ]
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.worker.live)
            for message in said:
                await trio.to_thread.run_sync(peer.wire.sendall, wire.encode(message))
            await running.done.wait()
            nursery.cancel_scope.cancel()
    assert running.finished is not None
    assert len(running.finished.text.encode()) < Limits().result_cap_bytes + 100
    assert running.finished.text.endswith("[cut: the worker sent 6,000,000 bytes where 32,000 are allowed]")
    assert len(printed[0]) == BLOCK
    assert (len(peer.jobs[0].id), len(peer.jobs[0].line)) == (LINE, LINE)


async def test_a_worker_that_tells_of_jobs_without_end_is_broken(peer: Peer) -> None:
    said = wire.encode(wire.JobEnded("j", "over"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, lambda: _flood(peer.wire, said * 11_000))
        assert "more than 10,000 jobs" in await peer.broken()


def _flood(wired: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the reader breaks it off
        wired.sendall(data)


def test_every_part_of_a_result_has_a_bound_and_what_is_within_stays_as_it_is() -> None:
    fine = ToolFinished("a", Status.DONE, "x" * 104, Display("s", "p", "d", "f"), ("j1",), ("f",))
    assert bounded(fine, 100) == fine
    long = "x" * 100_000
    cut = bounded(
        ToolFinished("a", Status.DONE, "", Display(long, long, long, long), (long,) * 500, (long,) * 500), 100
    )
    shown = cut.display
    assert [len(part) for part in (shown.summary, shown.preview, shown.diff, shown.path)] == [
        LINE, BLOCK, BLOCK, LINE,
    ]  # fmt: skip
    assert [(len(lines), len(lines[0])) for lines in (cut.background, cut.paths)] == [(200, LINE)] * 2


async def test_a_call_s_id_can_run_only_once_at_a_time(peer: Peer) -> None:
    running = Running(ToolCall("a", "run_command", "{}"), lambda text: None)
    peer.worker.start(running)
    with pytest.raises(ValueError, match="is running"):
        peer.worker.start(running)


async def test_a_process_whose_end_is_kept_open_by_another_is_noticed_all_the_same(peer: Peer) -> None:
    peer.process.kill()
    with trio.fail_after(5):
        await peer.worker.live()


async def test_a_reader_that_is_slow_gets_everything_and_one_that_never_reads_is_broken() -> None:
    ours, theirs = channel.pair(socket.SOCK_STREAM)
    with theirs:
        wired = Channel(ours)
        call = wire.RunTool("a", "b", "x" * 1_000_000)
        posted = 0

        def fill() -> None:
            nonlocal posted
            while True:
                wired.post(call)
                posted += 1

        with pytest.raises(ChannelBrokenError, match="does not read"):
            fill()
        assert posted * 1_000_000 < HIGH_WATER + 4_000_000
        theirs.setblocking(False)
        frames, got = wire.Frames(), 0
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wired.flush)
                while got < posted:
                    await trio.lowlevel.wait_readable(theirs)
                    got += len(frames.feed(theirs.recv(1 << 20)))
                nursery.cancel_scope.cancel()
        theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ChannelClosedError):
            wired.post(call)
        wired.close()


async def test_a_flood_of_messages_lets_other_tasks_run() -> None:
    ours, theirs = channel.pair(socket.SOCK_STREAM)
    with theirs:
        theirs.sendall(wire.encode(wire.JobEnded("", "")) * 2000)
        wired, taken, passes = Channel(ours), 0, 0

        def take(message: wire.ToSupervisor) -> None:
            nonlocal taken
            taken += 1

        async def tick() -> None:
            nonlocal passes
            while taken < 2000:
                passes += 1
                await trio.lowlevel.checkpoint()

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wired.read, take)
                await tick()
                nursery.cancel_scope.cancel()
        assert passes > 20
        wired.close()


def test_every_way_to_end_has_words() -> None:
    assert [ended(code) for code in (None, 0, 3, -9, -200)] == [
        "ended in an unknown way",
        "ended with exit code 0",
        "ended with exit code 3",
        "was killed by SIGKILL",
        "was killed by signal 200",
    ]


async def test_a_flood_of_printed_text_is_left_out_and_a_moving_picture_is_not(peer: Peer) -> None:
    printed: list[str] = []
    peer.worker.start(Running(ToolCall("a", "run_command", "{}"), printed.append))
    await peer.live(*[wire.encode(wire.ToolOutput("a", "x" * 1000))] * 5000)
    assert 20 <= len(printed) < 200


async def test_long_frames_leave_others_their_turn(peer: Peer) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    frame = wire.encode(wire.ToolOutput("nobody", "x" * (15 * 1024 * 1024)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await peer.live(*[frame] * 4)
        nursery.cancel_scope.cancel()
    assert turns > 8
