"""One call as a tool sees it, and what a tool gives back.

A tool is a plain blocking function `(arguments, call) -> Outcome` that runs in a thread of its own.  It
raises ToolError for what it can't do; the words go to the model.  It looks at `call.cancelled` wherever it
may take long, and then returns what it has with Status.CANCELLED.
"""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from protocol.display import Display
from protocol.policy import Limit, Limits, Rung, SandboxPolicy
from protocol.wire import Denial, Status


@dataclass(frozen=True)
class Outcome:
    """What came of a call: `text` for the model (already capped), `display` for the user."""

    text: str
    display: Display
    status: Status = Status.DONE
    background: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    denials: tuple[Denial, ...] = ()
    limit: Limit | None = None


class ToolError(Exception):
    """The tool can't do it.  The message tells the model what is wrong and what to do; `denial` is for the
    user, where the sandbox's policy is the reason."""

    def __init__(self, message: str, status: Status = Status.FAILED, denial: Denial | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.denial = denial


class BackgroundJob(Protocol):
    """What still runs (or ran) after its call, as the tools see it.  See worker/processes/jobs.py."""

    @property
    def id(self) -> str: ...

    @property
    def command(self) -> str:
        """One line that names it."""
        ...

    @property
    def how(self) -> str:
        """How it ended, in words; empty while it runs."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it has printed since its call began."""
        ...

    @property
    def file(self) -> str:
        """The name of the file in the output directory that holds them; empty where there is none."""
        ...

    @property
    def pids(self) -> frozenset[int]:
        """Its processes, as far as known."""
        ...

    def lines(self) -> tuple[str, ...]:
        """`j1 pid 123 sleep 60` for each process of it that runs; one line that says how, once ended."""
        ...

    def read(self, since: int, most: int) -> tuple[int, bytes]:
        """Raw output from byte `since` on, and the byte at which it really begins (what came before may be
        lost).  Raises ToolError."""
        ...

    def write(self, data: bytes) -> int:
        """How many of the bytes its input took; no bytes close the input.  Raises ToolError."""
        ...

    def wait(self, seconds: float) -> bool:
        """Whether it has ended."""
        ...

    def stop(self) -> None:
        """End all its processes; returns when they are gone."""
        ...


def _enter_nothing() -> None:
    """The domain of commands that nobody confines."""


class FilesKeeper(Protocol):
    """Looks after files that other programs act on later.  See worker/sandbox/restore.py."""

    def before(self, *, jobs_run: bool) -> None:
        """A command is about to start; whether background jobs of earlier ones run."""
        ...

    def after(self) -> tuple[str, ...]:
        """It has ended: what was undone or is to be told, one line each."""
        ...


def _tell_nobody(job: str, line: str) -> None:
    """A desk without a listener."""


@dataclass
class Desk:
    """What the calls of one worker share.  `cwd` is where the next command starts; `cd` moves it."""

    policy: SandboxPolicy
    limits: Limits
    cwd: Path
    refuse_commands: str = ""
    """Why run_command is refused (no sandbox here); empty where it may run."""
    enter: Callable[[], None] = _enter_nothing
    """Called by the fresh thread that starts a command: the command's own domain.  Raises OSError."""
    rung: Rung = Rung.OFF
    """How far the policy is enforced: what a command was refused is explained by it."""
    keeper: FilesKeeper | None = None
    """None where nobody looks after them."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held around every change of the fields, and from a shell's start until it stands in `shells`."""
    jobs: dict[str, BackgroundJob] = field(default_factory=dict)
    """By id, in order of their start; ended ones stay."""
    shells: set[int] = field(default_factory=set)
    """Pids of the shells whose end a thread of ours waits for; nobody else may reap them."""
    tell_job_ended: Callable[[str, str], None] = _tell_nobody
    """Called from a job's thread with its id and the words for wire.JobEnded, when it ended by itself."""
    seen: dict[bytes, bytes] = field(default_factory=dict)
    """By real path, what the model last saw of a file.  See worker/files/seen.py."""
    starter: object | None = None
    """Starts commands inside of their domains, once there has been one.  See worker/processes/starter.py."""
    guard: object | None = None
    """What ends commands that use too much, once there has been one.  See worker/processes/guard.py."""
    writing: threading.Lock = field(default_factory=threading.Lock)
    """Held from reading to writing while a file is changed, so that parallel edits don't interleave."""


def _nowhere(host: str, _port: int) -> socket.socket:
    """A call that nobody connects."""
    raise ToolError(f"no connection to {host}: this worker can't ask for one")


@dataclass(frozen=True)
class Call:
    """`open_output` asks the supervisor for a file for this call's whole output and waits for it: its
    name in the output directory and a descriptor to write to; raises ToolError where none can be had.
    `dial` asks it for a connection to a host and a port; raises ToolError where that is refused or fails.
    `say` sends text that a command has just printed towards the screen; it never blocks for long."""

    id: str
    desk: Desk
    cancelled: threading.Event
    say: Callable[[str], None]
    open_output: Callable[[], tuple[str, int]]
    dial: Callable[[str, int], socket.socket] = _nowhere
    approved: bool = False
    """The user allowed this very command, though nothing may confine it."""
    alone: bool = False
    """The worker ends with this call: nothing may be left running."""
