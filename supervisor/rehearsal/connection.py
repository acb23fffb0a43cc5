"""One HTTP/1.1 connection to the scripted server, by h11: requests in, replies and faults out."""

import socket
import struct
import time

import h11
import trio
from msgspec import Struct

READ = 256 * 1024
"""Bytes per read; requests are megabytes."""


class Incoming(Struct, frozen=True):
    """A request as it came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    first_byte_ns: int
    last_byte_ns: int

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class ClientLeftError(Exception):
    """The client closed or reset the connection."""


class Connection:
    """Reads requests and writes replies on one stream."""

    def __init__(self, stream: trio.SocketStream, number: int) -> None:
        self.number = number
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def next_request(self) -> Incoming | None:
        """The next request; None when the client is done.  Raises ClientLeftError within one."""
        first_ns = 0
        request: h11.Request | None = None
        body: list[bytes] = []
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise ClientLeftError(str(error)) from error
            match event:
                case h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        go_on = h11.InformationalResponse(status_code=100, headers=[])
                        await self._send(self._http.send(go_on))
                    data = await self._receive()
                    first_ns = first_ns or time.monotonic_ns()
                    self._http.receive_data(data)
                case h11.Request():
                    request = event
                case h11.Data():
                    body.append(bytes(event.data))
                case h11.EndOfMessage() if request is not None:
                    return _incoming(request, b"".join(body), first_ns)
                case _:
                    return None

    async def start(self, status: int, content_type: str, *others: tuple[str, str], length: int = -1) -> None:
        """The headers.  `length` -1: chunked."""
        framing = ("content-length", str(length)) if length >= 0 else ("transfer-encoding", "chunked")
        headers = [("content-type", content_type), framing, *others]
        await self._send(self._http.send(h11.Response(status_code=status, headers=headers)))

    async def write(self, data: bytes) -> None:
        await self._send(self._http.send(h11.Data(data=data)))

    async def end(self) -> bool:
        """Finish the reply; True where another request may come."""
        await self._send(self._http.send(h11.EndOfMessage()))
        if self._http.our_state is h11.MUST_CLOSE:
            return False
        self._http.start_next_cycle()
        return True

    async def whole(self, status: int, body: bytes, content_type: str, *others: tuple[str, str]) -> bool:
        """A reply in one piece; True where another request may come."""
        response = h11.Response(
            status_code=status,
            headers=[("content-type", content_type), ("content-length", str(len(body))), *others],
        )
        sent = [self._http.send(event) for event in (response, h11.Data(data=body), h11.EndOfMessage())]
        await self._send(b"".join(part for part in sent if part))
        if self._http.our_state is h11.MUST_CLOSE:
            return False
        self._http.start_next_cycle()
        return True

    async def reset(self) -> None:
        """Break the connection so that the client sees a reset."""
        self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self._stream.aclose()

    async def until_client_leaves(self) -> None:
        """Hold the connection; whatever is sent meanwhile is dropped."""
        while await self._receive():
            pass

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientLeftError(str(error)) from error

    async def _send(self, data: bytes | None) -> None:
        try:
            await self._stream.send_all(data or b"")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientLeftError(str(error)) from error


def _incoming(request: h11.Request, body: bytes, first_ns: int) -> Incoming:
    return Incoming(
        request.method.decode(),
        request.target.decode(),
        tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers),
        body,
        first_ns,
        time.monotonic_ns(),
    )
