"""The session's `Tools` port: hands calls to the gate and the pool, and their results to the turn.

Calls of one reply that only read run side by side; one that may change something waits for all before it
and is waited for by all after it.  Calls whose arguments can't be used are answered here, without a worker.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Protocol, assert_never

import msgspec
import trio

from protocol import wire
from protocol.conversation import ToolCall, ToolResult
from protocol.display import Display
from protocol.events import AnyEvent, Denial, ToolFinished, ToolOutputDelta, ToolStarted
from protocol.policy import SandboxPolicy
from protocol.tools.catalog import TOOLS
from supervisor.exits import StopError
from supervisor.masks import Masks
from supervisor.model.dialect import NO_OUTPUT
from supervisor.permits.gate import Refuse, Run
from supervisor.session.trying import DryRuns, dry_run_of, is_dry_run

UNUSABLE_IN_A_ROW = 3
"""Replies running with arguments that don't parse, after which the turn stops: the model is in a loop."""

NOT_BEGUN = "not run: the turn was interrupted before this call began"
NOT_ALLOWED_YET = "not run: the turn was interrupted before it was allowed"


class Pool(Protocol):
    """Where calls are run."""

    async def run(
        self,
        call: ToolCall,
        deliver: Callable[[wire.ToolFinished], None],
        on_output: Callable[[str], None],
        *,
        policy: SandboxPolicy | None = None,
        approved: bool = False,
    ) -> None:
        """Deliver exactly once, also when cancelled."""
        ...


class Gate(Protocol):
    """Who decides whether a call runs."""

    def start_turn(self) -> None: ...

    async def admit(self, call: ToolCall) -> Run | Refuse:
        """May wait for the user."""
        ...


class StopTurnError(Exception):
    """The turn can't go on; the message says why."""


class SessionTools:
    """`loop.Tools` over a gate and a pool.  `masks` take our own key out of what enters the conversation;
    `whole`: the user is shown all that the model gets.  `tries`: without them a dry run is refused by the
    worker that gets it."""

    def __init__(
        self,
        pool: Pool,
        gate: Gate,
        tell: Callable[[AnyEvent], None],
        masks: Masks,
        *,
        whole: bool = False,
        tries: DryRuns | None = None,
    ) -> None:
        self._pool = pool
        self._tries = tries
        self._numbers = count(1)
        self._gate = gate
        self._tell = tell
        self._masks = masks
        self._whole = whole
        self._unusable = 0

    def start_turn(self) -> None:
        self._unusable = 0
        self._gate.start_turn()

    async def run(self, calls: Sequence[ToolCall], deliver: Callable[[ToolResult], None]) -> None:
        usable = [call for call in calls if not call.problem]
        for call in calls:
            if call.problem:
                self._answer_unusable(call, deliver)
        self._unusable = self._unusable + 1 if len(usable) < len(calls) else 0
        begun: set[str] = set()
        try:
            for batch in batches(usable):
                begun.update(call.id for call in batch)
                await self._run_batch(batch, deliver)
        except (trio.Cancelled, BaseExceptionGroup, StopError):  # the batch's nursery makes groups
            for call in usable:
                if call.id not in begun:
                    with suppress(StopError):  # the first failure of the disk is the one to tell
                        deliver(ToolResult(call.id, NOT_BEGUN, failed=True))
            raise
        if self._unusable >= UNUSABLE_IN_A_ROW:
            raise StopTurnError(
                f"the model sent arguments that can't be used in {self._unusable} replies running; "
                "say it in other words, or try another model"
            )

    def _answer_unusable(self, call: ToolCall, deliver: Callable[[ToolResult], None]) -> None:
        text = f"not run: {call.problem}"
        self._tell(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
        deliver(ToolResult(call.id, text, failed=True))
        refused = wire.ToolFinished(call.id, wire.Status.REFUSED, text, Display(text))
        self._told(call, refused, len(text.encode()), 0.0)

    async def try_command(self, command: str) -> str:
        """A dry run of the user's own: what was applied, in words; empty for nothing.  Raises StopError."""
        self._gate.start_turn()
        return await self._run_one(dry_run_of(command, next(self._numbers)), lambda _: None, own=True)

    async def _run_batch(self, batch: Sequence[ToolCall], deliver: Callable[[ToolResult], None]) -> None:
        if len(batch) == 1:
            await self._run_one(batch[0], deliver)
            return
        failures: list[StopError] = []

        async def one(call: ToolCall) -> None:
            try:
                await self._run_one(call, deliver)
            except StopError as error:  # the disk is full, say: the others still get their results
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for call in batch:
                nursery.start_soon(one, call)
        if failures:
            raise failures[0]

    async def _run_one(
        self, call: ToolCall, deliver: Callable[[ToolResult], None], *, own: bool = False
    ) -> str:
        """What a dry run applied; empty for everything else.  `own`: the user's."""
        started = trio.current_time()
        self._tell(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
        stream = self._masks.stream()  # a key may come in two pieces

        def printed(text: str) -> None:
            if text:
                self._tell(ToolOutputDelta(call_id=call.id, text=text))

        def feed(text: str) -> None:
            printed(stream.feed(text))

        def finished(end: wire.ToolFinished) -> None:
            printed(stream.flush())
            text = self._masks.mask(end.text) or NO_OUTPUT
            deliver(ToolResult(call.id, text, failed=end.status is not wire.Status.DONE))
            shown = msgspec.structs.replace(end, display=self._masked(end.display, text))
            self._told(call, shown, len(text.encode()), trio.current_time() - started)

        if call.name not in TOOLS:
            words = f"there is no tool {call.name!r}; there are: {', '.join(TOOLS)}"
            finished(_not_run(call, wire.Status.REFUSED, words, "unknown tool"))
            return ""
        try:
            admitted = await self._gate.admit(call)
        except (trio.Cancelled, StopError):
            with suppress(StopError):  # the first failure of the disk is the one to tell
                finished(
                    wire.ToolFinished(call.id, wire.Status.CANCELLED, NOT_ALLOWED_YET, Display("not run"))
                )
            raise
        match admitted:
            case Refuse(words):
                finished(_not_run(call, wire.Status.REFUSED, words, words.partition("\n")[0]))
            case Run(policy, approved):
                started = trio.current_time()  # how long the user took is not the tool's time
                if self._tries is not None and is_dry_run(call):
                    return await self._tries.run(call, finished, feed, policy, own=own)
                await self._pool.run(call, finished, feed, policy=policy, approved=approved)
            case _:
                assert_never(admitted)
        return ""

    def _masked(self, display: Display, text: str) -> Display:
        """What is shown of a result; `text` is what the model gets."""
        return msgspec.structs.replace(
            display,
            summary=self._masks.mask(display.summary),
            preview=text if self._whole else self._masks.mask(display.preview),
            diff=self._masks.mask(display.diff),
        )

    def _told(self, call: ToolCall, end: wire.ToolFinished, size: int, seconds: float) -> None:
        self._tell(
            ToolFinished(
                call_id=call.id,
                name=call.name,
                status=end.status.value,
                failed=end.status is not wire.Status.DONE,
                seconds=round(seconds, 3),
                bytes=size,
                display=end.display,
                denials=tuple(
                    Denial(
                        self._masks.mask(one.what), str(one.permission) if one.permission else "", one.sure
                    )
                    for one in end.denials
                ),
                limit=end.limit.value if end.limit else "",
            )
        )


def _not_run(call: ToolCall, status: wire.Status, words: str, summary: str) -> wire.ToolFinished:
    return wire.ToolFinished(call.id, status, words, Display(summary))


def batches(calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
    """The calls in order, neighbours that only read together."""
    found: list[list[ToolCall]] = []
    for call in calls:
        if found and _reads(call) and _reads(found[-1][-1]):
            found[-1].append(call)
        else:
            found.append([call])
    return found


def _reads(call: ToolCall) -> bool:
    tool = TOOLS.get(call.name)
    return tool is None or tool.reads
