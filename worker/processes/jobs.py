"""A job: what still runs after its call.  A thread of its own watches it and takes its output.

A job is either a shell that was started in the background, or what a command left behind.  It is over when
none of its processes runs.  It ends with the worker.  Not here: words for the model (worker/tools/jobs.py).
"""

import contextlib
import os
import select
import threading
import time
from typing import Protocol

from worker.call import Desk, ToolError
from worker.processes import tree
from worker.processes.verdict import kernel_limit, verdict
from worker.processes.watch import SETTLE_SECONDS, Running, end

SWEEP_SECONDS = 2.0
"""How often a job's processes are counted when nothing happens: one may have come and gone unseen."""

WATCHED = 64
"""Processes of a job whose end is seen at once; of more, the next sweep sees it.  Each costs a descriptor,
and a worker has a thousand for all."""

INPUT_SECONDS = 1.0
"""How long a full input pipe is waited for."""


class Output(Protocol):
    """The record of a job's output; see worker/output/record.py."""

    size: int
    file: str

    def write(self, data: bytes) -> None: ...
    def tick(self) -> None: ...
    def read(self, since: int, most: int) -> tuple[int, bytes]: ...
    def close(self) -> None: ...


class Job:
    """See worker.call.BackgroundJob.  It owns the shell, the pipe and the record that it is given."""

    def __init__(self, desk: Desk, command: str, running: Running, record: Output) -> None:
        """The shell may be reaped already; then these are the processes that it left.

        Raises ToolError where no thread can be had; then all stays the caller's.
        """
        self.command = command
        self.how = ""
        self._shell_ended = ""
        self._desk = desk
        self._shell = running.shell
        self._pipe = running.pipe
        self._record = record
        self._running = running
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._stopping = False
        self._quiet = True
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with desk.lock:
            self.id = f"j{len(desk.jobs) + 1}"
            desk.jobs[self.id] = self
        try:
            threading.Thread(target=self._watch, name=self.id, daemon=True).start()
        except RuntimeError as error:
            with desk.lock:
                del desk.jobs[self.id]
            os.close(self._waker)
            raise ToolError(f"the job can't be watched: {error}") from error

    @property
    def size(self) -> int:
        return self._record.size

    @property
    def file(self) -> str:
        return self._record.file

    @property
    def pids(self) -> frozenset[int]:
        if self._ended.is_set():
            return frozenset()
        return frozenset(process.pid for process in tree.living(self._running.family))

    def lines(self) -> tuple[str, ...]:
        if self._ended.is_set():
            return (self._line(),)
        running = [
            f"{self.id} pid {one.pid} {self._name(one.pid)}" for one in tree.living(self._running.family)
        ]
        return tuple(running) or (f"{self.id} is ending: {self.command}",)

    def _name(self, pid: int) -> str:
        return self.command if pid == self._shell.pid else tree.command_line(pid)

    def read(self, since: int, most: int) -> tuple[int, bytes]:
        return self._record.read(since, most)

    def write(self, data: bytes) -> int:
        with self._lock:
            fd = self._shell.input
            if self._ended.is_set():
                raise ToolError(f"{self.id} has ended: {self.how}")
            if fd is None:
                raise ToolError(
                    f"{self.id} has no input (any more); only a command run in the background has one"
                )
            if not data:
                os.close(fd)
                self._shell.input = None
                return 0
            return _written(fd, data, self.id)

    def wait(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def stop(self) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._stopping = True
                os.eventfd_write(self._waker, 1)
        self._ended.wait()

    def let_go(self) -> None:
        """The call is about to return: from now on an end is told, unless the call itself can tell it."""
        with self._lock:
            self._quiet = self._ended.is_set()

    def _watch(self) -> None:
        pidfds: list[int] = []
        try:
            while not self._stopping and self._count(pidfds):
                until = time.monotonic() + SWEEP_SECONDS
                while (left := until - time.monotonic()) > 0:
                    shell = (self._shell.pidfd,) if self._shell.process.returncode is None else ()
                    if self._pipe.wait(self._record, left, self._waker, *shell, *pidfds):
                        break
            if self._stopping:
                end(self._running, self._record, self._grace())
        finally:
            for fd in pidfds:
                os.close(fd)
            self._close()

    def _grace(self) -> float:
        return self._desk.limits.grace_seconds

    def _count(self, pidfds: list[int]) -> bool:
        """Look which processes run, and open what their end is seen by.  Whether there is one: where nothing
        can be seen, for want of descriptors, there is still the shell."""
        for fd in pidfds:
            os.close(fd)
        pidfds.clear()
        alive = self._running.living()
        for process in alive[:WATCHED]:
            with contextlib.suppress(OSError):
                pidfds.append(os.pidfd_open(process.pid))
        self._reap()
        return bool(alive) or self._shell.process.returncode is None

    def _reap(self) -> None:
        with self._desk.lock:
            if self._shell.process.returncode is None and self._shell.ended():
                ended = verdict(self._shell.reap())
                self._shell_ended = ended.words
                if ended.limit is not None:
                    self._shell_ended += f" {kernel_limit(ended.limit, self._desk.limits, sure=True)}"
                self._shell.place()  # removes the file: a job moves nobody
                self._desk.shells.discard(self._shell.pid)
            tree.reap_adopted(self._desk.shells)

    def _close(self) -> None:
        self._pipe.drain(self._record, time.monotonic() + SETTLE_SECONDS)
        self._reap()
        with self._lock:
            self._running.release()
            self.how = "stopped" if self._stopping else self._how()
            self._shell.close()
            self._record.close()
            os.close(self._waker)
            tell = not (self._quiet or self._stopping)
            self._ended.set()
        if tell:
            self._desk.tell_job_ended(self.id, self._line())

    def _how(self) -> str:
        struck = self._running.struck
        return struck.words if struck is not None else self._shell_ended or "ended"

    def _line(self) -> str:
        return f"{self.id} ({self.command}) is over: {self.how}"


def _written(fd: int, data: bytes, job: str) -> int:
    """Write without waiting for ever."""
    view = memoryview(data)
    done = 0
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    until = time.monotonic() + INPUT_SECONDS
    while done < len(view):
        try:
            done += os.write(fd, view[done:])
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0:
                break
            poll.poll(left * 1000)
        except BrokenPipeError as error:
            raise ToolError(f"{job} doesn't read its input any more") from error
    return done
