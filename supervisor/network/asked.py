"""What a client asks of the proxy, read from one request: where to, and in which way.  Pure.

Whatever could mean one host to us and another one to the server is refused.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

import h11
from msgspec import Struct

from protocol.host import HostError, joined, normal, parted

METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
"""What is passed on in plain HTTP."""
_NOT_PASSED = frozenset(
    (
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"upgrade",
        b"transfer-encoding",
    )
)
"""Headers for the next hop only; h11 frames each side anew."""
_HTTP_PORT = 80


class AskedError(Exception):
    """The request is not served, whoever it is for.  The message says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Tunnel(Struct, frozen=True):
    """CONNECT: bytes both ways."""

    host: str
    port: int


class Plain(Struct, frozen=True):
    """A request of plain HTTP, to be made to its host in the name of the client."""

    host: str
    port: int
    request: h11.Request


def asked(request: h11.Request) -> Tunnel | Plain:
    """Raises AskedError."""
    try:
        target = request.target.decode("ascii")
    except UnicodeDecodeError:
        raise AskedError(400, "the request's target is not ASCII") from None
    if request.method == b"CONNECT":
        try:
            return Tunnel(*parted(target))
        except HostError as error:
            raise AskedError(400, str(error)) from error
    if request.method not in METHODS:
        told = ", ".join(sorted(method.decode() for method in METHODS))
        raise AskedError(405, f"this proxy passes on CONNECT, {told}, and no {request.method.decode()!r}")
    return _plain(request, target)


def _plain(request: h11.Request, target: str) -> Plain:
    if target.startswith("/") or target == "*":
        raise AskedError(400, "this is a proxy: a request names its whole URL, as in GET http://example.org/")
    try:
        url = urlsplit(target)
        port = url.port
    except ValueError as error:
        raise AskedError(400, f"the URL can't be read: {error}") from error
    if url.scheme.lower() != "http":
        raise AskedError(
            400, f"{url.scheme or 'nothing'}:// is not passed on; http:// is, and CONNECT for others"
        )
    if "@" in url.netloc or not url.hostname:
        raise AskedError(400, "the URL has to name a host, and neither a user nor a password")
    host, port = _named(url.hostname, _HTTP_PORT if port is None else port)
    _same_host(request, host, port)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    dropped = _dropped(request.headers) | {b"host"}
    chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    if chunked:  # then a length would be a second opinion on where the body ends
        dropped |= {b"content-length"}
    headers = [
        (b"host", _authority(host, port)),
        *((name, value) for name, value in request.headers if name not in dropped),
        (b"connection", b"close"),
        *([(b"transfer-encoding", b"chunked")] if chunked else []),
    ]
    made = h11.Request(method=request.method, target=path.encode(), headers=headers)
    return Plain(host, port, made)


def passed_back(response: h11.Response) -> list[tuple[bytes, bytes]]:
    """The headers of a server's response that are the client's."""
    dropped = _dropped(response.headers)
    return [(name, value) for name, value in response.headers if name not in dropped]


def _dropped(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Those for one hop, by rule and by what `Connection` names."""
    named = b",".join(value for name, value in headers if name == b"connection")
    return _NOT_PASSED | {
        token
        for part in named.lower().split(b",")
        if (token := part.strip()) not in (b"content-length", b"host", b"")
    }


def _named(host: str, port: int) -> tuple[str, int]:
    try:
        name = normal(host)
    except HostError as error:
        raise AskedError(400, str(error)) from error
    if port == 0:
        raise AskedError(400, f"{port} is no port")
    return name, port


def _same_host(request: h11.Request, host: str, port: int) -> None:
    """`Host` has to agree with the URL: the server may go by the one or by the other."""
    told = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
    for text in told:
        colon = text.rpartition(":")[2].isdecimal() and not text.endswith("]")
        try:
            found = parted(text) if colon else (normal(text), _HTTP_PORT)
        except HostError as error:
            raise AskedError(400, f"the header Host: {error}") from error
        if found != (host, port):
            raise AskedError(400, f"the header Host names another host than the URL, {joined(host, port)}")


def _authority(host: str, port: int) -> bytes:
    return joined(host, port).removesuffix(f":{_HTTP_PORT}").encode()
