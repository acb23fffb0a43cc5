"""P9, P10, P15: a worker's birth and its memory, and what a command in it costs."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import trio

from bench.ground import ROOT, scratch
from bench.row import Measured
from protocol import wire
from protocol.control import Birth
from protocol.conversation import ToolCall
from protocol.policy import Limits, Means, Mode, Rung, SandboxPolicy
from supervisor import machine
from supervisor.policy.default import default_policy
from supervisor.pool.events import PoolEvent, WorkerReady
from supervisor.pool.opening import open_pool
from supervisor.pool.worker import Worker
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch, Zygote

REPEATS = 3
_BIRTHS = 5
_IDLE_WORKERS = 100
_COMMANDS = 100


def policy() -> SandboxPolicy:
    """The default one, for a workspace and a state of its own."""
    root = Path(tempfile.mkdtemp(dir=scratch(), prefix="pool-"))
    for name in ("workspace", "state/output", "state/tmp"):
        (root / name).mkdir(parents=True)
    state = root / "state"
    return default_policy(root / "workspace", state / "output", state / "tmp", os.environ, state)


def no_output(call_id: str) -> tuple[str, int]:
    """Where a file for whole outputs would be opened."""
    raise OSError("no files in a benchmark")


def spawned() -> tuple[subprocess.Popen[bytes], socket.socket, float]:
    """A worker that is no fork, ready and not confined, and the seconds that it took."""
    begun = time.perf_counter()
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "worker", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=(theirs.fileno(),))
    ours.recv(4096)
    ours.sendall(wire.encode(wire.Welcome(1, SandboxPolicy(str(ROOT), Mode.UNCONFINED), Limits())))
    ours.recv(4096)
    return process, ours, time.perf_counter() - begun


def dismiss(process: subprocess.Popen[bytes], ours: socket.socket) -> None:
    ours.close()
    process.wait()


async def with_zygote(use: Callable[[Zygote], Awaitable[None]]) -> None:
    zygote = Zygote.start(Launch(), os.environ, machine.marker())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(zygote.serve)
        try:
            await use(zygote)
        finally:
            await zygote.end()


async def born(zygote: Zygote, confined: SandboxPolicy) -> Worker:
    worker = Worker(await zygote.fork(Birth(confined, Limits())), no_output, lambda _: None)
    await worker.greet(confined, Limits())
    return worker


def p9_worker_ready() -> Measured:
    """From asking the zygote for a fork to a worker that has greeted, its sandbox applied; against a fresh
    `python -m worker` that is not confined.  Both of the installed wheel, compiled; they take turns."""
    bounds: list[float] = []
    ours: list[float] = []

    async def measure(zygote: Zygote) -> None:
        confined = policy()
        (await born(zygote, confined)).bury("done", lambda words: None)
        for _ in range(_BIRTHS):
            process, wired, seconds = spawned()
            dismiss(process, wired)
            bounds.append(seconds)
            begun = time.perf_counter()
            worker = await born(zygote, confined)
            ours.append(time.perf_counter() - begun)
            worker.bury("done", lambda words: None)
            await zygote.exit_code(worker.pid, 5)

    trio.run(with_zygote, measure)
    return ("P9 worker ready, sandboxed", median(bounds) * 1e3, median(ours) * 1e3, "ms", "<= 0.2")


def p10_idle_worker() -> Measured:
    """Unique memory (USS) of one of 100 idle workers, the median, against a fresh spawned worker's.  It can
    be read by root only, as workers close theirs to others."""
    process, wired, _ = spawned()
    bound = psutil.Process(process.pid).memory_full_info().uss
    dismiss(process, wired)
    sizes: list[int] = []

    async def measure(zygote: Zygote) -> None:
        confined = policy()
        workers = [await born(zygote, confined) for _ in range(_IDLE_WORKERS)]
        sizes.extend(psutil.Process(worker.pid).memory_full_info().uss for worker in workers)
        for worker in workers:
            worker.bury("done", lambda words: None)

    trio.run(with_zygote, measure)
    return ("P10 idle worker's own memory (1 of 100)", bound / 1e6, median(sizes) / 1e6, "MB", "<= 0.35")


def nothing() -> None:
    subprocess.run(["true"], check=True)


class _Way(NamedTuple):
    """One way in which a worker may be confined; all that is above it is not tried."""

    words: str
    without: tuple[str, ...]
    means: Means
    rung: Rung
    goal: str = "<= 1.5 ms"


_WAYS = (
    _Way("a confined command", (), Means.NATIVE, Rung.FULL),
    _Way("one confined by bubblewrap", ("native",), Means.BUBBLEWRAP, Rung.FULL),
    _Way("one confined by Landlock alone", ("native", "bubblewrap"), Means.NONE, Rung.LANDLOCK),
    _Way(
        "one that nothing confines",
        ("native", "bubblewrap", "landlock"),
        Means.NONE,
        Rung.OFF,
        "for comparison",
    ),
)


async def _ways(stack: AsyncExitStack) -> AsyncIterator[tuple[_Way, Pool]]:
    """A pool for each way that this machine has."""
    for way in _WAYS:
        told: list[PoolEvent] = []
        launch = Launch(without=way.without)
        opening = open_pool(policy(), Limits(), no_output, told.append, environ=os.environ, launch=launch)
        pool = await stack.enter_async_context(opening)
        await pool.ready()
        (ready,) = (event.ready for event in told if isinstance(event, WorkerReady))
        if (ready.means, ready.rung) == (way.means, way.rung):
            yield way, pool


def p15_command() -> list[Measured]:
    """A command that does nothing, in a worker of each rung, against a process that does nothing.  All of
    them take turns."""
    bounds: list[float] = []
    ours: dict[_Way, list[float]] = {}

    async def measure() -> None:
        async with AsyncExitStack() as stack:
            pools = {way: pool async for way, pool in _ways(stack)}
            for number in range(_COMMANDS):
                begun = time.perf_counter()
                nothing()
                bounds.append(time.perf_counter() - begun)
                for way, pool in pools.items():
                    call = ToolCall(f"n{number}", "run_command", '{"command": "true"}')
                    begun = time.perf_counter()
                    await pool.run(call, lambda finished: None, lambda text: None, approved=True)
                    ours.setdefault(way, []).append(time.perf_counter() - begun)

    trio.run(measure)
    bound = median(bounds)
    return [
        (f"P15 added by {way.words}", bound * 1e3, (median(times) - bound) * 1e3, "ms", way.goal)
        for way, times in ours.items()
    ]


ROWS = [p9_worker_ready, p10_idle_worker, p15_command]
