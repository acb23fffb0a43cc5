"""Dry runs: a command on a view of the workspace, what it did to files as a diff, and then apply or discard.

The view is a layer over the workspace where one can be had, else a copy.  Finding and applying are work of
workers that never run a command; the first may read only.  All that a dry run needs lies in a directory of
its own, which is gone when the call is.  Not here: who decides whether the command runs (permits/).
"""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Protocol

import msgspec
import trio
from msgspec.structs import replace

from protocol.chores import BEGAN, COPY, ApplyChanges, Chore, CopyWorkspace, FindChanges, name_of
from protocol.conversation import ToolCall
from protocol.display import Display
from protocol.policy import Mode, Rung, SandboxPolicy
from protocol.tools.catalog import ArgumentsError, decode
from protocol.tools.run_command import RunCommand
from protocol.wire import Ready, Status, ToolFinished
from supervisor.permits.asking import Answer, Effects
from supervisor.store.disk import StoreError
from supervisor.store.scratch import Scratch

_CLOCK_SECONDS = 0.02
"""The kernel's clock of files has ticks of up to 10 ms: what is changed from now on has a later time."""
_HEAD = 4
"""A command's output that must be cut keeps one part in so many from its beginning."""


class Pool(Protocol):
    """Where commands and chores are run."""

    async def ready(self) -> Ready: ...

    async def can_have(self, policy: SandboxPolicy) -> bool: ...

    async def run(
        self,
        call: ToolCall,
        deliver: Callable[[ToolFinished], None],
        on_output: Callable[[str], None],
        *,
        policy: SandboxPolicy | None = None,
        approved: bool = False,
    ) -> None: ...


class Gate(Protocol):
    """Who asks the user.  `policy`: what the session's commands have."""

    policy: SandboxPolicy

    async def accept(self, call: ToolCall, effects: Effects) -> Answer | None: ...


class DryRuns:
    """`room` makes a private directory; `most_bytes` and `most_files` bound a copy; `cap`: of a result."""

    def __init__(
        self,
        pool: Pool,
        gate: Gate,
        room: Callable[[], Scratch],
        *,
        most_bytes: int,
        most_files: int,
        cap: int,
    ) -> None:
        self._pool = pool
        self._gate = gate
        self._room = room
        self._copying = CopyWorkspace(most_bytes, most_files)
        self._cap = cap
        self._layers: bool | None = None
        """Whether a layer can be had here; None before it was tried."""
        self._numbers = count(1)

    async def run(
        self,
        call: ToolCall,
        deliver: Callable[[ToolFinished], None],
        on_output: Callable[[str], None],
        policy: SandboxPolicy | None,
        *,
        own: bool = False,
    ) -> str:
        """Exactly one `deliver`, also when cancelled.  What was applied, in words; empty for nothing.
        `policy`: the command's own, else the session's.  `own`: the user's, not the model's."""
        trial = _Trial(call, own=own)
        try:
            room = self._room()
        except StoreError as error:
            deliver(_refused(call, f"not run: no directory for a dry run: {error}"))
            return ""
        try:
            await self._play(trial, room.directory.resolve(), on_output, policy or self._gate.policy)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(room.close)
            deliver(trial.told(self._cap))
        return trial.applied

    async def _play(
        self, trial: "_Trial", place: Path, on_output: Callable[[str], None], policy: SandboxPolicy
    ) -> None:
        view = await self._view(trial, place, policy)
        if view is None:
            return
        await self._pool.run(trial.call, trial.ran, on_output, policy=view)
        if trial.command is None or trial.command.status is Status.REFUSED:
            return
        layered = bool(view.layer)
        reading = replace(policy, mode=Mode.READ_ONLY, tmp=str(place))
        found = await self._chore(FindChanges(layered), reading)
        if found.status is not Status.DONE:
            trial.close(f"what it did to files was discarded: {found.text}", "discarded")
            return
        trial.found = found
        if not found.paths:
            trial.close("no file of the workspace was changed", "no changes")
            return
        answer = await self._gate.accept(trial.call, _effects(trial.command, found, own=trial.own))
        trial.asked = answer is not None
        if answer is None:
            trial.close(
                "nobody can be asked in this run, so this was discarded and the workspace is as it was; if "
                "it is right, run the command without dry_run",
                "discarded",
            )
        elif answer.scope is None:
            said = f": {answer.words}" if answer.words else ""
            trial.close(f"the user discarded this, the workspace is as it was{said}", "discarded")
        else:
            await self._apply(trial, ApplyChanges(layered), replace(policy, tmp=str(place)), answer.words)

    async def _apply(self, trial: "_Trial", chore: Chore, policy: SandboxPolicy, words: str) -> None:
        with trio.CancelScope(shield=True):  # whole or not at all, as far as it is ours
            end = await self._chore(chore, policy)
        if end.status is Status.DONE:
            trial.applied = end.display.summary
            said = f"; they said: {words}" if words else ""
            trial.close(f"the user wants this: it was applied to the workspace{said}", "applied")
        else:
            trial.close(f"the user wants this, but {end.text}", "not applied", Status.FAILED)

    async def _view(self, trial: "_Trial", place: Path, policy: SandboxPolicy) -> SandboxPolicy | None:
        """The policy with a view of the workspace; None where there is none, and that is told."""
        rung = (await self._pool.ready()).rung
        layered = replace(policy, layer=str(place))
        if rung is Rung.FULL and self._layers is None:
            self._layers = await self._pool.can_have(layered)
        await trio.sleep(_CLOCK_SECONDS)
        (place / BEGAN).touch(0o600)
        if rung is Rung.FULL and self._layers:
            return layered
        end = await self._chore(self._copying, replace(policy, mode=Mode.READ_ONLY, tmp=str(place)))
        if end.status is not Status.DONE:
            trial.command = _refused(trial.call, f"not run: the workspace can't be copied for it: {end.text}")
            return None
        if rung is Rung.FULL:
            return replace(policy, copied=str(place / COPY))
        trial.notes.append(f"it ran in {place / COPY}, a copy of the workspace")
        return _at_its_own_place(policy, str(place / COPY))

    async def _chore(self, chore: Chore, policy: SandboxPolicy) -> ToolFinished:
        """What a worker for this chore says."""
        name = name_of(chore)
        call = ToolCall(f"{name}-{next(self._numbers)}", name, msgspec.json.encode(chore).decode())
        ends: list[ToolFinished] = []
        await self._pool.run(call, ends.append, lambda _: None, policy=policy)
        return ends[0]


class _Trial:
    """One dry run, as far as it has come."""

    def __init__(self, call: ToolCall, *, own: bool) -> None:
        self.call = call
        self.own = own
        self.command: ToolFinished | None = None
        self.found: ToolFinished | None = None
        self.asked = False
        self.notes: list[str] = []
        self.applied = ""
        self._end = "it was interrupted, so its effects were discarded and the workspace is as it was"
        self._brief = "discarded"
        self._status: Status | None = None

    def ran(self, command: ToolFinished) -> None:
        self.command = command

    def close(self, words: str, brief: str, status: Status | None = None) -> None:
        self._end, self._brief, self._status = words, brief, status

    def told(self, cap: int) -> ToolFinished:
        """The result of the whole call."""
        command = self.command
        if command is None:
            return ToolFinished(
                self.call.id, Status.CANCELLED, "Cancelled before it began.", Display("cancelled")
            )
        if command.status is Status.REFUSED:
            return command
        effects = self.found.text if self.found is not None else ""
        parts = [*(f"[dry run: {note}]" for note in self.notes)]
        parts += [f"[dry run: what it did to files:]\n{effects}"] if self.found and self.found.paths else []
        parts.append(f"[dry run: {self._end}]")
        below = "\n".join(parts)
        shown = command.display
        counts = f"; {self.found.display.summary}" if self.found is not None and self.found.paths else ""
        return replace(
            command,
            status=self._status or command.status,
            text=f"{_cut(command.text, cap - len(below.encode()) - 1)}\n{below}",
            display=replace(
                shown,
                summary=f"dry run: {shown.summary}{counts}; {self._brief}",
                # Who was asked has seen it.
                diff=self.found.display.diff if self.found is not None and not self.asked else "",
            ),
            paths=self.found.paths if self.applied and self.found is not None else (),
        )


def _effects(command: ToolFinished, found: ToolFinished, *, own: bool) -> Effects:
    """What the user decides about."""
    # The worker's lines: what the diff doesn't say, an empty one, all.
    shown = found.display.preview.split("\n")
    between = shown.index("")
    return Effects(
        command.display.summary,
        found.display.summary,
        tuple(shown[between + 1 :]),
        found.display.diff,
        tuple(shown[:between]),
        own,
    )


def is_dry_run(call: ToolCall) -> bool:
    """Whether this call asks for one."""
    try:
        arguments = decode(call.name, call.arguments)
    except ArgumentsError:
        return False
    return isinstance(arguments, RunCommand) and arguments.dry_run


def dry_run_of(command: str, number: int) -> ToolCall:
    """The call that a user's own dry run is."""
    return ToolCall(f"try-{number}", "run_command", json.dumps({"command": command, "dry_run": True}))


def _at_its_own_place(policy: SandboxPolicy, copy: str) -> SandboxPolicy:
    """The policy of commands in a copy that can't be shown in the workspace's place.  What names the
    workspace itself can still be read."""

    def moved(paths: tuple[str, ...]) -> tuple[str, ...]:
        inside = f"{policy.workspace}/"
        return tuple(copy + path[len(inside) - 1 :] for path in paths if path.startswith(inside))

    return replace(
        policy,
        workspace=copy,
        copied=copy,
        readable=(*policy.readable, policy.workspace),
        hidden=(*policy.hidden, *moved(policy.hidden)),
        protected=(*policy.protected, *moved(policy.protected)),
        pinned=moved(policy.pinned),
        writable=tuple(path for path in policy.writable if not path.startswith(f"{policy.workspace}/")),
    )


def _refused(call: ToolCall, words: str) -> ToolFinished:
    return ToolFinished(call.id, Status.REFUSED, words, Display(words.partition("\n")[0]))


def _cut(text: str, room: int) -> str:
    """The text's beginning and end, where it has more bytes than there is room for."""
    data = text.encode()
    if len(data) <= room:
        return text
    note = "\n[cut]\n"
    keep = max(0, room - len(note))
    head, tail = keep // _HEAD, keep - keep // _HEAD
    return data[:head].decode(errors="ignore") + note + data[len(data) - tail :].decode(errors="ignore")
