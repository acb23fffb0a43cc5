"""A desk for tests of commands: a workspace, an output directory, and calls that are played against it."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from protocol.policy import Limits, SandboxPolicy
from protocol.tools.jobs import Jobs
from protocol.tools.run_command import RunCommand
from worker.call import Call, Desk, Outcome, ToolError
from worker.sandbox import prctl
from worker.tools import jobs, run_command

FORK_BOMB = ":(){ { [ $1 -lt 9 ] && : $(($1 + 1)) | : $(($1 + 1)) || sleep 60; } & }; : 0"
"""It doubles, and who has forked is gone at once; after nine times it stays as it is.  One that went on while
a busy machine has no time for the guard would take all of that machine from the other tests."""


@dataclass
class CommandDesk:
    """`said`: what went to the screen; `opened`: names of output files; `ended`: jobs that were told."""

    desk: Desk
    output: Path
    said: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    an_end_was_told: threading.Event = field(default_factory=threading.Event)
    no_files: str = ""
    calls: int = 0

    @property
    def workspace(self) -> Path:
        return Path(self.desk.policy.workspace)

    def run(
        self,
        command: str,
        timeout: float | None = None,
        *,
        background: bool = False,
        cancelled: threading.Event | None = None,
        say: Callable[[str], None] | None = None,
    ) -> Outcome:
        call = self.call(cancelled, say)
        return run_command.run(RunCommand(command, timeout, background), call)

    def jobs(self, arguments: Jobs, cancelled: threading.Event | None = None) -> Outcome:
        return jobs.run(arguments, self.call(cancelled))

    def call(
        self, cancelled: threading.Event | None = None, say: Callable[[str], None] | None = None
    ) -> Call:
        self.calls += 1
        name = f"call_{os.getpid()}_{self.calls}"

        def open_output() -> tuple[str, int]:
            if self.no_files:
                raise ToolError(self.no_files)
            file = f"{name}.txt"
            self.opened.append(file)
            return file, os.open(self.output / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

        return Call(name, self.desk, cancelled or threading.Event(), say or self.said.append, open_output)

    def tell(self, job: str, line: str) -> None:
        self.ended.append((job, line))
        self.an_end_was_told.set()


@contextmanager
def command_desk(tmp: Path, limits: Limits | None = None) -> Iterator[CommandDesk]:
    """The desk, in a process that adopts orphans as a worker does; at the end all its jobs are stopped."""
    prctl.adopt_orphans()
    for name in ("workspace", "tmp", "output"):
        (tmp / name).mkdir()
    policy = SandboxPolicy(
        workspace=str(tmp / "workspace"),
        tmp=str(tmp / "tmp"),
        output=str(tmp / "output"),
        environment=(("PATH", os.environ["PATH"]), ("HOME", str(tmp))),
    )
    found = CommandDesk(Desk(policy, limits or Limits(grace_seconds=1.0), tmp / "workspace"), tmp / "output")
    found.desk.tell_job_ended = found.tell
    try:
        yield found
    finally:
        for job in found.desk.jobs.values():
            job.stop()
