"""The door of a worker's own network: the socket at which commands look for a proxy, and how they find it.

It is made here, where commands can reach it, and served by the supervisor, which alone can go further.
"""

import socket

from protocol.policy import Network, Rung

PORT = 3128
"""Usual for proxies.  Nothing else is in a network that has just been made."""
_BACKLOG = 128
_NOT_PROXIED = "localhost,127.0.0.1,::1"
"""A command's own servers.  No private ranges: what is there has to be refused in words, not by silence."""
_OFFLINE = ("npm_config_offline", "UV_OFFLINE", "CARGO_NET_OFFLINE", "GOPROXY")
"""Set where there is no network.  With a proxy that says no at once and names the host, asking is better."""
_TRIES = {
    "PIP_RETRIES": "0",
    "npm_config_fetch_retries": "0",
    "UV_HTTP_RETRIES": "0",
    "CARGO_NET_RETRY": "0",
}
"""A no stays one, however often they ask."""


def has_own(rung: Rung, network: Network) -> bool:
    """Whether a worker is in a network that nobody else is in."""
    return rung is Rung.FULL and network is not Network.ON


def listen() -> socket.socket:
    """Raises OSError."""
    return socket.create_server(("127.0.0.1", PORT), backlog=_BACKLOG)


def proxied(environment: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The environment of commands that have a proxy."""
    place = f"http://127.0.0.1:{PORT}"
    added = {
        name: place
        for word in ("http", "https", "all")
        for name in (f"{word}_proxy", f"{word}_PROXY".upper())
    }
    added |= {"no_proxy": _NOT_PROXIED, "NO_PROXY": _NOT_PROXIED, "NODE_USE_ENV_PROXY": "1"}
    kept = {name: value for name, value in environment if name not in _OFFLINE}
    return tuple((_TRIES | kept | added).items())
