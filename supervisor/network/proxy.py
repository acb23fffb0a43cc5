"""The proxy that commands in a network of their own find: CONNECT and plain HTTP, to what is listed.

It serves a listening socket that a worker has made in its network and sent here; it dials from ours.  Each
connection carries one request, so each request is checked, the next hop of a redirect too.  What is inside of
a tunnel can't be seen: a listed host gets whatever a command sends it.
"""

import socket
from collections.abc import Callable
from typing import assert_never

import h11
import trio

from protocol.host import joined
from protocol.wire import Denial
from supervisor.network.asked import AskedError, Plain, Tunnel, asked, passed_back
from supervisor.network.dial import DialFailedError, DialRefusedError, Resolve, dial, resolve
from supervisor.network.door import Door
from supervisor.network.hosts import Hosts
from supervisor.network.relay import IDLE_SECONDS, relay

CONNECTIONS = 64
"""At a time; more wait until one ends."""
HEAD_BYTES = 32 * 1024
"""Of a request's or a response's headers."""
HEAD_SECONDS = 10.0
"""From the connection to the end of a request's headers."""
CONNECTION_BYTES = 16 * 1024**3
"""Both ways, of one connection."""
_LINGER_SECONDS = 1.0
_CHUNK = 64 * 1024


async def serve_proxy(
    listener: socket.socket, hosts: Hosts, denied: Callable[[Denial], None], resolve: Resolve = resolve
) -> None:
    """Until cancelled.  Takes over `listener`.  `denied` hears of what is not listed; it must not block."""
    room = trio.CapacityLimiter(CONNECTIONS)
    async with trio.open_nursery() as nursery:
        with Door(listener) as door:
            while True:
                client = object()
                await room.acquire_on_behalf_of(client)
                try:
                    stream = await door.accept()
                except OSError:
                    return
                nursery.start_soon(_served, stream, Visit(stream, hosts, denied, resolve), room, client)


async def _served(
    stream: trio.SocketStream, visit: "Visit", room: trio.CapacityLimiter, client: object
) -> None:
    try:
        async with stream:
            await visit.play()
    finally:
        room.release_on_behalf_of(client)


class Visit:
    """One connection of a client."""

    def __init__(
        self, stream: trio.SocketStream, hosts: Hosts, denied: Callable[[Denial], None], resolve: Resolve
    ) -> None:
        self._stream = stream
        self._hosts = hosts
        self._denied = denied
        self._resolve = resolve
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)

    async def play(self) -> None:
        """Never raises for what a client or a server does."""
        try:
            await self._play()
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.LocalProtocolError):
            return  # the client is gone, or is told too late

    async def _play(self) -> None:
        try:
            with trio.fail_after(HEAD_SECONDS):
                event = await _next(self._http, self._stream)
            if not isinstance(event, h11.Request):
                return
            wish = asked(event)
            upstream = await dial(self._hosts, wish.host, wish.port, self._resolve)
        except trio.TooSlowError:
            await self._say(408, f"no whole request came within {HEAD_SECONDS:.0f} s")
        except h11.RemoteProtocolError as error:
            await self._say(error.error_status_hint, f"the request can't be read: {error}")
        except AskedError as error:
            await self._say(error.status, str(error))
        except DialRefusedError as error:
            self._denied(error.denial)
            await self._say(403, refusal(error.denial), f"{error.denial.permission or 'this'} is not allowed")
        except DialFailedError as error:
            await self._say(502, str(error))
        else:
            async with upstream:
                await self._pass_on(wish, upstream)

    async def _pass_on(self, wish: Tunnel | Plain, upstream: trio.SocketStream) -> None:
        match wish:
            case Tunnel():
                opened = h11.Response(status_code=200, headers=[], reason=b"Connection established")
                await self._send(opened)
                early, _ = self._http.trailing_data
                if early:
                    await upstream.send_all(early)
                await relay(self._stream, upstream, CONNECTION_BYTES)
            case Plain(request=request):
                await self._forward(request, upstream, joined(wish.host, wish.port))
            case _:
                assert_never(wish)

    async def _forward(self, request: h11.Request, upstream: trio.SocketStream, place: str) -> None:
        """One exchange.  The body may still be on its way when the answer comes."""
        server = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        status, why = 0, ""
        moved = Moved()
        try:
            with moved.scope:
                await upstream.send_all(server.send(request) or b"")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._body, server, upstream, moved)
                    await self._answer(server, upstream, moved)
                    nursery.cancel_scope.cancel()
        except* (h11.RemoteProtocolError, trio.BrokenResourceError) as group:
            status, why = 502, f"{place} gave no proper answer: {group.exceptions[0]}"
        if moved.scope.cancelled_caught:
            status, why = 504, f"{place} was silent for {IDLE_SECONDS:.0f} s, or sent too much"
        if why:
            await self._say(status, why)

    async def _body(self, server: h11.Connection, upstream: trio.SocketStream, moved: "Moved") -> None:
        """From the client to the server.  One that reads no more may still answer."""
        while True:
            match await _next(self._http, self._stream):
                case h11.Data(data=data):
                    moved.add(len(data))
                    part = server.send(h11.Data(data=bytes(data)))
                case h11.EndOfMessage():
                    part = server.send(h11.EndOfMessage())
                case _:
                    return
            try:
                await upstream.send_all(part or b"")
            except trio.BrokenResourceError:
                return
            if server.our_state is h11.DONE:
                return

    async def _answer(self, server: h11.Connection, upstream: trio.SocketStream, moved: "Moved") -> None:
        """From the server to the client."""
        while True:
            match event := await _next(server, upstream):
                case h11.InformationalResponse(status_code=100):
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                case h11.InformationalResponse():
                    continue
                case h11.Response(status_code=status, reason=reason):
                    headers = [*passed_back(event), (b"connection", b"close")]
                    await self._send(h11.Response(status_code=status, headers=headers, reason=reason))
                case h11.Data(data=data):
                    moved.add(len(data))
                    await self._send(h11.Data(data=bytes(data)))
                case h11.EndOfMessage():
                    await self._send(h11.EndOfMessage())
                    return
                case _:
                    return

    async def _send(self, event: h11.Event) -> None:
        await self._stream.send_all(self._http.send(event) or b"")

    async def _say(self, status: int, words: str, reason: str = "") -> None:
        """An answer of our own, as long as none has begun."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = f"{words}\n".encode(errors="replace")
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        await self._send(
            h11.Response(status_code=status, headers=headers, reason=reason.encode("ascii", "replace"))
        )
        # h11 leaves the body of an answer to HEAD out by itself.
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())
        await self._linger()

    async def _linger(self) -> None:
        """Read what still comes, for a moment: closed with bytes unread, a connection loses its answer."""
        with trio.move_on_after(_LINGER_SECONDS):
            await self._stream.send_eof()
            while await self._stream.receive_some(_CHUNK):
                pass


class Moved:
    """The bytes of one exchange; each puts its end off, until they are too many."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope(deadline=trio.current_time() + IDLE_SECONDS)
        self._bytes = 0

    def add(self, size: int) -> None:
        self._bytes += size
        self.scope.deadline = trio.current_time() + IDLE_SECONDS
        if self._bytes > CONNECTION_BYTES:
            self.scope.cancel()


def refusal(denial: Denial) -> str:
    """What a command is told, and prints where it prints a server's words."""
    how = f" What would allow it: needs=[{str(denial.permission)!r}]." if denial.permission else ""
    return f"The sandbox refuses {denial.what}.{how}"


async def _next(http: h11.Connection, stream: trio.SocketStream) -> h11.Event | type[h11.PAUSED]:
    """Raises h11.RemoteProtocolError and trio's errors of streams."""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(_CHUNK))
            continue
        return event  # type: ignore[return-value]
