"""Where the model is reached: address, key, and how long one waits.  Also the one HTTP client for it."""

from urllib.parse import urlsplit, urlunsplit

import httpx
from msgspec import Struct

from supervisor.exits import USAGE, StopError
from supervisor.version import VERSION

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Endpoint(Struct, frozen=True, kw_only=True):
    """A chat completions server.  All times are seconds."""

    base_url: str
    """Without `/chat/completions`; a final slash is ignored."""
    key: str | None = None
    """Blanks around it are ignored: they come from files and copied lines."""
    connect_seconds: float = 15.0
    """To a TCP and TLS connection.  Far servers need one second; a dead address should be named soon."""
    first_event_seconds: float = 600.0
    """From the request to the first event with data.  A busy DeepSeek queues for up to 10 minutes and sends
    comments meanwhile; a local server may read a long prompt in silence."""
    idle_seconds: float = 300.0
    """Between two events with data.  Comments don't count: a server that sends only those has stalled."""
    trailer_seconds: float = 10.0
    """After a finish_reason: only the usage is missing then, and a reply is whole without it."""
    tries: int = 4
    """Requests for one reply, the first included."""
    pause_seconds: float = 0.5
    """Before the second try, then doubled: long enough for a blip, too short for anybody to mind."""

    @property
    def url(self) -> str:
        return self.base_url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"

    @property
    def shown_url(self) -> str:
        """The URL for messages: without a user's name, a password, a query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def headers(self) -> dict[str, str]:
        """`identity`: the raw bytes are read, and compressed streams arrive late and are lost when cut."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "User-Agent": f"polier/{VERSION}",
        }
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    @property
    def key_is_sendable(self) -> bool:
        """False for a key that can't stand in a header: a line break within it, a letter that is no ASCII."""
        return self._key.isascii() and self._key.isprintable()

    def masked(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self._key, "[key]") if self._key else text

    @property
    def _key(self) -> str:
        return (self.key or "").strip()

    def __repr__(self) -> str:
        return f"Endpoint({self.shown_url})"


def open_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """The one client of a session: HTTP/1.1, keep-alive; the times are ours (chat.py), not httpx's 5 s.

    Loading the certificates takes some 30 ms, so it is left out where no TLS can come: a plain URL, and
    redirects are not followed.  A server on this machine is never asked for through a proxy.
    Raises StopError for a proxy that can't be used.
    """
    parts = urlsplit(endpoint.base_url)
    try:
        return httpx.AsyncClient(
            verify=parts.scheme != "http",
            trust_env=parts.hostname not in _LOOPBACK,
            timeout=httpx.Timeout(None, connect=endpoint.connect_seconds),
            follow_redirects=False,
        )
    except (ValueError, ImportError, httpx.InvalidURL):
        # Of the proxies in the environment; their own words may hold a password.
        raise StopError(
            "the proxy that the environment names (HTTPS_PROXY, HTTP_PROXY or ALL_PROXY) can't be used: "
            "name one that begins with http:// or https://, or unset the variable",
            USAGE,
        ) from None
