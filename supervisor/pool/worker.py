"""One worker as the supervisor sees it: the handshake, its calls, its end.

Nothing here starts a process or decides whether there will be another one; that is workers.py.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import TypeVar, assert_never

import trio

from protocol import wire
from protocol.conversation import ToolCall
from protocol.display import Display
from protocol.policy import Limits, SandboxPolicy
from protocol.wire import Status, ToolFinished, ToSupervisor
from supervisor.exits import StopError
from supervisor.pool.bounds import BLOCK, bounded, bounded_job, bounded_ready
from supervisor.pool.channel import Channel, ChannelBrokenError, ChannelClosedError
from supervisor.pool.ways_out import WaysOut, with_denials
from supervisor.pool.zygote import Born, NoWorkerError

M = TypeVar("M", wire.Hello, wire.Ready)

OpenOutput = Callable[[str], tuple[str, int]]
"""Call id -> the name of a new file in the output directory, and a descriptor to write to it.  May raise
OSError or StopError: then the command goes on without a file."""

_FILES_PER_CALL = 8
"""Output files that one call may ask for: a command and what it leaves running need two."""

_DENIALS = 16
"""Of one call, by the proxy: one that tries every host is not told of each."""

_BURST = 20.0
_PER_SECOND = 20.0
"""Messages with what a command prints; a worker sends ten a second, and one more at the end."""

_JOBS = 10_000
"""Ends of jobs that one worker may tell of: each is a line for the user and for the model."""

EFFECT_UNKNOWN = "The effect of this call is unknown: check before you repeat it."


class Running:
    """A call that a worker has.  `done` is set once `finished` is there, or the worker has given it back: it
    was not begun."""

    def __init__(
        self,
        call: ToolCall,
        on_output: Callable[[str], None],
        *,
        approved: bool = False,
        alone: bool = False,
    ) -> None:
        self.call = call
        self.approved = approved
        self.alone = alone
        """Its worker serves this call only."""
        self.on_output = on_output
        self.done = trio.Event()
        self.finished: ToolFinished | None = None

        self._denials: dict[wire.Denial, None] = {}
        self._printed = 0.0
        self._room = _BURST

    def printed(self, text: str) -> None:
        """For the screen.  What comes faster than a well worker sends it is left out, so that a flood waits
        nowhere for a slow reader."""
        now = trio.current_time()
        self._room = min(_BURST, self._room + (now - self._printed) * _PER_SECOND)
        self._printed = now
        if self._room >= 1:
            self._room -= 1
            self.on_output(text)

    def denied(self, denial: wire.Denial) -> None:
        """The proxy refused this while the call ran.  Other tools than a command have no proxy."""
        if self.call.name == "run_command" and len(self._denials) < _DENIALS:
            self._denials[denial] = None

    def again(self, *, alone: bool) -> None:
        """Another worker is to have it."""
        self.done = trio.Event()
        self.alone = alone

    def finish(self, finished: ToolFinished) -> None:
        if self.finished is None:
            self.finished = with_denials(finished, tuple(self._denials))
            self.done.set()


class Worker:
    """Takes over what `born` holds.  `live` runs as a task until the worker is gone."""

    def __init__(
        self,
        born: Born,
        open_output: OpenOutput,
        job_ended: Callable[[wire.JobEnded], None],
        *,
        cwd: str = "",
    ) -> None:
        self.cwd = cwd
        """Where its next command starts, as far as it has told or was told."""
        self.jobs = 0
        """Background jobs that it runs."""
        self.pid = born.pid
        self._pidfd = born.pidfd
        self._channel = Channel(born.wire)
        self._descriptors = born.descriptors
        self._open_output = open_output
        self._job_ended = job_ended
        self._running: dict[str, Running] = {}
        self._files: dict[str, int] = {}
        """Call id -> output files so far; every call this worker ever had, as jobs outlive their calls."""
        self._early: list[ToSupervisor] = []
        """What came together with its Ready."""
        self._ways_out: WaysOut | None = None
        self._why = ""
        self._result_cap = Limits().result_cap_bytes
        self._job_ends = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is lost when it ends now."""
        return not self.jobs and not self._running

    async def greet(self, policy: SandboxPolicy, limits: Limits) -> wire.Ready:
        """The handshake, with a deadline.  Raises NoWorkerError."""
        self._result_cap = limits.result_cap_bytes
        try:
            self._ways_out = WaysOut(self._channel, self._descriptors, policy, self._denied)
            with trio.fail_after(wire.HANDSHAKE_SECONDS):
                hello = await self._expect(wire.Hello)
                version = wire.agree(hello)
                if version is None:
                    self._channel.post(wire.Nope(f"it speaks versions {hello.min} to {hello.max}"))
                    raise NoWorkerError(
                        f"a worker speaks versions {hello.min} to {hello.max} of the protocol, we speak "
                        f"{wire.VERSION_MIN} to {wire.VERSION_MAX}: two installations are mixed"
                    )
                self._channel.post(wire.Welcome(version, policy, limits))
                return bounded_ready(await self._expect(wire.Ready))
        except trio.TooSlowError:
            raise NoWorkerError(f"a worker was not ready within {wire.HANDSHAKE_SECONDS:.0f} s") from None
        except (ChannelClosedError, ValueError) as error:
            raise NoWorkerError(f"a worker failed before it was ready: {error}") from error

    async def _expect(self, kind: type[M]) -> M:
        said, *self._early = await self._channel.receive()
        # It waits for our answer to its Hello, but not after its Ready.
        if isinstance(said, kind) and not (self._early and kind is wire.Hello):
            return said
        raise ChannelBrokenError(f"it said {type(said).__name__} instead of {kind.__name__}")

    async def live(self) -> None:
        """Serve the wire until the worker is gone, by its wire's end or its process's, whichever is first."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._channel.flush)
            if self._ways_out is not None:
                self._ways_out.begin(nursery)
            nursery.start_soon(self._watch, nursery.cancel_scope)
            try:
                for message in self._early:
                    self._take(message)
                await self._channel.read(self._take)
            except ChannelBrokenError as error:
                self.kill(str(error))
            except ChannelClosedError:
                self.kill("")
            nursery.cancel_scope.cancel()

    async def _watch(self, scope: trio.CancelScope) -> None:
        await trio.lowlevel.wait_readable(self._pidfd)
        # What it had said before it died is still in the socket, up to the end of it; only a descriptor
        # that was copied could keep that end away, so reading goes on for a moment only.
        scope.deadline = trio.current_time() + 1.0

    def _take(self, message: ToSupervisor) -> None:
        match message:
            case ToolFinished(call_id=call_id):
                if running := self._running.get(call_id):
                    finished = bounded(message, self._result_cap)
                    self.cwd, self.jobs = finished.cwd or self.cwd, finished.jobs
                    running.finish(finished)
            case wire.ToolOutput(call_id=call_id, text=text):
                if running := self._running.get(call_id):
                    running.printed(text[:BLOCK])
            case wire.OpenOutput(call_id=call_id):
                self._give_output(call_id)
            case wire.JobEnded():
                self._job_ends += 1
                if self._job_ends > _JOBS:
                    raise ChannelBrokenError(f"it told of the end of more than {_JOBS:,} jobs")
                job = bounded_job(message)
                self.jobs = job.jobs
                self._job_ended(job)
            case wire.Hello() | wire.Ready():
                raise ChannelBrokenError(f"it said {type(message).__name__} twice")
            case wire.Dial(call_id=call_id):
                self._out().dial(message, known=call_id in self._running)
            case wire.Uncovered(call_id=call_id):
                if running := self._running.get(call_id):
                    running.done.set()
            case wire.ProxyListens():
                self._out().listens()
            case _:
                assert_never(message)

    def _out(self) -> WaysOut:
        if self._ways_out is None:
            raise ChannelBrokenError("it wants to go out before it is ready")
        return self._ways_out

    def _denied(self, denial: wire.Denial) -> None:
        """Its proxy has refused something: to what runs now, as far as that can be told apart."""
        for running in self._running.values():
            running.denied(denial)

    def _give_output(self, call_id: str) -> None:
        given = self._files.get(call_id)
        if given is None or given >= _FILES_PER_CALL:
            self._channel.post(wire.OutputRefused(call_id, "this call can have no more files"))
            return
        try:
            name, fd = self._open_output(call_id)
        except (OSError, StopError) as error:
            self._channel.post(wire.OutputRefused(call_id, str(error)))
            return
        try:
            # Before the message that announces it, so that it is there when the message is read.
            socket.send_fds(self._descriptors, [call_id.encode()], [fd])
        except OSError as error:
            self._channel.post(wire.OutputRefused(call_id, str(error)))
            return
        finally:
            os.close(fd)
        self._files[call_id] = given + 1
        self._channel.post(wire.OutputOpened(call_id, name))

    def start(self, running: Running, cwd: str = "") -> None:
        """Hand a call over.  `cwd`: where commands start; empty where that is the worker's own affair.
        Raises ChannelClosedError, FrameError, or ValueError for an id that runs."""
        call = running.call
        if call.id in self._running:
            raise ValueError(f"a call with the id {call.id!r} is running")
        moved = cwd if cwd != self.cwd else ""
        self._channel.post(
            wire.RunTool(call.id, call.name, call.arguments, running.approved, moved, running.alone)
        )
        self.cwd = cwd or self.cwd
        self._running[call.id] = running
        self._files.setdefault(call.id, 0)

    def forget(self, running: Running) -> None:
        self._running.pop(running.call.id, None)
        if self._ways_out is not None:
            self._ways_out.forget(running.call.id)

    def cancel(self, running: Running) -> None:
        with contextlib.suppress(ChannelClosedError):
            self._channel.post(wire.Cancel(running.call.id))

    def kill(self, why: str) -> None:
        """End it now.  `why` is what its other calls are told."""
        self._why = self._why or why
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def dismiss(self) -> None:
        """Close its wire: a worker that is well leaves by itself, with all that it started."""
        self._channel.shut()

    def bury(self, how: str, tell: Callable[[str], None]) -> None:
        """Close what belonged to it, tell what happened (a sentence), and then finish its calls: whoever
        waits for one knows by then."""
        self._channel.close()
        self._descriptors.close()
        os.close(self._pidfd)
        words = f"The worker process {how}" + (f": {self._why}" if self._why else "")
        tell(words)
        for running in list(self._running.values()):
            running.finish(died(running.call, words))


def died(call: ToolCall, words: str) -> ToolFinished:
    return ToolFinished(call.id, Status.DIED, f"{words}. {EFFECT_UNKNOWN}", Display(words))


def refused(call: ToolCall, why: str) -> ToolFinished:
    return ToolFinished(call.id, Status.REFUSED, f"Not run: {why}", Display(why.splitlines()[0]))


def not_run(call: ToolCall) -> ToolFinished:
    words = "Cancelled before it began."
    return ToolFinished(call.id, Status.CANCELLED, words, Display(words))
