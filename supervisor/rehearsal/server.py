"""The scripted model server: real HTTP on loopback that plays scripts chunk by chunk, as DeepSeek streams.

Many conversations run at once, each with its own script under its own base URL,
`http://127.0.0.1:PORT/NAME` (with `/v1` behind it too). Requests are recorded, illegal ones are refused in
the real API's words.

    python -m supervisor.rehearsal.server SCRIPT.json [--port N] [--record FILE] [--no-bodies]

prints one JSON line with the URLs and ends on SIGTERM, SIGINT, or when its stdin (a pipe or socket) is
closed.
"""

import argparse
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import trio

from supervisor.rehearsal.cache import PromptCache
from supervisor.rehearsal.connection import ClientLeftError, Connection, Incoming
from supervisor.rehearsal.performing import perform, refuse_with
from supervisor.rehearsal.playing import Playing
from supervisor.rehearsal.recording import Recorded, Recording
from supervisor.rehearsal.refusal import Refusal, RefusedError
from supervisor.rehearsal.script import Script, ScriptError, load_scripts

HOST = "127.0.0.1"


class ScriptedServer:
    """A server that runs.  Made by `serve`."""

    def __init__(self, scripts: Mapping[str, Script], port: int, recording: Recording) -> None:
        self.port = port
        self.recording = recording
        self.connections = 0
        """Connections that were ever opened."""
        self._cache = PromptCache()
        self._playing = {name: Playing(name, script, self._cache) for name, script in scripts.items()}

    def url(self, name: str = "main") -> str:
        """The base URL of a conversation."""
        return f"http://{HOST}:{self.port}/{name}"

    def add(self, name: str, script: Script) -> str:
        """One more conversation, while the server runs; its base URL.  Replaces one of the same name."""
        self._playing[name] = Playing(name, script, self._cache)
        return self.url(name)

    def requests(self, name: str = "main") -> list[Recorded]:
        """What was sent so far to this conversation, refused requests included."""
        return self.recording.of(name)

    async def wait_for(self, count: int, name: str = "main", *, ended: bool = False) -> list[Recorded]:
        """Until so many requests have come (`ended`: and their replies are over)."""
        return await self.recording.wait_for(name, count, ended=ended)

    def left(self, name: str = "main") -> int:
        """Steps that no request has taken."""
        return self._playing[name].left

    async def handle(self, stream: trio.SocketStream) -> None:
        """One connection, until the client or a fault ends it."""
        self.connections += 1
        connection = Connection(stream, self.connections)
        async with stream:
            try:
                goes_on = True
                while goes_on:
                    request = await connection.next_request()
                    goes_on = request is not None and await self._respond(connection, request)
            except ClientLeftError:
                return

    async def _respond(self, connection: Connection, request: Incoming) -> bool:
        name, path = self._route(request.target)
        playing = self._playing.get(name)
        if playing is None:
            known = ", ".join(sorted(self._playing))
            return await refuse_with(
                connection, _not_found(f"there is no script {name!r}; there are: {known}")
            )
        if request.method == "GET" and path == "models":
            return await connection.whole(200, _models(playing.script), "application/json")
        if request.method != "POST" or path != "chat/completions":
            return await refuse_with(connection, _not_found(f"no {request.method} {request.target} here"))
        recorded = self._recorded(name, connection, request)
        try:
            play = playing.answer(request.body, request.header("authorization"))
        except RefusedError as error:
            recorded.refusal = error.refusal.message
            recorded.status = error.refusal.status
            goes_on = await refuse_with(connection, error.refusal, recorded)
        else:
            recorded.step = play.number
            try:
                goes_on = await perform(connection, play, recorded)
            except (ClientLeftError, trio.Cancelled):
                recorded.cut = True
                self._ended(recorded)
                raise
        self._ended(recorded)
        return goes_on

    def _route(self, target: str) -> tuple[str, str]:
        """The conversation's name and the path below its base URL.  No name: the only one, or `main`."""
        parts = [part for part in target.partition("?")[0].split("/") if part]
        name = next(iter(self._playing)) if len(self._playing) == 1 else "main"
        if parts and parts[0] not in ("v1", "chat", "models"):
            name = parts.pop(0)
        if parts and parts[0] == "v1":
            parts.pop(0)
        return name, "/".join(parts)

    def _recorded(self, name: str, connection: Connection, request: Incoming) -> Recorded:
        before = self.recording.of(name)
        recorded = Recorded(
            name=name,
            number=len(before) + 1,
            method=request.method,
            path=request.target,
            headers=request.headers,
            body=request.body,
            size=len(request.body),
            connection=connection.number,
            first_byte_ns=request.first_byte_ns,
            last_byte_ns=request.last_byte_ns,
            previous_end_ns=before[-1].end_ns if before else 0,
        )
        self.recording.add(recorded)
        return recorded

    def _ended(self, recorded: Recorded) -> None:
        recorded.end_ns = recorded.end_ns or time.monotonic_ns()
        self.recording.ended(recorded)


@asynccontextmanager
async def serve(
    scripts: Mapping[str, Script],
    *,
    port: int = 0,
    record: Path | None = None,
    keep_bodies: bool = True,
) -> AsyncIterator[ScriptedServer]:
    """Serve these scripts for as long as the block runs.  `port` 0: any free one."""
    (listener,) = await trio.open_tcp_listeners(port, host=HOST)
    recording = Recording(record, keep_bodies=keep_bodies)
    server = ScriptedServer(scripts, listener.socket.getsockname()[1], recording)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, server.handle, [listener]))
            try:
                yield server
            finally:
                nursery.cancel_scope.cancel()
    finally:
        recording.close()


_LAST_PORT = 65_535


class _Parser(argparse.ArgumentParser):
    """One that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"scripted-server: {message}; agent scripted-server --help shows what there is\n")


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{number} is no port; a port is 1 to {_LAST_PORT}, 0 any free one")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """The server as a program; also behind `agent scripted-server`."""
    parser = _Parser(prog="agent scripted-server", description="Play a script over HTTP as a model would.")
    parser.add_argument("script", type=Path, help="a script or several, as JSON or TOML")
    parser.add_argument("--port", type=_port, default=0, help="default: any free one")
    parser.add_argument("--record", type=Path, help="append each request to this file as a line of JSON")
    parser.add_argument("--no-bodies", action="store_true", help="keep sizes and times only")
    options = parser.parse_args(argv)
    try:
        scripts = load_scripts(options.script)
        trio.run(
            partial(
                _serve_until_told, scripts, options.port, options.record, keep_bodies=not options.no_bodies
            )
        )
    except ScriptError as error:
        print(f"scripted-server: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = error.filename or f"{HOST}:{options.port}"
        print(f"scripted-server: {where}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


async def _serve_until_told(
    scripts: Mapping[str, Script], port: int, record: Path | None, *, keep_bodies: bool
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serve(scripts, port=port, record=record, keep_bodies=keep_bodies) as server:
            names = {name: server.url(name) for name in scripts}
            line = {"url": next(iter(names.values()), ""), "urls": names, "pid": os.getpid()}
            print(msgspec.json.encode(line).decode(), flush=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_stdin_ends, nursery.cancel_scope)
                async for _ in signals:
                    nursery.cancel_scope.cancel()


async def _cancel_when_stdin_ends(scope: trio.CancelScope) -> None:
    """Who started us through a pipe is gone when it ends.  A terminal or /dev/null says nothing."""
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    while True:
        await trio.lowlevel.wait_readable(0)
        if not os.read(0, 4096):
            scope.cancel()
            return


def _models(script: Script) -> bytes:
    listed = [{"id": name, "object": "model", "owned_by": "deepseek"} for name in script.models]
    return msgspec.json.encode({"object": "list", "data": listed})


def _not_found(why: str) -> Refusal:
    return Refusal(why, 404, "not_found_error", "not_found")


if __name__ == "__main__":
    sys.exit(main())
