"""The life of one worker, from its birth to its burial: the main worker's and a one-shot worker's alike.

Not here: which worker gets a call, and whether there will be another one (workers.py).
"""

from collections.abc import Callable
from typing import Protocol

import trio

from protocol.control import Birth
from protocol.policy import Limits, SandboxPolicy
from protocol.wire import JobEnded, Ready
from supervisor.pool.worker import OpenOutput, Worker
from supervisor.pool.zygote import NoWorkerError, Zygote, ended

_LEAVE_SECONDS = 1.0
"""How long a worker whose wire was closed may take to leave by itself."""
_REPORT_SECONDS = 3.0
"""How long the zygote may take to end what a dead worker had started, and to say how that one died."""


class Watcher(Protocol):
    """Who is told of a worker's steps."""

    def begun(self, worker: Worker, ready: Ready) -> None:
        """It can take calls."""
        ...

    def over(self, worker: Worker) -> None:
        """It takes no more calls.  Told before it is seen off, also of one that never began."""
        ...

    def lost(self, how: str) -> None:
        """None could be had, or it died, and all that it had started is ended.  A sentence.  Told before its
        calls are finished; never of one that was let go."""
        ...


class Life:
    """`play` runs as a task for the worker's whole life."""

    def __init__(
        self, policy: SandboxPolicy, limits: Limits, open_output: OpenOutput, watcher: Watcher
    ) -> None:
        self.policy = policy
        self._limits = limits
        self._open_output = open_output
        self._watcher = watcher
        self._needed = trio.CancelScope()
        self.done = trio.Event()
        """Set when it is buried."""

    def let_go(self) -> None:
        """It is not needed any more: it ends, with all that it started."""
        self._needed.cancel()

    async def play(self, zygote: Zygote, job_ended: Callable[[JobEnded], None]) -> None:
        """From birth to burial."""
        try:
            await self._play(zygote, job_ended)
        finally:
            self.done.set()

    async def _play(self, zygote: Zygote, job_ended: Callable[[JobEnded], None]) -> None:
        try:
            born = await zygote.fork(Birth(self.policy, self._limits))
        except NoWorkerError as error:
            self._watcher.lost(str(error))
            return
        worker = Worker(born, self._open_output, job_ended, cwd=self.policy.workspace)
        tell: Callable[[str], None] = nobody  # the session is over, or nobody needs it: that is no news
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_with, zygote, worker)
            try:
                with self._needed:
                    self._watcher.begun(worker, await worker.greet(self.policy, self._limits))
                    await worker.live()
                if not self._needed.cancelled_caught:
                    tell = self._watcher.lost
            except NoWorkerError as error:
                worker.kill(str(error))
                tell = self._watcher.lost
            finally:
                self._watcher.over(worker)
                worker.bury(await _seen_off(zygote, worker), tell)
            nursery.cancel_scope.cancel()


async def _end_with(zygote: Zygote, worker: Worker) -> None:
    """A worker whose zygote is gone gets a signal, but a wedged one does not hear it."""
    await zygote.gone.wait()
    worker.kill("the process that forks workers is gone")


async def _seen_off(zygote: Zygote, worker: Worker) -> str:
    """See a worker off, and what it had started; how it ended.  Never cancelled, always bounded."""
    with trio.CancelScope(shield=True):
        worker.dismiss()
        code = await zygote.exit_code(worker.pid, _LEAVE_SECONDS)
        if code is None:
            worker.kill("")
            code = await zygote.exit_code(worker.pid, _REPORT_SECONDS)
        if zygote.gone.is_set():
            zygote.sweep(worker.pid)
    how = ended(code)
    return f"{how} ({words})" if code is not None and code > 0 and (words := zygote.last_words()) else how


def nobody(words: str) -> None:
    """Nobody is told."""
