"""A chat model that talks to the scripted server: what most tests of the model's door need."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from protocol.conversation import Message, User
from supervisor.model.assembly import Completion, Delta
from supervisor.model.chat import ChatModel
from supervisor.model.dialect import DEEPSEEK
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.model.request import Request
from supervisor.rehearsal.script import Fault, Raw, Script, Step
from supervisor.rehearsal.server import ScriptedServer, serve

TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}


class Heard(Struct):
    """What the callbacks of a completion were told."""

    deltas: list[Delta] = []
    retries: list[str] = []

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def reasoning(self) -> str:
        return "".join(delta.reasoning for delta in self.deltas)


class Talk:
    """One conversation with the scripted model."""

    def __init__(self, server: ScriptedServer, chat: ChatModel) -> None:
        self.server = server
        self.chat = chat
        self.heard = Heard()

    async def ask(self, body: bytes | None = None) -> Completion:
        return await self.chat.complete(body or asking(), self.heard.deltas.append, self.heard.retries.append)


def asking(*messages: Message, tools: bool = True) -> bytes:
    """A request that the server takes."""
    return new_request(messages or (User.says("hello"),)).body(tools=tools)


def new_request(messages: Sequence[Message] = ()) -> Request:
    request = Request(DEEPSEEK, "deepseek-flash", "You are a foreman.", [TOOL], 1_000)
    request.append(messages)
    return request


def broken(*faults: Fault) -> Script:
    """A step per fault, with some text that the fault may cut, and a sound one at the end."""
    steps = [Step(thinking="Hm.", text="one two three", chunk=4, fault=fault) for fault in faults]
    return Script(steps=(*steps, Step(text="sound")))


def raw(*events: str, then: str = "end", done: bool = True) -> Script:
    """One reply whose stream is these JSON texts."""
    lines = [*events, "[DONE]"] if done else list(events)
    return Script(steps=(Step(fault=Raw("".join(f"data: {line}\n\n" for line in lines), then=then)),))


@asynccontextmanager
async def talking(
    script: Script,
    *,
    key: str | None = None,
    first: float = 5.0,
    idle: float = 5.0,
    trailer: float = 5.0,
    tries: int = 4,
) -> AsyncIterator[Talk]:
    """The server with this script, and a chat model for it."""
    async with serve({"main": script}) as server:
        endpoint = Endpoint(
            base_url=server.url(),
            key=key,
            connect_seconds=5.0,
            first_event_seconds=first,
            idle_seconds=idle,
            trailer_seconds=trailer,
            tries=tries,
            pause_seconds=0.01,
        )
        async with open_client(endpoint) as http:
            yield Talk(server, ChatModel(http, endpoint))
