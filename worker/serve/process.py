"""The life of a worker process: what it makes of itself, the handshake, the loop, the end.

Blocking code on purpose: a worker that runs tools waits for one thing in each thread, so it needs no event
loop, and a process without one is ready sooner and smaller.
"""

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn, assert_never

from msgspec.structs import replace

from protocol.policy import Means
from protocol.wire import (
    HANDSHAKE_SECONDS,
    PROXY,
    VERSION_MAX,
    VERSION_MIN,
    Cancel,
    Dialled,
    DialRefused,
    FrameError,
    Hello,
    Nope,
    OutputOpened,
    OutputRefused,
    ProxyListens,
    RunTool,
    ToWorker,
    Welcome,
)
from worker.call import Desk
from worker.sandbox import prctl, tree, way_out
from worker.sandbox.confine import Confined, confine
from worker.sandbox.covers import Covers
from worker.sandbox.restore import Keeper
from worker.serve.calls import Calls, Registry
from worker.serve.channel import Channel, PeerGoneError

_END_SECONDS = 2.0
"""How long a worker that ends tries to end its commands; what is left then is for the zygote."""
_OOM_SCORE = 500
"""Workers and commands are given up before the user's other programs; of them the kernel takes whoever has
most.  A command can't be placed before its worker: when it starts, nothing below /proc can be written."""
_LOWEST_FREE = 3
"""Descriptors 0 to 2 are the standard streams; a stray print into one must never reach the wire."""

LEFT, BROKEN = 0, 1
"""Exit codes: the supervisor closed the wire; the wire or the sandbox failed."""


def nothing() -> None:
    """The hook of a worker that nobody measures."""


def away_from_streams(fd: int) -> int:
    """The same open file above the standard streams, closed on exec."""
    if fd >= _LOWEST_FREE:
        os.set_inheritable(fd, False)
        return fd
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_FREE)


def settle() -> None:
    """Make this process a worker: a session of its own, adopter of its commands' orphans."""
    with contextlib.suppress(PermissionError):  # leads a group already
        os.setsid()
    prctl.adopt_orphans()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    prctl.hide_memory()


def leave_streams() -> None:
    """Nothing to read, and what is printed goes where errors go.  Called inside of its own mounts."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)


def serve(
    wire: int,
    descriptors: int | None,
    run: Registry,
    before_leaving: Callable[[], None] = nothing,
    confined: Confined | None = None,
) -> NoReturn:
    """Serve until the supervisor is gone, end what was started, and exit.

    `wire`, `descriptors`: connected sockets of this process.  `before_leaving` is called last; it is for
    measuring.  `confined`: the walls that stand; None for a process that confines itself when it knows the
    policy, without namespaces.
    """

    def leave(code: int) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tree.end_children(_END_SECONDS)
        before_leaving()
        os._exit(code)

    def told(_number: int, _frame: FrameType | None) -> None:
        leave(LEFT)

    signal.signal(signal.SIGTERM, told)
    second = None if descriptors is None else socket.socket(fileno=descriptors)
    channel = Channel(socket.socket(fileno=wire), second)
    try:
        _serve(channel, run, confined)
    except PeerGoneError:
        leave(LEFT)
    except (FrameError, TimeoutError, OSError) as error:
        # To the zygote's stderr, whose end the supervisor reads when something dies.
        os.write(2, f"worker {os.getpid()}: {type(error).__name__}: {error}\n".encode(errors="replace"))
        leave(BROKEN)


def _serve(channel: Channel, run: Registry, confined: Confined | None) -> NoReturn:
    channel.send(Hello(VERSION_MIN, VERSION_MAX))
    match channel.receive(HANDSHAKE_SECONDS):
        case Welcome(policy=policy, limits=limits):
            pass
        case Nope(why=why):
            raise FrameError(f"the supervisor refuses: {why}")
        case other:
            raise FrameError(f"expected a welcome, got {type(other).__name__}")
    os.chdir(policy.workspace)
    if confined is None:
        confined = confine(policy, limits, Means.NONE)
    ready = confined.ready
    policy = replace(policy, environment=(*policy.environment, *confined.environment))
    door = way_out.listen() if way_out.has_own(ready.rung, policy.network) else None
    if door is not None:
        policy = replace(policy, environment=way_out.proxied(policy.environment))
    desk = Desk(policy, limits, Path(policy.workspace), ready.refuse_commands, confined.enter, ready.rung)
    desk.keeper = Keeper(policy, ready.rung)
    calls = Calls(channel, desk, run, Covers(policy).fallen)
    desk.tell_job_ended = calls.job_ended
    channel.send(ready)
    if door is not None:
        with door:
            channel.send_descriptor(PROXY, door.fileno())
        channel.send(ProxyListens())
    while True:
        _take(calls, channel.receive())


def _take(calls: Calls, message: ToWorker) -> None:
    match message:
        case RunTool():
            calls.start(message)
        case Cancel(call_id=call_id):
            calls.cancel(call_id)
        case OutputOpened():
            calls.output_opened(message)
        case OutputRefused():
            calls.output_refused(message)
        case Dialled():
            calls.dialled(message)
        case DialRefused():
            calls.dial_refused(message)
        case Welcome() | Nope():
            raise FrameError(f"{type(message).__name__} was not asked for")
        case _:
            assert_never(message)
