"""The pool: a worker that is ready, another one when it dies, and the calls that it runs.

It starts in the background, so that the first request to the model waits for nothing.  One worker runs all
calls of a session, since background jobs are its own.  A call with a policy of its own gets a worker of its
own, which ends with it.  Where commands start is the pool's: it goes from worker to worker.
"""

from collections import deque
from collections.abc import Callable, Mapping

import trio
from msgspec.structs import replace

from protocol.conversation import ToolCall
from protocol.display import Display
from protocol.policy import Limits, Rung, SandboxPolicy
from protocol.wire import JobEnded, Ready, Status, ToolFinished
from supervisor import machine
from supervisor.pool.channel import ChannelClosedError
from supervisor.pool.events import PoolEvent, WorkerDied, WorkerReady
from supervisor.pool.life import Life
from supervisor.pool.one_shot import OneShot, lone, place_in
from supervisor.pool.worker import OpenOutput, Running, Worker, not_run, refused
from supervisor.pool.zygote import Launch, Zygote

_DEATHS = 3
_WINDOW_SECONDS = 60.0
"""After so many deaths in so long a time calls are refused until the oldest is forgotten: what kills every
worker would do it again."""
_CANCEL_SECONDS = 2.0
"""Beyond the grace that a command gets: what a worker may take to say how a cancelled call ended."""


class Pool:
    """`keep` runs as a task for the pool's whole life.  The arguments are those of `open_pool`."""

    def __init__(
        self,
        policy: SandboxPolicy,
        limits: Limits,
        open_output: OpenOutput,
        tell: Callable[[PoolEvent], None],
        *,
        environ: Mapping[str, str],
        launch: Launch,
        unmet: Callable[[Ready], str],
    ) -> None:
        self._marker = machine.marker()
        self._policy = policy
        """Of the main worker, the next one where that is still another's."""
        self.cwd = policy.workspace
        """Where the next command starts."""
        self._limits = limits
        self._open_output = open_output
        self._tell = tell
        self._environ = environ
        self._launch = launch
        self._unmet = unmet
        self._below: tuple[Zygote, trio.Nursery] | None = None
        """The zygote that workers can be had from, and where their lives are played."""
        self._life: Life | None = None
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

    @property
    def refusal(self) -> str:
        """Why no call can run at present; empty where one can."""
        return self._refusal

    @property
    def jobs(self) -> int:
        """Background jobs that run."""
        return self._worker.jobs if self._worker is not None else 0

    def replace(self, policy: SandboxPolicy) -> bool:
        """From now on the main worker has this policy: at once, by another one, where no call and no job
        runs (True); else when the last of them has ended, and until then calls go to the old one (False)."""
        self._policy = policy
        return self._renew()

    def _renew(self) -> bool:
        """Let a main worker go whose policy is an old one, if nothing is lost by that."""
        life, worker = self._life, self._worker
        if life is None or life.policy == self._marked(self._policy):
            return True
        if worker is not None:
            return self._let_go(worker)
        life.let_go()
        return True

    def _let_go(self, worker: Worker) -> bool:
        """Have another one in its place, if nothing is lost by that."""
        if worker is not self._worker or self._life is None:
            return True
        if not worker.idle:
            return False
        self._no_longer(worker)
        self._life.let_go()
        return True

    def _marked(self, policy: SandboxPolicy) -> SandboxPolicy:
        """Commands carry our marker, so that a later run finds what outlived this one."""
        return replace(policy, environment=(*policy.environment, (machine.MARKER, self._marker)))

    async def run(
        self,
        call: ToolCall,
        deliver: Callable[[ToolFinished], None],
        on_output: Callable[[str], None],
        *,
        policy: SandboxPolicy | None = None,
        approved: bool = False,
    ) -> None:
        """Run one call: exactly one `deliver`, also when cancelled, then with what the tool had by then.

        With a `policy` a worker of its own serves the call, and is gone with all that it started before the
        result is delivered.  `approved`: it may run though nothing confines it.  `on_output` gets text as a
        command prints it.  A tool that fails, a worker that dies or none at all are results, not exceptions.
        """
        running = Running(call, on_output, approved=approved, alone=policy is not None)
        try:
            if policy is None:
                await self._in_main(running)
            else:
                await self._alone(running, self._marked(policy))
        finally:
            finished = running.finished or not_run(call)
            if policy is None or not policy.tries:  # a view is gone with its call
                self.cwd = finished.cwd or self.cwd
            deliver(finished)

    async def _in_main(self, running: Running) -> None:
        worker: Worker | None = None
        try:
            while running.finished is None:
                worker = await self._hand_over(running)
                await running.done.wait()
                if running.finished is None and worker is not None:
                    worker.forget(running)
                    busy = not self._let_go(worker)
                    running.again(alone=busy)
                    worker = None
                    if busy:
                        await self._alone(running, self._marked(self._policy))
        except trio.Cancelled:
            if worker is not None:
                await self._stop(worker, running)
            raise
        finally:
            if worker is not None:
                worker.forget(running)
                self._renew()

    async def _alone(self, running: Running, policy: SandboxPolicy) -> None:
        """A worker for this call, from its birth to its burial."""
        await self._settle()
        if self._below is None or self._worker is None:
            running.finish(refused(running.call, self._refusal))
            return
        one = OneShot(policy, self._unmet)
        async with lone(one, Life(policy, self._limits, self._open_output, one), *self._below):
            try:
                if one.hand_over(running, place_in(policy, self._policy.workspace, self.cwd)):
                    await running.done.wait()
                    if running.finished is None:
                        why = "a file that the sandbox closes was being replaced; try it again"
                        running.finish(refused(running.call, why))
            except trio.Cancelled:
                if one.has_call and one.worker is not None:
                    await self._stop(one.worker, running)
                raise

    async def can_have(self, policy: SandboxPolicy) -> bool:
        """Whether a worker with this policy can be had: one is born, and let go."""
        await self._settle()
        if self._below is None or self._worker is None:
            return False
        one = OneShot(policy, self._unmet)
        async with lone(one, Life(policy, self._limits, self._open_output, one), *self._below):
            return one.worker is not None

    async def _hand_over(self, running: Running) -> Worker | None:
        """The worker that has the call now; None where the call is finished already."""
        call = running.call
        while True:
            await self._settle()
            worker = self._worker
            why = self._unmet(self._ready) if self._ready else self._refusal
            if worker is None or why:
                running.finish(refused(call, why))
                return None
            try:
                worker.start(running, self.cwd)
            except ChannelClosedError as error:
                # The call never reached it, so the next one may have it.
                self._retire(worker, str(error))
            except ValueError as error:
                running.finish(refused(call, f"the call can't be sent to a worker: {error}"))
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
                        self.lost(f"No worker process can be started: {error}")
                        await self._breathe()
                        continue
                    nursery.start_soon(zygote.serve)
                    self._below = zygote, nursery
                    try:
                        while not zygote.gone.is_set():
                            policy = self._marked(self._policy)
                            self._life = Life(policy, self._limits, self._open_output, self)
                            await self._life.play(zygote, self._job_ended)
                            await self._breathe()
                    finally:
                        self._below = self._life = None
                        await zygote.end()
                    nursery.cancel_scope.cancel()
        finally:
            # Whoever still asks is answered.
            self._refusal = "No worker process can be had: the session is over"
            self._settled.set()

    def begun(self, worker: Worker, ready: Ready) -> None:
        """As the main worker's watcher."""
        self._worker, self._ready = worker, ready
        self._settled.set()
        self._tell(WorkerReady(ready))

    def over(self, worker: Worker) -> None:
        """As the main worker's watcher."""
        self._no_longer(worker)

    def _job_ended(self, ended: JobEnded) -> None:
        self._tell(ended)
        self._renew()

    def lost(self, how: str) -> None:
        """As the main worker's watcher: say so; refuse calls for a while where it has happened too often."""
        self.cwd = self._policy.workspace
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
