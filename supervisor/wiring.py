"""Builds the parts of a session once, hands them to each other, and takes them down.

Nothing else knows the concrete classes of pool, model and store together.
"""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import environ
from pathlib import Path
from typing import assert_never

import trio

from protocol.events import AnyEvent, Notice, SandboxReady, SessionStarted
from protocol.tools.catalog import TOOLS, schema
from supervisor.context.budget import Budget
from supervisor.context.system_prompt import system_prompt
from supervisor.exits import USAGE, StopError
from supervisor.machine import end_strays
from supervisor.masks import Masks
from supervisor.model.chat import ChatModel
from supervisor.model.dialect import deepseek
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.model.request import Request
from supervisor.options import Continue, Fork, New, Resume, Start
from supervisor.pool.events import JobEnded, PoolEvent, WorkerDied, WorkerReady
from supervisor.pool.policy import default_policy
from supervisor.pool.workers import open_pool
from supervisor.session.calls import SessionTools
from supervisor.session.rounds import Rounds
from supervisor.session.session import Session
from supervisor.session.summariser import Summariser
from supervisor.session.telling import Teller
from supervisor.settings import Settings
from supervisor.store import conversations, listing
from supervisor.store.conversations import OpenConversation
from supervisor.store.disk import private_directory


@asynccontextmanager
async def open_session(
    settings: Settings, key: str | None, start: Start, tell: Callable[[AnyEvent], None]
) -> AsyncIterator[Session]:
    """A session that is ready to play turns; workers start beside it.  Raises StopError."""
    teller = Teller(tell)
    endpoint = Endpoint(base_url=settings.base_url, key=key)
    store = _open_store(settings, start)
    try:
        tmp = _private_tmp(settings.home, store.id)
        async with open_client(endpoint) as http, trio.open_nursery() as nursery:
            resumed = store.loaded.seq > 0
            teller(
                SessionStarted(
                    conversation=store.id,
                    workspace=str(settings.workspace),
                    model=settings.model,
                    resumed=resumed,
                    rehearsal=settings.rehearsal,
                )
            )
            for notice in store.loaded.notices:
                teller(Notice(text=notice, level="warning"))
            store.transcript.session(
                workspace=str(settings.workspace),
                project=settings.project,
                model=settings.model,
                resumed=resumed,
            )
            chat = ChatModel(http, endpoint)
            rounds = _rounds(settings, store, chat, teller)
            masks = Masks(key, known_shapes=settings.mask_transcript)
            listener = _PoolListener(teller)
            policy = default_policy(settings.workspace, store.outputs.directory, tmp, environ, settings.home)
            opening = open_pool(policy, settings.limits, store.outputs.open, listener, environ=environ)
            async with opening as pool:
                session = Session(
                    store,
                    rounds,
                    SessionTools(pool, teller, masks),
                    Summariser(rounds, lambda system: _request(settings, system, tools=False)),
                    teller,
                    settings.max_turns_per_session,
                    lambda: nursery.start_soon(store.transcript.sync),
                )
                listener.session = session
                for line in end_strays():
                    teller(Notice(text=line, level="warning"))
                yield session
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(settings.home / "tmp" / store.id, ignore_errors=True)
        store.close()


class _PoolListener:
    """What happens to workers, told to the front and, where it matters, to the model."""

    def __init__(self, tell: Callable[[AnyEvent], None]) -> None:
        self._tell = tell
        self.session: Session | None = None

    def __call__(self, event: PoolEvent) -> None:
        match event:
            case WorkerReady(ready):
                notes = (*ready.notes, *([ready.refuse_commands] if ready.refuse_commands else []))
                self._tell(SandboxReady(rung=ready.rung.value, notes=notes))
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
        self._tell(Notice(text=text, level=level))
        if self.session is not None:
            self.session.note(text)


def _private_tmp(home: Path, id: str) -> Path:
    """A new directory for what tools put into $TMPDIR, gone with the session."""
    tmp = private_directory(home / "tmp") / id
    shutil.rmtree(tmp, ignore_errors=True)  # what a killed session left
    tmp.mkdir(mode=0o700)
    return tmp


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
