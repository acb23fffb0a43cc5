"""One request and its answer over a connection: HTTP/1.1, bounded in size, whatever a server sends.

Not here: where a redirect leads (tools/fetch.py), what a body says (page.py).
"""

import socket
import zlib
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage, HTTPResponse, IncompleteRead
from typing import cast

from msgspec import Struct

from protocol.tools.fetch import Url
from worker.web.line import Line, trust
from worker.web.page import readable
from worker.web.tries import TryError

BODY_BYTES = 10_000_000
"""Of a body, unpacked: far more than a model can read, and a bound for what is unpacked."""
_PART = 64 * 1024
_ACCEPT = "text/html, text/plain;q=0.9, application/json;q=0.9, */*;q=0.5"


class Answer(Struct, frozen=True):
    """`whole`: nothing was left out of the body."""

    status: int
    reason: str
    type: str
    """As the server names it, with its parameters; empty where it doesn't."""
    location: str
    length: str
    """As the server names it."""
    body: bytes
    whole: bool


def fetched(sock: socket.socket, url: Url, agent: str, chosen: str, go_on: Callable[[], None]) -> Answer:
    """GET it.  Takes over `sock`.  `chosen`: a file of certificates to trust, or empty for the system's.
    Only a body that may be text is read.  Raises TryError and what `go_on` raises."""
    with Line(sock, go_on) as line:
        if url.scheme == "https":
            line.secure(trust(chosen), url.host)
        return _exchange(line, url, agent)


def _exchange(line: Line, url: Url, agent: str) -> Answer:
    head = (
        f"GET {url.target} HTTP/1.1\r\nHost: {url.authority}\r\nUser-Agent: {agent}\r\nAccept: {_ACCEPT}\r\n"
        "Accept-Encoding: gzip, deflate\r\nConnection: close\r\n\r\n"
    )
    line.sendall(head.encode("ascii"))
    response = HTTPResponse(cast(socket.socket, line), method="GET")
    try:
        response.begin()
        headers = response.headers
        kind = headers.get("Content-Type") or ""
        body, whole = b"", True
        if readable(kind):
            body, whole = _body(response, headers)
    except (HTTPException, ValueError) as error:
        raise TryError(
            f"{url.host} gave no proper answer: {type(error).__name__} {error}".rstrip()
        ) from error
    finally:
        response.close()
    return Answer(
        response.status,
        response.reason,
        kind,
        headers.get("Location") or "",
        headers.get("Content-Length") or "",
        body,
        whole,
    )


def _body(response: HTTPResponse, headers: HTTPMessage) -> tuple[bytes, bool]:
    """The body, unpacked, and whether all of it is there.  Raises TryError, HTTPException, ValueError."""
    packing = (headers.get("Content-Encoding") or "identity").strip().lower()
    body = bytearray()
    unpack = _unpacker(packing)
    try:
        while part := response.read(_PART):
            body += unpack(part, BODY_BYTES + 1 - len(body))
            if len(body) > BODY_BYTES:
                return bytes(body[:BODY_BYTES]), False
    except IncompleteRead as error:
        body += unpack(error.partial, BODY_BYTES + 1 - len(body))
        if not body:
            raise
        return bytes(body[:BODY_BYTES]), False
    # What breaks off before its length is no error for http.client when it is read in parts.
    return bytes(body), not response.length


def _unpacker(packing: str) -> Callable[[bytes, int], bytes]:
    """(bytes as they come, how many are wanted at most) -> bytes as they are meant."""
    if packing == "identity":
        return lambda part, most: part
    if packing not in ("gzip", "x-gzip", "deflate"):
        raise TryError(f"the page is packed in a way that is not known: {packing[:40]!r}")
    machine = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    raw = zlib.decompressobj(wbits=-zlib.MAX_WBITS)

    def unpack(part: bytes, most: int) -> bytes:
        """What is beyond `most` stays packed: a small body can stand for any length."""
        nonlocal machine
        try:
            return machine.decompress(part, most)
        except zlib.error as error:
            # Some servers send `deflate` without its header.
            if packing == "deflate" and machine is not raw:
                machine = raw
                return unpack(part, most)
            raise TryError(f"the page can't be unpacked: {error}") from error

    return unpack
