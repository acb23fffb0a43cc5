"""P23: how soon a turn is over after the user has interrupted it, in a stream and in a tool.

A whole session plays in this process: the scripted server over HTTP, a pool, a transcript on the disk.  The
clock runs from `Session.interrupt` to the return of `Session.say`; in a tool until the command's process is
gone as well, should that be later.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import trio

from bench.ground import environment, serving, workspace
from bench.row import Measured
from protocol.conversation import User
from protocol.events import AnyEvent, StopReason, TextDelta, ToolOutputDelta
from supervisor.options import New
from supervisor.settings import Flags, load
from supervisor.wiring import open_session

REPEATS = 3
_CANCELS = 20
_COMMAND = "echo up; sleep 1000"
_STREAM: dict[str, object] = {"text": "abc " * 100, "chunk": 4, "fault": {"type": "stall", "after": 20}}
_TOOL: dict[str, object] = {"calls": [{"name": "run_command", "arguments": {"command": _COMMAND}}]}


def p23_cancel_in_a_stream() -> Measured:
    """From the interrupt, at the first piece of a reply that then hangs, to the end of the turn; the 95th
    percentile of 20."""
    late = _late(_STREAM, lambda event: isinstance(event, TextDelta))
    return ("P23 cancel in a stream to turn returned, p95", 20.0, late * 1e3, "ms", "<= 20 ms")


def p23_cancel_in_a_tool() -> Measured:
    """From the interrupt, at the first line that a command prints which then sleeps, until the turn has ended
    and no process of the command is left; the 95th percentile of 20."""
    late = _late(_TOOL, lambda event: isinstance(event, ToolOutputDelta))
    return ("P23 cancel in a tool to turn returned and command dead, p95", 50.0, late * 1e3, "ms", "<= 50 ms")


def _late(step: dict[str, object], due: Callable[[AnyEvent], bool]) -> float:
    script: dict[str, object] = {"steps": [step], "repeat_last": True}
    with serving({"us": script}) as (url, _):
        seconds = sorted(trio.run(_interrupted, f"{url}/us", due))
    return seconds[int(0.95 * (len(seconds) - 1))]


async def _interrupted(url: str, due: Callable[[AnyEvent], bool]) -> list[float]:
    """Play turns that are interrupted at the first event that is due; the seconds of each."""
    begun: list[float] = []
    took: list[float] = []

    def tell(event: AnyEvent) -> None:
        if due(event) and len(begun) == len(took):
            begun.append(time.perf_counter())
            session.interrupt()

    settings = load(Flags(base_url=url, workspace=workspace()), environment(), Path.cwd()).settings
    async with open_session(settings, None, New(), tell) as session:
        for _ in range(_CANCELS):
            finished = await session.say(User.says("go"))
            ended = time.perf_counter()
            while _sleeping():  # looking takes some ms itself, which count only where it was not gone yet
                await trio.lowlevel.checkpoint()
                ended = time.perf_counter()
            took.append(ended - begun[len(took)])
            if finished.reason is not StopReason.INTERRUPTED:
                raise RuntimeError(f"not interrupted but {finished.reason}: {finished.error}")
    return took


def _sleeping() -> bool:
    """Whether a command of ours still runs.  A zombie is gone."""
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if child.name() == "sleep" and child.status() != psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            continue
    return False


ROWS = [p23_cancel_in_a_stream, p23_cancel_in_a_tool]
