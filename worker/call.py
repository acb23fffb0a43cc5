"""One call as a tool sees it, and what a tool gives back.

A tool is a plain blocking function `(arguments, call) -> Outcome` that runs in a thread of its own.  It
raises ToolError for what it can't do; the words go to the model.  It looks at `call.cancelled` wherever it
may take long, and then returns what it has with Status.CANCELLED.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from protocol.display import Display
from protocol.policy import Limits, SandboxPolicy
from protocol.wire import Status


@dataclass(frozen=True)
class Outcome:
    """What came of a call: `text` for the model (already capped), `display` for the user."""

    text: str
    display: Display
    status: Status = Status.DONE
    background: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class ToolError(Exception):
    """The tool can't do it.  The message tells the model what is wrong and what to do."""

    def __init__(self, message: str, status: Status = Status.FAILED) -> None:
        super().__init__(message)
        self.status = status


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
    lock: threading.Lock = field(default_factory=threading.Lock)
    tell_job_ended: Callable[[str, str], None] = _tell_nobody
    """Called from a job's thread with its id and the words for wire.JobEnded, when it ended by itself."""


@dataclass(frozen=True)
class Call:
    """`open_output` asks the supervisor for a file for this call's whole output and waits for it: its
    name in the output directory and a descriptor to write to; raises ToolError where none can be had.
    `say` sends text that a command has just printed towards the screen; it never blocks for long."""

    id: str
    desk: Desk
    cancelled: threading.Event
    say: Callable[[str], None]
    open_output: Callable[[], tuple[str, int]]
