"""How attempts to use the machine up are played: each in a pool of its own, with its own small limits."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trio

from protocol.conversation import ToolCall
from protocol.policy import Limit, Limits
from protocol.wire import ToolFinished
from supervisor.pool.workers import Pool
from tests.escapes.decoys import Decoys
from tests.escapes.limiting import BOMBS, SURVIVE, SURVIVORS, Bomb

Open = Callable[[Limits], AbstractAsyncContextManager[Pool]]

_BOMB_SECONDS = 30.0
_GONE_SECONDS = 3.0


async def play_bombs(open_pool: Open, decoys: Decoys) -> dict[str, str]:
    """By name, what went wrong; empty where nothing did."""
    told = {}
    for bomb in BOMBS:
        async with open_pool(bomb.limits) as pool:
            told[bomb.name] = await _bombed(pool, bomb, decoys)
        told[bomb.name] = told[bomb.name] or await _left(decoys)
        decoys.fresh()
        decoys.workspace_tree.restore()
    async with open_pool(Limits(grace_seconds=0.2)) as pool:
        await _run(pool, "survivors", decoys, SURVIVORS)
        alive = _carrying(f"left-{decoys.mark}")
    told[SURVIVE] = (
        (await _left(decoys)) if alive else "they have not survived their call, which proves nothing"
    )
    return told


async def _bombed(pool: Pool, bomb: Bomb, decoys: Decoys) -> str:
    finished = await _run(pool, "bomb", decoys, bomb.script)
    if finished.limit is not bomb.limit:
        return f"it was ended by {finished.limit}, {finished.status}: {finished.text[-300:]}"
    words = "timed out" if bomb.limit is Limit.WALL else bomb.limit.value.lower()
    if words not in finished.text.lower():
        return f"its words name no {bomb.limit.value}: {finished.text[-300:]}"
    after = await _run(pool, "after", decoys, "echo alive")
    return "" if "alive" in after.text else f"nothing runs afterwards: {after.text[-300:]}"


async def _run(pool: Pool, name: str, decoys: Decoys, script: str) -> ToolFinished:
    finished: list[ToolFinished] = []
    made = ToolCall(name, "run_command", json.dumps({"command": decoys.variables() + script}))
    with trio.fail_after(_BOMB_SECONDS):
        await pool.run(made, finished.append, lambda text: None)
    return finished[0]


async def _left(decoys: Decoys) -> str:
    """What of it still runs, after a moment."""
    until = time.monotonic() + _GONE_SECONDS
    while (left := _carrying(f"left-{decoys.mark}")) and time.monotonic() < until:
        await trio.sleep(0.01)
    return f"it left {len(left)} processes" if left else ""


def _carrying(name: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if words.startswith(name.encode()):
                found.append(entry.name)
    return found
