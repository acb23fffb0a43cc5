"""The worker of one call: it is born for it and ends with it, and so does all that the call started."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from protocol.policy import Means, Rung, SandboxPolicy
from protocol.wire import JobEnded, Ready
from supervisor.pool.channel import ChannelClosedError
from supervisor.pool.life import Life
from supervisor.pool.worker import Running, Worker, refused
from supervisor.pool.zygote import Zygote


def enough(ready: Ready) -> str:
    """Whatever is enforced will do."""
    return ""


class OneShot:
    """The worker of one call, as whoever waits for it sees it.

    `unmet`: why a worker that enforces so little gets no call, or nothing.  That the main one has more is no
    promise: what it needs of the machine may be used up.
    """

    def __init__(self, policy: SandboxPolicy, unmet: Callable[[Ready], str] = enough) -> None:
        self._policy = policy
        self._unmet = unmet
        self.worker: Worker | None = None
        self.has_call = False
        self.settled = trio.Event()
        """It has begun, or never will."""
        self._why = "its worker was ended before it began"

    async def play(self, life: Life, zygote: Zygote) -> None:
        try:
            await life.play(zygote, _no_job)
        finally:
            self.settled.set()

    def begun(self, worker: Worker, ready: Ready) -> None:
        if (self._policy.needs_mounts and ready.rung is not Rung.FULL) or (
            self._policy.layer and ready.means is not Means.NATIVE
        ):
            self._why = "its worker would have changed the workspace itself"
        elif why := self._unmet(ready):
            self._why = why
        else:
            self.worker = worker
        self.settled.set()

    def over(self, worker: Worker) -> None:
        """Its call is finished when it is buried."""

    def lost(self, how: str) -> None:
        self._why = how

    def hand_over(self, running: Running, cwd: str) -> bool:
        """Whether the call is with the worker; else it is finished."""
        try:
            if self.worker is not None:
                self.worker.start(running, cwd)
                self.has_call = True
        except (ChannelClosedError, ValueError) as error:
            self._why = f"the call can't be sent to a worker: {error}"
        if not self.has_call:
            running.finish(refused(running.call, self._why))
        return self.has_call


@asynccontextmanager
async def lone(one: OneShot, life: Life, zygote: Zygote, lives: trio.Nursery) -> AsyncIterator[None]:
    """From birth to burial; the block begins when the worker has begun, or never will."""
    lives.start_soon(one.play, life, zygote)
    try:
        await one.settled.wait()
        yield
    finally:
        life.let_go()
        with trio.CancelScope(shield=True):  # bounded, as its burial is
            await life.done.wait()


def place_in(view: SandboxPolicy, workspace: str, cwd: str) -> str:
    """Where a command starts that has this view of the workspace."""
    if cwd != workspace and not cwd.startswith(f"{workspace}/"):
        return cwd
    return view.workspace + cwd.removeprefix(workspace)


def _no_job(ended: JobEnded) -> None:
    """Such a worker leaves no jobs."""
