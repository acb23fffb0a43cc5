"""The zygote as the supervisor sees it: start it, ask it for workers, learn of their ends, survive its own.

The zygote's side is worker/zygote.py; the two share the messages in protocol/wire.py and nothing else.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import BinaryIO

import trio
from msgspec import Struct

from protocol.control import (
    Birth,
    Exited,
    Fork,
    Forked,
    NotForked,
    ZygoteReady,
    decode_from_zygote,
    encode_birth,
    encode_control,
)
from protocol.wire import FrameError
from supervisor import machine
from supervisor.policy.planted import plant, uproot
from supervisor.pool import channel

START_SECONDS = 10.0
"""Until a zygote has imported everything; about 0.1 s are needed."""
_FORK_SECONDS = 15.0
"""Some ten milliseconds are needed; each step of a birth has a bound of its own."""
_PLACE_SECONDS = 0.05
"""More of it for each place that is closed; bwrap takes ever longer for the next one."""
_END_SECONDS = 3.0
"""How long a zygote may take to end everything below it and itself."""
_REPORT_BYTES = 4096
_WORDS_BYTES = 2000
"""How much of what it printed is read when it has died."""

_BOOT = "import sys; sys.path += sys.argv[6:]; from worker.zygote import main; main(sys.argv[2:6])"
_NEEDED = ("worker", "protocol", "msgspec", "pathspec")
"""What workers import from outside the standard library; -S hides all of it."""


class Launch(Struct, frozen=True):
    """How zygotes are started.  Only tests differ from the defaults."""

    registry: str = "worker.tools.registry"
    """The module whose `run` executes calls."""
    roots: tuple[str, ...] = ()
    """Directories to import from, beside those of the packages that workers need."""
    measure: str = ""
    """The configuration file of a coverage measure; nothing is measured without."""
    without: tuple[str, ...] = ()
    """Means of the sandbox that are not tried: `native`, `processes` (a PID namespace), `bubblewrap`,
    `landlock`."""

    @classmethod
    def told_by(cls, environ: Mapping[str, str]) -> "Launch":
        """The defaults; $POLIER_MEASURE names the configuration of a measure, so that a test of the whole
        program counts what ran in its workers."""
        return cls(measure=environ.get("POLIER_MEASURE", ""))

    def words(self) -> list[str]:
        return [self.registry, self.measure, ",".join(self.without), *self.roots, *_roots()]


class NoWorkerError(Exception):
    """No worker could be had.  The message says why."""


class Born(Struct, frozen=True):
    """A new worker.  `pidfd` belongs to whoever gets this."""

    pid: int
    pidfd: int
    wire: socket.socket
    descriptors: socket.socket


class Zygote:
    """`start` returns at once; `serve` runs as a task until the zygote is gone, then `gone` is set."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, marker: str, words: int
    ) -> None:
        self._process = process
        self._control = control
        self._marker = marker
        self._words = words
        self._pidfd = os.pidfd_open(process.pid)
        self._serving = trio.CancelScope(shield=True)
        self._known = frozenset(machine.children(os.getpid()))
        self._ids = count(1)
        self._answers: dict[int, tuple[Forked | NotForked, list[int]]] = {}
        self._exits: dict[int, int] = {}
        self._news = trio.Condition()
        self._ready = False
        self._planted: dict[str, None] = {}
        self.gone = trio.Event()

    @classmethod
    def start(cls, launch: Launch, environ: Mapping[str, str], marker: str) -> "Zygote":
        """Must be called on the main thread: the zygote ends with the thread that started it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        mark = f"{machine.MARKER}={marker}"
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            words = os.memfd_create("polier-zygote", os.MFD_CLOEXEC)
            undo.callback(os.close, words)
            process = subprocess.Popen(
                [*_interpreter(), "-c", _BOOT, mark, str(theirs.fileno()), *launch.words()],
                env={
                    machine.MARKER: marker,
                    # An interpreter in an unusual place may need the latter to start at all.
                    **{name: environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in environ},
                },
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            undo.pop_all()
        return cls(process, ours, marker, words)

    async def serve(self) -> None:
        """Until the zygote is gone, or `end` has seen it off: its last reports are wanted too."""
        with self._serving:
            while await self._receive():
                pass
            self.gone.set()
            async with self._news:
                self._news.notify_all()

    async def _receive(self) -> bool:
        """Take one message; False at the end of them."""
        await trio.lowlevel.wait_readable(self._control)
        try:
            payload, fds, _, _ = socket.recv_fds(self._control, _REPORT_BYTES, 1)
            message = decode_from_zygote(payload) if payload else None
        except (OSError, FrameError):
            return False
        match message:
            case None:
                return False
            case ZygoteReady():
                self._ready = True
            case Forked(id=number) | NotForked(id=number):
                self._answers[number] = (message, fds)
            case Exited(pid=pid, code=code):
                self._exits[pid] = code
        async with self._news:
            self._news.notify_all()
        return True

    async def fork(self, birth: Birth) -> Born:
        """A new worker that is confined, not yet greeted.  Raises NoWorkerError."""
        await self._until(lambda: self._ready, START_SECONDS, "it did not start")
        try:
            # They stay until the end: another worker may be protected by the same ones.
            self._planted |= dict.fromkeys(plant(birth.policy))
        except OSError as error:
            raise NoWorkerError(f"the repository can't be written: {error}") from error
        wire, their_wire = channel.pair(socket.SOCK_STREAM)
        descriptors, their_descriptors = channel.pair(socket.SOCK_SEQPACKET)
        number = next(self._ids)
        try:
            # A copy of their ends that stayed here would hide the worker's end from us.
            with their_wire, their_descriptors, _content(birth) as content:
                fds = (their_wire.fileno(), their_descriptors.fileno(), content.fileno())
                socket.send_fds(self._control, [encode_control(Fork(number))], fds)
            places = len(birth.policy.hidden) + len(birth.policy.protected)
            seconds = _FORK_SECONDS + _PLACE_SECONDS * places
            await self._until(lambda: number in self._answers, seconds, "it did not answer")
            answer, received = self._answers.pop(number)
            if isinstance(answer, NotForked):
                raise NoWorkerError(f"no worker process could be forked: {answer.why}")
            if not received:  # the kernel drops what we have no room for
                raise NoWorkerError("a worker's descriptor did not arrive: too many files are open here")
        except BaseException as error:
            wire.close()
            descriptors.close()
            if isinstance(error, OSError):
                raise NoWorkerError(f"the zygote can't be asked for a worker: {error}") from error
            raise
        return Born(answer.pid, received[0], wire, descriptors)

    async def exit_code(self, pid: int, seconds: float) -> int | None:
        """How a worker ended, once all it had started is ended too; None where that isn't told in time."""
        with trio.move_on_after(seconds):
            async with self._news:
                while pid not in self._exits and not self.gone.is_set():
                    await self._news.wait()
        return self._exits.pop(pid, None)

    async def _until(self, true: Callable[[], bool], seconds: float, words: str) -> None:
        with trio.move_on_after(seconds):
            async with self._news:
                while not true() and not self.gone.is_set():
                    await self._news.wait()
        if not true():
            raise NoWorkerError(f"the process that forks workers failed: {self.last_words() or words}")

    def last_words(self) -> str:
        """The last line that the zygote or a worker printed."""
        size = os.fstat(self._words).st_size
        text = os.pread(self._words, _WORDS_BYTES, max(0, size - _WORDS_BYTES)).decode(errors="replace")
        return (text.strip().splitlines() or [""])[-1]

    def sweep(self, worker: int) -> None:
        """Once the zygote is gone: end what it can't end any more, and reap that worker, who is ours now."""
        machine.end_marked(self._marker, keep=self._known)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker, os.WNOHANG)

    async def end(self) -> None:
        """Let it end all that is below it, or end that ourselves.  Never cancelled, always bounded."""
        with trio.CancelScope(shield=True):
            self._control.shutdown(socket.SHUT_RDWR)
            if not await self._exits_within(_END_SECONDS):
                self._process.kill()
                await self._exits_within(_END_SECONDS)
            if self._process.poll() != 0:
                machine.end_marked(self._marker, keep=self._known)
            uproot(tuple(self._planted))
            self._serving.cancel()
            # The task that serves leaves before its descriptors do.
            await trio.lowlevel.checkpoint()
        trio.lowlevel.notify_closing(self._control)
        self._control.close()
        os.close(self._words)
        os.close(self._pidfd)
        for _answer, fds in self._answers.values():
            for fd in fds:
                os.close(fd)

    async def _exits_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await trio.lowlevel.wait_readable(self._pidfd)
            return True
        return False


def ended(code: int | None) -> str:
    """How a process ended, as the end of a sentence.  `code` as in Exited; None: nobody knows."""
    if code is None:
        return "ended in an unknown way"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _content(birth: Birth) -> BinaryIO:
    """What can be read up to its end: a pipe where it fits into one, since a limit on the size of files
    (`ulimit -f`) holds in memory too; else a file there.  Raises OSError."""
    content = encode_birth(birth)
    with contextlib.ExitStack() as undo:
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        undo.callback(os.close, read)
        with open(write, "wb", buffering=0) as pipe:
            fits = pipe.write(content) == len(content)
        if not fits:
            read = os.memfd_create("polier-birth", os.MFD_CLOEXEC)
            undo.callback(os.close, read)
            _fill(read, content)
        return open(os.dup(read), "rb", buffering=0)


def _fill(fd: int, content: bytes) -> None:
    """All of it, to be read from its begin."""
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)


def _interpreter() -> list[str]:
    """Isolated: neither the workspace nor the user's environment decides what is imported."""
    return [sys.executable, "-I", "-S", "-X", "utf8", *(["-B"] if sys.dont_write_bytecode else [])]


def _roots() -> list[str]:
    """Where the packages that workers need lie: the same for a checkout, an editable install and a wheel."""
    roots: dict[str, None] = {}
    for name in _NEEDED:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            roots[str(Path(place).parent)] = None
    return list(roots)
