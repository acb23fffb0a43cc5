"""What tests of the ways out share: scripted servers on loopback, a resolver that is told, raw clients."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from protocol.wire import Denial
from supervisor.network.hosts import Hosts
from supervisor.network.proxy import serve_proxy


@dataclass
class Server:
    """A server that reads one request's headers, remembers them, and answers with fixed bytes."""

    answer: bytes
    port: int = 0
    heard: list[bytes] = field(default_factory=list)
    visits: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.visits += 1
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                part = await stream.receive_some()
                if not part:
                    break
                data += part
            head, _, rest = data.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ),
                0,
            )
            while len(rest) < length:
                rest += await stream.receive_some()
            self.heard.append(head + b"\r\n\r\n" + rest)
            await stream.send_all(self.answer)


def ok(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


@asynccontextmanager
async def listening(handler: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """A port on loopback whose connections `handler` serves."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[Server]:
    server = Server(answer)
    async with listening(server.serve) as port:
        server.port = port
        yield server


@dataclass
class Names:
    """A resolver: each look-up of a name takes its next list of addresses, the last one again and again."""

    told: dict[str, list[list[str]]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        self.asked.append(host)
        if host not in self.told:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        lists = self.told[host]
        return lists.pop(0) if len(lists) > 1 else lists[0]


@dataclass
class Proxy:
    port: int
    hosts: Hosts
    denied: list[Denial]

    async def ask(self, request: bytes, *, end: bool = True) -> bytes:
        """Send these bytes and read until the connection's end."""
        with trio.fail_after(10):
            async with await self.connect() as stream:
                await stream.send_all(request)
                if end:
                    await stream.send_eof()
                return b"".join([part async for part in stream])

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)


@asynccontextmanager
async def proxying(*entries: str, names: Names | None = None) -> AsyncIterator[Proxy]:
    hosts, denied = Hosts(entries), list[Denial]()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    resolve = names or Names({})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_proxy, listener, hosts, denied.append, resolve)
        yield Proxy(port, hosts, denied)
        nursery.cancel_scope.cancel()
