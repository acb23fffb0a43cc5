"""Builds the parts of a session once, hands them to each other, and takes them down.

Nothing else knows the concrete classes of pool, model and store together.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from os import environ
from typing import assert_never

import trio
from msgspec.structs import replace

from protocol.events import AnyEvent, Notice, SandboxReady, SessionStarted
from protocol.policy import Mode, Rung, SandboxPolicy
from protocol.tools.catalog import TOOLS, schema
from protocol.wire import JobEnded, Ready
from supervisor.context.budget import Budget
from supervisor.context.system_prompt import system_prompt
from supervisor.exits import USAGE, StopError, first_stop
from supervisor.machine import end_strays
from supervisor.masks import Masks
from supervisor.model.chat import ChatModel
from supervisor.model.dialect import deepseek
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.model.request import Request
from supervisor.options import Continue, Fork, New, Resume, Start
from supervisor.permits.asking import Asker
from supervisor.permits.opening import Permits
from supervisor.permits.standing import Standing
from supervisor.permits.wording import unmet
from supervisor.policy.default import default_policy
from supervisor.policy.memory import for_this_machine
from supervisor.pool.events import PoolEvent, WorkerDied, WorkerReady
from supervisor.pool.opening import open_pool
from supervisor.session.calls import SessionTools
from supervisor.session.rounds import Rounds
from supervisor.session.session import Session
from supervisor.session.summariser import Summariser
from supervisor.session.trying import DryRuns
from supervisor.settings import Settings
from supervisor.store import conversations, listing
from supervisor.store.conversations import OpenConversation
from supervisor.store.scratch import Scratch, sweep


@dataclass(frozen=True)
class Parts:
    """What a front gets of an open session."""

    session: Session
    sandbox: Standing


@asynccontextmanager
async def open_session(
    settings: Settings,
    key: str | None,
    start: Start,
    tell: Callable[[AnyEvent], None],
    asker: Asker | None = None,
) -> AsyncIterator[Session]:
    """`open_parts`, for who plays turns and nothing else."""
    async with open_parts(settings, key, start, tell, asker) as parts:
        yield parts.session


@asynccontextmanager
async def open_parts(
    settings: Settings,
    key: str | None,
    start: Start,
    tell: Callable[[AnyEvent], None],
    asker: Asker | None = None,
) -> AsyncIterator[Parts]:
    """A session that is ready to play turns; workers start beside it.  `asker`: whoever asks the user what a
    call may do; None where nobody is there.  Raises StopError."""
    store = _open_store(settings, start)
    try:
        scratch = Scratch(settings.home, store.id)
        try:
            async with _opened(settings, key, store, scratch, tell, asker) as parts:
                yield parts
        except BaseExceptionGroup as group:  # of the nurseries in between
            stop = first_stop(group)
            if stop is None:
                raise
            raise stop from None
        finally:
            scratch.close()
    finally:
        store.discard_unsaid()
        store.close()


@asynccontextmanager
async def _opened(
    settings: Settings,
    key: str | None,
    store: OpenConversation,
    scratch: Scratch,
    tell: Callable[[AnyEvent], None],
    asker: Asker | None,
) -> AsyncIterator[Parts]:
    """The session over this conversation, and all that runs beside it."""
    endpoint = Endpoint(base_url=settings.base_url, key=key)
    async with open_client(endpoint) as http, trio.open_nursery() as nursery:
        _begin(settings, store, tell)
        rounds = _rounds(settings, store, ChatModel(http, endpoint), tell)
        masks = Masks(key, known_shapes=settings.mask_transcript)
        listener = _PoolListener(tell, masks)

        def base_of(mode: Mode) -> SandboxPolicy:
            wishes = replace(settings.sandbox, mode=mode)
            places = settings.workspace, store.outputs.directory, scratch.directory
            return default_policy(*places, environ, settings.home, wishes)

        permits = Permits(settings, base_of(settings.sandbox.mode), environ, tell)
        limits = for_this_machine(settings.limits)
        enough = partial(unmet, require=settings.sandbox.require)
        opening = open_pool(
            permits.policy, limits, store.outputs.open, listener, environ=environ, unmet=enough
        )
        async with opening as pool:
            gate = await permits.gate(pool, asker, store.transcript.permission)
            tries = DryRuns(
                pool,
                gate,
                lambda: Scratch(settings.home, store.id),
                most_bytes=settings.sandbox.dry_run_bytes,
                most_files=settings.sandbox.dry_run_files,
                cap=settings.limits.result_cap_bytes,
            )
            whole = settings.show_tool_results == "full"
            session = Session(
                store,
                rounds,
                SessionTools(pool, gate, tell, masks, whole=whole, tries=tries),
                Summariser(rounds, lambda system: _request(settings, system, tools=False)),
                tell,
                settings.max_turns_per_session,
                lambda: nursery.start_soon(store.transcript.sync),
            )
            listener.session = session
            for line in end_strays():
                tell(Notice(text=line, level="warning"))
            # Beside the session: what a killed one left may be large.
            nursery.start_soon(partial(trio.to_thread.run_sync, sweep, settings.home, abandon_on_cancel=True))
            yield Parts(session, Standing(permits, gate, limits, base_of))
        nursery.cancel_scope.cancel()


def _begin(settings: Settings, store: OpenConversation, tell: Callable[[AnyEvent], None]) -> None:
    """Tell of the session and write its line.  Raises StoreError."""
    workspace, loaded = str(settings.workspace), store.loaded
    resumed = loaded.seq > 0
    tell(
        SessionStarted(
            conversation=store.id,
            workspace=workspace,
            model=settings.model,
            resumed=resumed,
            rehearsal=settings.rehearsal,
        )
    )
    notices = list(loaded.notices)
    if resumed and loaded.workspace not in ("", workspace):
        notices.append(
            f"this conversation was last held in {loaded.workspace}; tools now work in {workspace}"
        )
    for notice in notices:
        tell(Notice(text=notice, level="warning"))
    store.transcript.session(
        workspace=workspace, project=settings.project, model=settings.model, resumed=resumed
    )


class _PoolListener:
    """What happens to workers, told to the front and, where it matters, to the model."""

    def __init__(self, tell: Callable[[AnyEvent], None], masks: Masks) -> None:
        self._tell = tell
        self._masks = masks
        self._warned = False
        self.session: Session | None = None

    def _warn(self, ready: Ready) -> None:
        """Say once that nothing is confined: nothing runs open in silence."""
        if ready.rung is not Rung.OFF or self._warned:
            return
        self._warned = True
        why = ready.refuse_commands
        words = f"each command is asked about first: {why}" if why else "commands may do all that you may do"
        self._tell(Notice(text=f"the sandbox is off; {words}", level="warning"))

    def __call__(self, event: PoolEvent) -> None:
        match event:
            case WorkerReady(ready):
                notes = (*ready.notes, *([ready.refuse_commands] if ready.refuse_commands else []))
                self._tell(SandboxReady(rung=ready.rung.value, notes=notes))
                self._warn(ready)
            case WorkerDied(how, will_restart):
                after = (
                    "; background jobs ended with it, and a new one starts in the workspace's directory"
                    if will_restart
                    else ""
                )
                self._both(f"the worker died ({how}){after}", "warning")
            case JobEnded(_, line):
                self._both(f"background job ended: {line}", "info")
            case _:
                assert_never(event)

    def _both(self, text: str, level: str) -> None:
        text = self._masks.mask(text)  # a command's words may hold anything
        self._tell(Notice(text=text, level=level))
        if self.session is not None:
            self.session.note(text)


def _open_store(settings: Settings, start: Start) -> OpenConversation:
    """The conversation that this session goes on with, or a new one."""
    match start:
        case New():
            return conversations.create(settings.home, settings.workspace, settings.project)
        case Resume(id):
            return conversations.open_conversation(settings.home, id)
        case Fork(id):
            return conversations.fork(settings.home, id)
        case Continue():
            newest = listing.newest(settings.home, settings.project)
            if newest is None:
                raise StopError(
                    "there is no conversation of this project to continue; start one with: agent", USAGE
                )
            return conversations.open_conversation(settings.home, newest)
        case _:
            assert_never(start)


def _request(settings: Settings, system: str, *, tools: bool) -> Request:
    schemas = [schema(tool) for tool in TOOLS.values()] if tools else []
    return Request(
        deepseek(thinking=settings.thinking), settings.model, system, schemas, settings.max_output_tokens
    )


def _rounds(
    settings: Settings, store: OpenConversation, chat: ChatModel, tell: Callable[[AnyEvent], None]
) -> Rounds:
    request = _request(settings, system_prompt(settings.workspace), tools=True)
    return Rounds(
        request,
        chat,
        store.rounds,
        store.texts,
        Budget(settings.budget),
        tell,
        settings.max_tool_rounds_per_turn,
        store.loaded.round,
    )
