"""What tests of dry runs share: a workspace, a pool on a chosen rung, and somebody who answers."""

import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import trio

from protocol.conversation import ToolCall
from protocol.policy import SandboxPolicy
from protocol.wire import ToolFinished
from supervisor.permits.asking import Answer, Effects, Scope
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch
from supervisor.session.trying import DryRuns
from supervisor.store.scratch import Scratch
from tests.supervisor.pool_play import LIMITS, Site

WITHOUT = {
    "a layer": (),
    "a copy in its place": ("native",),
    "a copy elsewhere": ("native", "bubblewrap"),
}
"""The views that there are, and what must be missing for them."""
APPLY, DISCARD = Answer(Scope.ONCE), Answer(None)
_ids = count(1)


class Judge:
    """As the gate: keeps what it is shown, and gives these answers."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self.policy = policy
        self.answer: Answer | None = APPLY
        self.shown: list[Effects] = []
        self.before_answering: Callable[[], None] = lambda: None

    async def accept(self, call: ToolCall, effects: Effects) -> Answer | None:
        self.shown.append(effects)
        await trio.lowlevel.checkpoint()
        self.before_answering()
        return self.answer


class Trying:
    def __init__(self, site: Site, pool: Pool, judge: Judge, runs: DryRuns) -> None:
        self.site = site
        self.workspace = site.workspace
        self.pool = pool
        self.judge = judge
        self.runs = runs
        self.applied = ""

    async def play(self, command: str, answer: Answer | None = APPLY, **more: object) -> ToolFinished:
        """One dry run and its result."""
        self.judge.answer = answer
        results: list[ToolFinished] = []
        arguments = json.dumps({"command": command, "dry_run": True, **more})
        with trio.fail_after(60):
            self.applied = await self.runs.run(
                ToolCall(f"call-{next(_ids)}", "run_command", arguments),
                results.append,
                self.site.said.append,
                None,
            )
        (result,) = results
        return result


@asynccontextmanager
async def trying(
    root: Path,
    view: str = "a layer",
    *,
    most_bytes: int = 10_000_000,
    most_files: int = 20_000,
    prepare: Callable[[Path], None] = lambda _: None,
) -> AsyncIterator[Trying]:
    """`prepare` fills the workspace before the policy is made."""
    site = Site(root)
    prepare(site.workspace)
    launch = Launch(without=WITHOUT[view], measure=os.environ.get("POLIER_MEASURE", ""))
    async with site.pool(LIMITS, launch) as pool:
        judge = Judge(site.policy)
        runs = DryRuns(
            pool,
            judge,
            lambda: Scratch(site.state, "test"),
            most_bytes=most_bytes,
            most_files=most_files,
            cap=32_000,
        )
        yield Trying(site, pool, judge, runs)


def tree(root: Path) -> dict[str, tuple[str, int, str]]:
    """All that is below a directory: its kind, its mode, its content or target."""
    found: dict[str, tuple[str, int, str]] = {}
    for above, directories, files in os.walk(os.fsencode(root)):
        for name in [*directories, *files]:
            path = os.path.join(above, name)
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            short = os.fsdecode(path)[len(str(root)) + 1 :]
            if stat.S_ISLNK(status.st_mode):
                found[short] = ("link", 0, os.fsdecode(os.readlink(path)))
            elif stat.S_ISDIR(status.st_mode):
                found[short] = ("directory", mode, "")
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    found[short] = ("file", mode, file.read().decode("latin-1"))
            else:
                found[short] = ("other", mode, "")
    return found


def left(site: Site) -> list[str]:
    """Directories of dry runs that are still there."""
    place = site.state / "tmp"
    return [entry.name for entry in place.iterdir() if entry.name.startswith("test-")]
