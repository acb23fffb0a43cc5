"""The pool: a worker that is ready, another one when it dies, and the calls that it runs.

It starts in the background, so that the first request to the model waits for nothing.  One worker runs all
calls of a session: `cd` and background jobs are its properties.
"""

from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType

import trio
from msgspec.structs import replace

from protocol.control import Birth
from protocol.conversation import ToolCall
from protocol.display import Display
from protocol.policy import Limits, Rung, SandboxPolicy
from protocol.wire import Ready, Status, ToolFinished
from supervisor import machine
from supervisor.pool.channel import ChannelClosedError
from supervisor.pool.events import PoolEvent, WorkerDied, WorkerReady
from supervisor.pool.worker import OpenOutput, Running, Worker
from supervisor.pool.zygote import Launch, NoWorkerError, Zygote, ended

_DEATHS = 3
_WINDOW_SECONDS = 60.0
"""After so many deaths in so long a time calls are refused until the oldest is forgotten: what kills every
worker would do it again."""
_CANCEL_SECONDS = 2.0
"""Beyond the grace that a command gets: what a worker may take to say how a cancelled call ended."""
_LEAVE_SECONDS = 1.0
"""How long a worker whose wire was closed may take to leave by itself."""
_REPORT_SECONDS = 3.0
"""How long the zygote may take to end what a dead worker had started, and to say how that one died."""


def open_pool(
    policy: SandboxPolicy,
    limits: Limits,
    open_output: OpenOutput,
    tell: Callable[[PoolEvent], None],
    *,
    environ: Mapping[str, str] | None = None,
    launch: Launch | None = None,
) -> "PoolOpening":
    """`async with open_pool(...) as pool`, on the main thread; at the end of the block nothing of it runs.

    `open_output(call_id)` gives a new file in the output directory: (name, descriptor), the descriptor is
    closed by the pool; OSError or StopError where there is none.  `tell` and `open_output` must not block.
    `environ`: where PATH for starting workers is taken from; nothing else of it reaches them.
    """
    pool = Pool(
        policy,
        limits,
        open_output,
        tell,
        environ=environ or {},
        launch=launch or Launch.told_by(environ or {}),
    )
    return PoolOpening(pool)


class Pool:
    """`keep` runs as a task for the pool's whole life."""

    def __init__(
        self,
        policy: SandboxPolicy,
        limits: Limits,
        open_output: OpenOutput,
        tell: Callable[[PoolEvent], None],
        *,
        environ: Mapping[str, str],
        launch: Launch,
    ) -> None:
        self._marker = machine.marker()
        # Commands carry it, so that a later run finds what outlived this one.
        self._policy = replace(policy, environment=(*policy.environment, (machine.MARKER, self._marker)))
        self._limits = limits
        self._open_output = open_output
        self._tell = tell
        self._environ = environ
        self._launch = launch
        self._worker: Worker | None = None
        self._ready: Ready | None = None
        self._refusal = ""
        self._settled = trio.Event()
        """A worker is ready, or calls are refused."""
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._again_at = 0.0

    async def ready(self) -> Ready:
        """What the current worker enforces, once there is one.  Where none can be had: why commands, and all
        other calls, are refused."""
        await self._settle()
        return self._ready or Ready(Rung.OFF, refuse_commands=self._refusal)

    async def run(
        self, call: ToolCall, deliver: Callable[[ToolFinished], None], on_output: Callable[[str], None]
    ) -> None:
        """Run one call: exactly one `deliver`, also when cancelled, then with what the tool had by then.

        `on_output` gets text as a command prints it.  A tool that fails, a worker that dies or none at all
        are results, not exceptions.
        """
        running = Running(call, on_output)
        worker: Worker | None = None
        try:
            worker = await self._hand_over(running)
            await running.done.wait()
        except trio.Cancelled:
            if worker is not None:
                await self._stop(worker, running)
            raise
        finally:
            if worker is not None:
                worker.forget(running)
            deliver(running.finished or _not_run(call))

    async def _hand_over(self, running: Running) -> Worker | None:
        """The worker that has the call now; None where the call is finished already."""
        call = running.call
        while True:
            await self._settle()
            worker = self._worker
            if worker is None:
                running.finish(_refused(call, self._refusal))
                return None
            try:
                worker.start(running)
            except ChannelClosedError as error:
                # The call never reached it, so the next one may have it.
                self._retire(worker, str(error))
            except ValueError as error:
                running.finish(_refused(call, f"the call can't be sent to a worker: {error}"))
                return None
            else:
                return worker

    def _retire(self, worker: Worker, why: str) -> None:
        """Kill it, and give no more calls to it."""
        worker.kill(why)
        self._no_longer(worker)

    def _no_longer(self, worker: Worker) -> None:
        if self._worker is worker:
            self._worker = self._ready = None
            self._settled = trio.Event()

    async def _stop(self, worker: Worker, running: Running) -> None:
        """Ask for the call's end and wait for what it had; bounded, so shielded."""
        worker.cancel(running)
        seconds = self._limits.grace_seconds + _CANCEL_SECONDS
        with trio.move_on_after(seconds, shield=True):
            await running.done.wait()
        if running.finished is None:
            why = f"a call did not stop within {seconds:.0f} s of being cancelled"
            words = f"Cancelled: {why}, so its worker process was killed. Its effect is unknown."
            running.finish(
                ToolFinished(running.call.id, Status.CANCELLED, words, Display("cancelled, killed"))
            )
            self._retire(worker, why)

    async def keep(self) -> None:
        """Have a zygote and a worker, or say why there is none, until cancelled."""
        try:
            while True:
                async with trio.open_nursery() as nursery:
                    try:
                        zygote = Zygote.start(self._launch, self._environ, self._marker)
                    except OSError as error:
                        self._lost(f"No worker process can be started: {error}")
                        await self._breathe()
                        continue
                    nursery.start_soon(zygote.serve)
                    try:
                        while not zygote.gone.is_set():
                            await self._life(zygote)
                            await self._breathe()
                    finally:
                        await zygote.end()
                    nursery.cancel_scope.cancel()
        finally:
            # Whoever still asks is answered.
            self._refusal = "No worker process can be had: the session is over"
            self._settled.set()

    async def _life(self, zygote: Zygote) -> None:
        """From a worker's birth to its burial."""
        try:
            born = await zygote.fork(Birth(self._policy, self._limits))
        except NoWorkerError as error:
            self._lost(str(error))
            return
        worker = Worker(born, self._open_output, self._tell)
        tell: Callable[[str], None] = _nobody  # the session is over: that is no news
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_with, zygote, worker)
            try:
                ready = await worker.greet(self._policy, self._limits)
                self._worker, self._ready = worker, ready
                self._settled.set()
                self._tell(WorkerReady(ready))
                await worker.live()
                tell = self._lost
            except NoWorkerError as error:
                worker.kill(str(error))
                tell = self._lost
            finally:
                self._no_longer(worker)
                worker.bury(await self._ended(zygote, worker), tell)
            nursery.cancel_scope.cancel()

    async def _end_with(self, zygote: Zygote, worker: Worker) -> None:
        """A worker whose zygote is gone gets a signal, but a wedged one does not hear it."""
        await zygote.gone.wait()
        worker.kill("the process that forks workers is gone")

    async def _ended(self, zygote: Zygote, worker: Worker) -> str:
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

    def _lost(self, how: str) -> None:
        """Say so; refuse calls for a while where it has happened too often."""
        now = trio.current_time()
        self._deaths.append(now)
        self._again_at = self._deaths[0] + _WINDOW_SECONDS if len(self._deaths) == _DEATHS else now
        if self._again_at > now:
            how = f"{how} ({_DEATHS} times within {_WINDOW_SECONDS:.0f} s: calls are refused for a while)"
            self._refusal = f"No worker process can be had: {how}"
            self._settled.set()
        self._tell(WorkerDied(how, will_restart=not self._refusal))

    async def _breathe(self) -> None:
        """Wait out a refusal."""
        await trio.sleep_until(self._again_at)
        if self._refusal:
            self._refusal = ""
            self._settled = trio.Event()

    async def _settle(self) -> None:
        """Until there is a worker, or a reason why there is none."""
        while self._worker is None and not self._refusal:
            await self._settled.wait()


class PoolOpening:
    """What `open_pool` returns.  A class, since a generator would wrap the block's exceptions in a group."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._nursery = trio.open_nursery()

    async def __aenter__(self) -> Pool:
        machine.adopt_orphans()
        nursery = await self._nursery.__aenter__()
        self._cancel = nursery.cancel_scope.cancel
        nursery.start_soon(self._pool.keep)
        return self._pool

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel()
        await self._nursery.__aexit__(None, None, None)


def _nobody(words: str) -> None:
    """Nobody is told."""


def _refused(call: ToolCall, why: str) -> ToolFinished:
    return ToolFinished(call.id, Status.REFUSED, f"Not run: {why}", Display(why.splitlines()[0]))


def _not_run(call: ToolCall) -> ToolFinished:
    words = "Cancelled before it began."
    return ToolFinished(call.id, Status.CANCELLED, words, Display(words))
