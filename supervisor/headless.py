"""A session without a person: one task, its answer or its events on stdout, and an exit code.

As text, stdout gets the answer alone and stderr what the program has to say: narration, a line per tool
call, notices.  With `--json`, stdout gets every event, `session_closed` last.  What is *not*
here: how events are written (front.py), how a session is built (wiring.py).
"""

import os
import signal
from pathlib import Path
from typing import assert_never

import msgspec
import trio

from protocol.conversation import User
from protocol.events import AnyEvent, StopReason, TurnFinished
from supervisor.exits import (
    ANSWERED,
    FAILED,
    HUNG_UP,
    INTERRUPTED,
    MODEL,
    READER_GONE,
    ROUNDS,
    TERMINATED,
    TIMEOUT,
    USAGE,
    StopError,
    first_stop,
)
from supervisor.flow import read_stdin
from supervisor.front import Front
from supervisor.options import NO_MODEL, RunOptions
from supervisor.places import current_directory
from supervisor.session.session import Session
from supervisor.settings import Flags, Loaded, Settings, load, read_key
from supervisor.streams import complain
from supervisor.wiring import open_session

CLOSING_SECONDS = 10.0
"""From the first reason to stop to giving up on an orderly end; a tool gets 2 s to leave, its worker 2."""

WHY = {
    TIMEOUT: "the time limit of this run was reached",
    INTERRUPTED: "interrupted by the user",
    TERMINATED: "the program was told to end",
    HUNG_UP: "the terminal went away",
    READER_GONE: "nobody reads the output any more",
}
"""What stands in the answer that closes the turn."""

CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


def run(options: RunOptions) -> int:
    """Play one turn; the exit code.  Raises StopError for what is wrong before a session began (as text)."""
    return trio.run(_run, options)


async def read_task(options: RunOptions) -> str:
    """The user's line.  stdin is read only for "-".  Raises StopError(USAGE)."""
    if options.file is not None:
        source = f"--file {options.file}"
        try:
            raw = Path(options.file).read_bytes()
        except OSError as error:
            raise StopError(f"{source}: {error.strerror}", USAGE) from error
    elif options.task == "-":
        raw, source = await read_stdin(), "stdin"
    else:
        # Bytes of the command line that were no text in its encoding came as lone surrogates.
        raw, source = os.fsencode(options.task or ""), "the task"
    task = raw.decode("utf-8-sig", "replace")
    if not task.strip():
        raise StopError(f"{source} is empty; there is nothing to do", USAGE)
    return task


def exit_code(finished: TurnFinished, ended: int | None) -> int:
    """`ended`: the code of what ended the turn early (a signal, the time limit), if anything did."""
    match finished.reason:
        case StopReason.ANSWERED:
            return ANSWERED
        case StopReason.ROUNDS:
            return ROUNDS
        case StopReason.INTERRUPTED:
            return INTERRUPTED if ended is None else ended
        case StopReason.FAILED | StopReason.WITHDRAWN:
            return MODEL if ended is None else ended
        case _ as never:
            assert_never(never)


class Ending:
    """Why the run ends early, if it does: the first signal, the time limit or the reader that is gone."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self.code: int | None = None
        self._begun = trio.Event()
        self._session: Session | None = None
        self._scope = scope

    def watch(self, session: Session) -> None:
        """From here on the first reason interrupts the turn of this session instead of leaving at once."""
        self._session = session

    def end(self, code: int) -> None:
        """A second reason does not wait for the turn any more."""
        if self.code is None and self._session is not None:
            self._session.interrupt(WHY[code])
        else:
            self._scope.cancel()
        if self.code is None:
            self.code = code
        self._begun.set()

    async def on_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(*CODES) as signals:
            task_status.started()
            async for number in signals:
                self.end(CODES[signal.Signals(number)])

    async def on_time(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.end(TIMEOUT)

    async def at_last(self) -> None:
        """Give up on the orderly end when it takes too long."""
        await self._begun.wait()
        await trio.sleep(CLOSING_SECONDS)
        self._scope.cancel()


async def _run(options: RunOptions) -> int:
    front = Front(options.json)
    stop: StopError | None = None
    code = FAILED
    try:
        code = await _watched(options, front)
    except* StopError as stops:
        stop = first_stop(stops)
    if stop is not None and not options.json:
        raise stop
    if stop is not None:
        complain(str(stop))
        front.notice(str(stop), "error")
        code = stop.exit_code
    front.close(code)
    await front.out.finish()
    return READER_GONE if front.out.reader_gone else code


async def _watched(options: RunOptions, front: Front) -> int:
    """Play the turn while signals, the clock and the reader of stdout are watched."""
    async with trio.open_nursery() as nursery:
        ending = Ending(nursery.cancel_scope)
        await nursery.start(ending.on_signals)
        nursery.start_soon(ending.at_last)
        nursery.start_soon(front.out.drain)
        if options.timeout is not None:
            nursery.start_soon(ending.on_time, options.timeout)
        loaded = _load(options)
        for notice in loaded.notices:  # they may say why there is no model
            front.notice(notice)
        key = read_key(loaded.settings, os.environ)
        if key is None and not loaded.settings.configured:
            raise StopError(NO_MODEL, MODEL)
        task = await read_task(options)
        code = await _turn(options, loaded.settings, key, task, front, ending)
        nursery.cancel_scope.cancel()
        return code
    return INTERRUPTED if ending.code is None else ending.code


async def _turn(
    options: RunOptions, settings: Settings, key: str | None, task: str, front: Front, ending: Ending
) -> int:
    def tell(event: AnyEvent) -> None:
        front.tell(event)
        if front.out.reader_gone and ending.code is None:
            ending.end(READER_GONE)

    async with open_session(settings, key, options.start, tell) as session:
        ending.watch(session)
        finished = await session.say(User.says(task))
    return exit_code(finished, ending.code)


def _load(options: RunOptions) -> Loaded:
    flags = Flags(
        model=options.model,
        base_url=options.base_url,
        workspace=options.workspace,
        timeout=options.timeout,
        max_tool_rounds=options.max_tool_rounds,
        sandbox=options.sandbox,
        allow=options.allow,
    )
    loaded = load(flags, os.environ, current_directory())
    if os.environ.get("AGENT_REHEARSAL"):  # set by the rehearsal for its child: the events say so
        return Loaded(msgspec.structs.replace(loaded.settings, rehearsal=True), loaded.notices)
    return loaded
