"""What tests of the pool share: a workspace with its policy, calls, and what is left of processes."""

import json
import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import trio

from protocol.conversation import ToolCall
from protocol.policy import Limits, Mode, SandboxPolicy
from protocol.wire import ToolFinished
from supervisor import machine
from supervisor.choices.tables import SandboxChoices
from supervisor.policy.default import default_policy
from supervisor.pool.events import PoolEvent
from supervisor.pool.opening import PoolOpening, open_pool
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch

CHECKOUT = Path(__file__).parents[2]
LAUNCH = Launch(
    registry="tests.worker.plain_tools", roots=(str(CHECKOUT),), measure=os.environ.get("POLIER_MEASURE", "")
)
LIMITS = Limits(grace_seconds=0.3)
_ids = count(1)


class Site:
    """A workspace, a state directory, and everything that a pool told."""

    def __init__(
        self, root: Path, mode: Mode = Mode.WORKSPACE_WRITE, environ: dict[str, str] | None = None
    ) -> None:
        self.root = root
        self.workspace, self.state = root / "workspace", root / "state"
        self.output, self.tmp = self.state / "output", self.state / "tmp"
        for directory in (self.workspace, self.output, self.tmp):
            directory.mkdir(parents=True, exist_ok=True)
        self.mode = mode
        self.environ = (
            {"PATH": os.environ["PATH"], "HOME": str(root / "home")} if environ is None else environ
        )
        self.events: list[PoolEvent] = []
        self.said: list[str] = []
        self.news = trio.Event()

    @property
    def policy(self) -> SandboxPolicy:
        return default_policy(
            self.workspace, self.output, self.tmp, self.environ, self.state, SandboxChoices(mode=self.mode)
        )

    def tell(self, event: PoolEvent) -> None:
        self.events.append(event)
        self.news.set()
        self.news = trio.Event()

    def open_output(self, call_id: str) -> tuple[str, int]:
        name = f"{call_id}.txt"
        return name, os.open(self.output / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def pool(self, limits: Limits = LIMITS, launch: Launch = LAUNCH) -> PoolOpening:
        return open_pool(self.policy, limits, self.open_output, self.tell, environ=os.environ, launch=launch)

    async def until(self, true: Callable[[], bool], seconds: float = 10) -> None:
        with trio.fail_after(seconds):
            while not true():
                await self.news.wait()

    async def play(self, pool: Pool, command: str) -> ToolFinished:
        """Run one command and return its result."""
        results: list[ToolFinished] = []
        with trio.fail_after(20):
            await pool.run(call(command), results.append, self.said.append)
        (result,) = results
        return result


def call(command: str) -> ToolCall:
    return ToolCall(f"call-{next(_ids)}", "run_command", json.dumps({"command": command}))


def processes() -> tuple[int, int]:
    """(zygote, oldest worker) of this process's pool, by the pids that we see them under."""
    zygote, worker, *_ = family()
    return zygote, worker


def family() -> list[int]:
    """The zygote and all its workers, the oldest first."""
    (zygote,) = [pid for pid in machine.children(os.getpid()) if b"worker.zygote" in _command_line(pid)]
    return [zygote, *machine.children(zygote)]


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def carrying(mark: str) -> list[str]:
    """Live processes with this in their environment or among their arguments: "pid state command"."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                environ = (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            except PermissionError:
                environ = b""
            if mark.encode() in line + environ and state not in (b"Z", b"X"):
                found.append(f"{entry.name} {state.decode()} {line.decode(errors='replace')[:80]!r}")
    return found


async def all_gone(mark: str, seconds: float = 5) -> float:
    """Seconds until nothing carries the mark; fails with what is left."""
    begun = time.monotonic()
    while left := carrying(mark):
        assert time.monotonic() - begun < seconds, f"left after {seconds} s: {left}"
        await trio.sleep(0.002)
    return time.monotonic() - begun


async def some(mark: str, at_least: int, seconds: float = 10) -> None:
    """Wait until so many processes carry the mark."""
    with trio.fail_after(seconds):
        while len(carrying(mark)) < at_least:
            await trio.sleep(0.005)
