"""A session without a person: one task, its answer or its events on stdout, and an exit code.

As text, stdout gets the answer alone and stderr what the program has to say (where stderr is a terminal,
also one line per tool call).  With `--json`, stdout gets every event, `session_closed` last.  What is *not*
here: how the bytes get out (streams.py), how a session is built (wiring.py).
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import msgspec
import trio

from protocol.conversation import User
from protocol.events import (
    AnyEvent,
    Compacted,
    Notice,
    ReasoningDelta,
    ReplyFinished,
    ReplyRetried,
    RoundStarted,
    SandboxReady,
    SessionClosed,
    SessionStarted,
    StopReason,
    TextDelta,
    ToolFinished,
    ToolOutputDelta,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    Usage,
    encode,
)
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
from supervisor.flow import Stdout, read_stdin
from supervisor.options import NO_MODEL, RunOptions
from supervisor.session.session import Session
from supervisor.settings import Flags, Loaded, Settings, load, read_key
from supervisor.streams import complain, encoded, report
from supervisor.wiring import open_session

CLOSING_SECONDS = 10.0
"""From the first reason to stop to giving up on an orderly end; a tool gets 2 s to leave, its worker 2."""

SHOWN = 200
"""Characters of a withdrawn task that its error names."""

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


class Front:
    """Where the session's events go.  Keeps what `session_closed` reports."""

    def __init__(self, json: bool) -> None:
        self.out = Stdout()
        self._json = json
        self._talks = os.isatty(2) and not json
        self._seq = 0
        self._conversation = ""
        self._task = ""
        self._turns = 0
        self._rounds = 0
        self._usage = Usage()

    def tell(self, event: AnyEvent) -> None:
        """Show the event; numbered here, since the front has notices of its own."""
        self._seq += 1
        if event.seq != self._seq:
            event = msgspec.structs.replace(event, seq=self._seq)
        self._count(event)
        if self._json:
            line = encode(event)
            self.out.write(_visible(line) if self.out.is_terminal else line)
        else:
            self._print(event)

    def notice(self, text: str, level: str = "info") -> None:
        self.tell(Notice(text=text, level=level))

    def close(self, code: int) -> None:
        self.tell(
            SessionClosed(
                exit_code=code,
                conversation=self._conversation,
                turns=self._turns,
                rounds=self._rounds,
                usage=self._usage,
            )
        )

    def _count(self, event: AnyEvent) -> None:
        match event:
            case SessionStarted():
                self._conversation = event.conversation
            case TurnStarted():
                self._task = event.text if len(event.text) <= SHOWN else event.text[: SHOWN - 1] + "…"
            case TurnFinished():
                self._turns += event.reason is not StopReason.WITHDRAWN
                self._rounds += event.rounds
                self._usage += event.usage
            case _:
                pass

    def _print(self, event: AnyEvent) -> None:
        match event:
            case TurnFinished():
                if event.text:
                    self.out.write(encoded(event.text.rstrip("\n") + "\n", self.out.encoding))
                if event.error:
                    complain(event.error)
                if event.reason is StopReason.WITHDRAWN:
                    complain(f"nothing of a reply had arrived, so the task was withdrawn: {self._task}")
            case Notice():
                complain(event.text)
            case ReplyRetried():
                complain(f"the reply is asked for again: {event.why}")
            case SandboxReady():
                for note in event.notes:
                    complain(note)
            case ToolFinished() if self._talks:
                report(f"  {event.name} · {event.display.summary}")
            case ReplyFinished() if self._talks and event.kind == "narration" and event.text:
                report(event.text.rstrip("\n"))
            case (
                SessionStarted() | TurnStarted() | RoundStarted() | TextDelta() | ReasoningDelta()
                | ReplyFinished() | ToolStarted() | ToolOutputDelta() | ToolFinished() | Compacted()
                | SessionClosed()
            ):  # fmt: skip
                pass
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
    )
    cwd = Path()
    with suppress(OSError):  # the current directory was removed; --workspace may still name another
        cwd = Path.cwd()
    loaded = load(flags, os.environ, cwd)
    if os.environ.get("AGENT_REHEARSAL"):  # set by the rehearsal for its child: the events say so
        return Loaded(msgspec.structs.replace(loaded.settings, rehearsal=True), loaded.notices)
    return loaded


def _visible(line: bytes) -> bytes:
    """A line of JSON for a terminal: characters that control one are escaped, as JSON allows."""
    text = line.decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text).encode()


def _escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
