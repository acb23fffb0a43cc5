"""A session for random play: the real Session, store and chat model over HTTP, and tools that end at once.

No worker is started, so that hundreds of turns fit into seconds; what workers do has tests of its own.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from protocol import wire
from protocol.conversation import Pair, ToolCall, flatten
from protocol.display import Display
from protocol.events import AnyEvent
from protocol.policy import SandboxPolicy
from protocol.tools.catalog import TOOLS, schema
from supervisor.context.budget import Budget
from supervisor.masks import Masks
from supervisor.model.chat import ChatModel
from supervisor.model.dialect import DEEPSEEK
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.model.request import Request
from supervisor.permits.gate import Refuse, Run
from supervisor.session.calls import SessionTools
from supervisor.session.rounds import Rounds
from supervisor.session.session import Session
from supervisor.session.summariser import Summariser
from supervisor.store.conversations import OpenConversation, create, open_conversation

MAX_ROUNDS = 2
"""Tool rounds of a turn: small, so that the limit is met often."""


class Everything:
    """A gate that lets every call through."""

    def start_turn(self) -> None:
        """Nothing to forget."""

    async def admit(self, call: ToolCall) -> Run | Refuse:
        return Run()


class QuickPool:
    """Runs every call by saying so."""

    async def run(
        self,
        call: ToolCall,
        deliver: Callable[[wire.ToolFinished], None],
        on_output: Callable[[str], None],
        *,
        policy: SandboxPolicy | None = None,
        approved: bool = False,
    ) -> None:
        end = wire.ToolFinished(call.id, wire.Status.CANCELLED, "half", Display("cancelled"))
        try:
            on_output("some")
            await trio.lowlevel.checkpoint()
            end = wire.ToolFinished(call.id, wire.Status.DONE, f"ran {call.name}", Display("done"))
        finally:
            deliver(end)


def new_request(tools: bool = True, system: str = "You are a foreman.") -> Request:
    schemas = [schema(tool) for tool in TOOLS.values()] if tools else []
    return Request(DEEPSEEK, "deepseek-flash", system, schemas, 1_000)


def body_of(pairs: list[Pair]) -> bytes:
    """The request that a session with these pairs sends."""
    request = new_request()
    for pair in pairs:
        request.append(flatten(pair.user, pair.rounds, pair.answer))
    return request.body()


@asynccontextmanager
async def played(
    home: Path, url: str, tell: Callable[[AnyEvent], None], id: str = "", *, idle: float = 5.0
) -> AsyncIterator[tuple[Session, OpenConversation]]:
    """A session over a new conversation, or the one with this id; `idle`: seconds until a stall is one."""
    store = open_conversation(home, id) if id else create(home, Path("/w"), "key")
    endpoint = Endpoint(
        base_url=url,
        connect_seconds=5.0,
        first_event_seconds=5.0,
        idle_seconds=idle,
        trailer_seconds=0.02,
        tries=2,
        pause_seconds=0.001,
    )
    try:
        async with open_client(endpoint) as http:
            store.transcript.session(workspace="/w", project="key", model="m", resumed=bool(id))
            rounds = Rounds(
                new_request(),
                ChatModel(http, endpoint),
                store.rounds,
                store.texts,
                Budget(100_000),
                tell,
                MAX_ROUNDS,
                store.loaded.round,
            )
            tools = SessionTools(QuickPool(), Everything(), tell, Masks(None))
            summariser = Summariser(rounds, lambda system: new_request(tools=False, system=system))
            yield Session(store, rounds, tools, summariser, tell, 500, lambda: None), store
    finally:
        store.close()
