"""The calls of one worker: a thread for each at a time, and exactly one ToolFinished whatever the tool does.

The main thread reads the wire and only hands things over, so that a Cancel is heard at once; tools are
blocking functions.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from protocol.chores import Work, decode
from protocol.display import Display
from protocol.tools.catalog import ArgumentsError
from protocol.wire import (
    Denial,
    Dial,
    Dialled,
    DialRefused,
    FrameError,
    JobEnded,
    OpenOutput,
    OutputOpened,
    OutputRefused,
    RunTool,
    Status,
    ToolFinished,
    ToolOutput,
    Uncovered,
)
from worker.call import Call, Desk, Outcome, ToolError
from worker.output.clip import cut
from worker.serve.channel import Channel
from worker.serve.threads import Threads

Registry = Callable[[Work, Call], Outcome]
"""Runs the tool whose arguments these are, or a chore."""

_OUTPUT_SECONDS = 10.0
"""How long a call waits for a file for its whole output."""
_DIAL_SECONDS = 30.0
"""How long it waits for a connection; the supervisor gives up earlier and says why."""
_TICK = 0.1
_SUMMARY_CHARACTERS = 200
_CLOSING_BYTES = 2000
"""A result may be so much longer than its cap: for a tool's closing words.  What is longer is cut."""
_BACKGROUND_LINES = 100


class _Wanted:
    """A file or a connection that a call waits for.  The main thread answers, the call's thread takes.

    `what`: the words that follow a "no" where it isn't had.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._denial: Denial | None = None
        self._answered = threading.Event()
        self._lock = threading.Lock()
        self._given_up = False
        self._file: tuple[str, int] | None = None
        self._why = "the supervisor did not answer"

    def opened(self, name: str, fd: int) -> None:
        with self._lock:
            if self._given_up:
                os.close(fd)
                return
            self._file = (name, fd)
        self._answered.set()

    def refused(self, why: str, denial: Denial | None = None) -> None:
        self._why, self._denial = why, denial
        self._answered.set()

    def take(self, seconds: float, cancelled: Callable[[], bool] = lambda: False) -> tuple[str, int]:
        """Raises ToolError."""
        until = time.monotonic() + seconds
        while not self._answered.wait(_TICK) and time.monotonic() < until and not cancelled():
            continue
        with self._lock:
            self._given_up = True
            if self._file is None:
                status = Status.FAILED if self._denial is None else Status.REFUSED
                raise ToolError(f"no {self._what}: {self._why}", status, self._denial)
            return self._file


class Calls:
    """`desk` is shared by all calls; `run` is the registry."""

    def __init__(
        self, channel: Channel, desk: Desk, run: Registry, fallen: Callable[[], bool] = lambda: False
    ) -> None:
        """`fallen`: whether what should be closed is open by now, so that no call may begin."""
        self._fallen = fallen
        self._channel = channel
        self._desk = desk
        self._run = run
        self._threads = Threads()
        self._counting = threading.Lock()
        """Held from counting the jobs until the count is sent, so that the last one told is the newest."""
        self._cancels: dict[str, threading.Event] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._dialling: dict[str, _Wanted] = {}

    def start(self, asked: RunTool) -> None:
        # What is said of jobs was decided when they began, and only this worker knows them.
        if asked.name != "jobs" and self._fallen():
            self._channel.send(Uncovered(asked.call_id))
            return
        if asked.cwd:
            with self._desk.lock:
                self._desk.cwd = Path(asked.cwd)
        cancelled = self._cancels[asked.call_id] = threading.Event()
        try:
            self._threads.play(partial(self._play, asked, cancelled))
        except RuntimeError as error:  # no memory, or too many processes
            del self._cancels[asked.call_id]
            self._finish(asked.call_id, _refusal(f"Not run: no thread can be had for it ({error})"))

    def cancel(self, call_id: str) -> None:
        """A call that has ended, or never was, is passed over: its ToolFinished is on its way."""
        if event := self._cancels.get(call_id):
            event.set()

    def output_opened(self, answer: OutputOpened) -> None:
        fd = self._channel.descriptor(answer.call_id)
        if wanted := self._wanted.pop(answer.call_id, None):
            wanted.opened(answer.name, fd)
        else:
            os.close(fd)

    def output_refused(self, answer: OutputRefused) -> None:
        if wanted := self._wanted.pop(answer.call_id, None):
            wanted.refused(answer.why)

    def dialled(self, answer: Dialled) -> None:
        fd = self._channel.descriptor(answer.call_id)
        if wanted := self._dialling.pop(answer.call_id, None):
            wanted.opened("", fd)
        else:
            os.close(fd)

    def dial_refused(self, answer: DialRefused) -> None:
        if wanted := self._dialling.pop(answer.call_id, None):
            wanted.refused(answer.why, answer.denial)

    def job_ended(self, job: str, line: str) -> None:
        with self._counting:
            self._channel.send(JobEnded(job, line, self._jobs()))

    def _jobs(self) -> int:
        with self._desk.lock:
            return sum(not job.how for job in self._desk.jobs.values())

    def _play(self, asked: RunTool, cancelled: threading.Event) -> None:
        call_id = asked.call_id
        with _Boundary() as boundary:
            call = Call(
                id=call_id,
                desk=self._desk,
                cancelled=cancelled,
                say=lambda text: self._say(call_id, text),
                open_output=lambda: self._open_output(call_id),
                dial=lambda host, port: self._dial(call_id, cancelled, host, port),
                approved=asked.approved,
                alone=asked.alone,
            )
            boundary.outcome = self._run(decode(asked.name, asked.arguments), call)
        self._cancels.pop(call_id, None)
        self._finish(call_id, boundary.outcome)

    def _finish(self, call_id: str, outcome: Outcome) -> None:
        text, cap = _plain(outcome.text), self._desk.limits.result_cap_bytes
        cwd = str(self._desk.cwd)
        finished = ToolFinished(
            call_id,
            outcome.status,
            text if len(text.encode()) <= cap + _CLOSING_BYTES else cut(text, cap),
            outcome.display,
            outcome.background[:_BACKGROUND_LINES],
            outcome.paths,
            cwd=cwd if _plain(cwd) == cwd else "",
            denials=outcome.denials,
            limit=outcome.limit,
        )
        try:
            with self._counting:
                self._channel.send(replace(finished, jobs=self._jobs()))
        except FrameError as error:
            # The tool has run all the same, and that must be said.
            words = (
                f"The tool ran ({outcome.status.value}), but its result can't be sent: {_plain(str(error))}"
            )
            self._channel.send(ToolFinished(call_id, Status.FAILED, words, _line(words)))

    def _say(self, call_id: str, text: str) -> None:
        self._channel.offer(ToolOutput(call_id, _plain(text)))

    def _open_output(self, call_id: str) -> tuple[str, int]:
        wanted = self._wanted[call_id] = _Wanted("file could be had for the whole output")
        self._channel.send(OpenOutput(call_id))
        return wanted.take(_OUTPUT_SECONDS)

    def _dial(self, call_id: str, cancelled: threading.Event, host: str, port: int) -> socket.socket:
        wanted = self._dialling[call_id] = _Wanted("connection could be had")
        self._channel.send(Dial(call_id, host, port))
        _, fd = wanted.take(_DIAL_SECONDS, cancelled.is_set)
        return socket.socket(fileno=fd)


class _Boundary:
    """Where a tool's exceptions end and become an outcome; a worker never dies of one."""

    def __init__(self) -> None:
        self.outcome = Outcome("", Display(""), Status.FAILED)

    def __enter__(self) -> "_Boundary":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self.outcome = _failure(error)
        return True


def _failure(error: BaseException) -> Outcome:
    if isinstance(error, ToolError):
        denials = () if error.denial is None else (error.denial,)
        return Outcome(_plain(str(error)), _line(str(error)), error.status, denials=denials)
    if isinstance(error, ArgumentsError):
        return _refusal(str(error))
    words = f"The tool failed unexpectedly: {type(error).__name__}: {error}. Its effect is unknown."
    return Outcome(_plain(words), _line(words), Status.FAILED)


def _refusal(words: str) -> Outcome:
    return Outcome(words, _line(words), Status.REFUSED)


def _line(text: str) -> Display:
    lines = _plain(text).splitlines() or [""]
    return Display(lines[0][:_SUMMARY_CHARACTERS])


def _plain(text: str) -> str:
    """The text with lone surrogates spelled out, which no frame can hold."""
    return text.encode(errors="backslashreplace").decode()
