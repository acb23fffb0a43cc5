"""A whole session in a test: the scripted server over HTTP, a real worker, everything on disk."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from protocol.conversation import User
from protocol.events import AnyEvent, TurnFinished
from supervisor.options import New, Start
from supervisor.permits.asking import Asker
from supervisor.places import project_of
from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.server import ScriptedServer, serve
from supervisor.session.session import Session
from supervisor.settings import Settings
from supervisor.wiring import Parts, open_parts


class House:
    """A workspace, a state directory and a scripted model, over any number of sessions."""

    def __init__(self, tmp: Path, server: ScriptedServer) -> None:
        self.server = server
        self.workspace = tmp / "workspace"
        self.home = tmp / "home"
        self.workspace.mkdir()
        self.told: list[AnyEvent] = []
        self.react: Callable[[AnyEvent], None] | None = None
        """What a test does at once when it hears an event."""
        self._changed = trio.Event()

    def tell(self, event: AnyEvent) -> None:
        self.told.append(event)
        self._changed.set()
        if self.react is not None:
            self.react(event)

    async def heard(self, wanted: Callable[[AnyEvent], bool]) -> AnyEvent:
        """The first event that is wanted, once it has come.  A deadline is the caller's."""
        while True:
            for event in self.told:
                if wanted(event):
                    return event
            self._changed = trio.Event()
            await self._changed.wait()

    @asynccontextmanager
    async def session(
        self,
        start: Start | None = None,
        key: str | None = None,
        asker: Asker | None = None,
        **settings: object,
    ) -> AsyncIterator[Session]:
        async with self.parts(start, key, asker, **settings) as parts:
            yield parts.session

    @asynccontextmanager
    async def parts(
        self,
        start: Start | None = None,
        key: str | None = None,
        asker: Asker | None = None,
        **settings: object,
    ) -> AsyncIterator[Parts]:
        root, project = project_of(self.workspace)
        made = Settings(
            home=self.home,
            workspace=self.workspace,
            root=root,
            project=project,
            base_url=self.server.url(),
            configured=True,
        )
        made = msgspec.structs.replace(made, **settings)
        with trio.fail_after(60):
            async with open_parts(made, key, start or New(), self.tell, asker) as parts:
                yield parts

    def transcript(self) -> list[dict[str, object]]:
        """All lines of the only conversation there is."""
        (path,) = self.home.glob("sessions/*/myagent_conversation_*.jsonl")
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def messages(self) -> list[dict[str, object]]:
        return [line for line in self.transcript() if line["kind"] == "message"]

    def bodies(self) -> list[bytes]:
        """The requests that the server took, byte for byte."""
        return [request.body for request in self.server.requests()]


@asynccontextmanager
async def house(tmp: Path, *steps: Step, **script: object) -> AsyncIterator[House]:
    made = msgspec.structs.replace(Script(steps=steps), **script)
    async with serve({"main": made}) as server:
        yield House(tmp, server)


def calling(*calls: tuple[str, dict[str, object] | str], text: str = "", thinking: str | None = None) -> Step:
    """A step that calls these tools."""
    made = tuple(ScriptedCall(name, arguments) for name, arguments in calls)
    return Step(text=text, thinking=thinking, calls=made)


def command(line: str, **more: object) -> Step:
    return calling(("run_command", {"command": line, **more}))


async def say(session: Session, line: str) -> TurnFinished:
    return await session.say(User.says(line))
