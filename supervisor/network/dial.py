"""Connect to a host and a port that are on the list: resolve here, check the addresses, connect to those.

A name is resolved once and the address that was checked is the one that is dialled, so it can't change in
between.  Not here: what is done with the connection.
"""

import socket
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from protocol.host import MAX_PORT, HostError, is_address, joined, normal
from protocol.permission import Kind, Permission
from protocol.wire import Denial
from supervisor.network.addresses import is_loopback, is_public
from supervisor.network.hosts import Hosts

DIAL_SECONDS = 15.0
"""For a name's addresses and a connection to one of them."""
_EACH_SECONDS = 6.0
"""For one of several addresses."""
_MOST_ADDRESSES = 8
_LOOKUPS = 8
"""Names that are looked up at a time: a look-up can't be stopped, and others need threads too."""
_LOCAL = "localhost"

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""A name's addresses, the preferred first.  Raises OSError."""


class DialRefusedError(Exception):
    """This may not be reached.  `denial` says so, and what would allow it."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.what)
        self.denial = denial


class DialFailedError(Exception):
    """This may be reached, but it can't be: no such name, nobody there, too slow.  The message says which."""


_lookups: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("lookups")


async def resolve(host: str, port: int) -> list[str]:
    """As the machine resolves names."""
    try:
        limiter = _lookups.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_LOOKUPS)
        _lookups.set(limiter)
    found = await trio.to_thread.run_sync(
        partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM),
        limiter=limiter,
        abandon_on_cancel=True,
    )
    return [str(place[4][0]) for place in found]


async def dial(hosts: Hosts, host: str, port: int, resolve: Resolve = resolve) -> trio.SocketStream:
    """A connection to it.  Raises DialRefusedError and DialFailedError."""
    try:
        name = normal(host)
    except HostError as error:
        raise DialRefusedError(Denial(f"a connection to {error}")) from error
    if not 0 < port <= MAX_PORT:  # a worker's number may be any
        raise DialRefusedError(Denial(f"a connection to {name}: {port} is no port"))
    place = joined(name, port)
    if not hosts.allows(name, port):
        raise DialRefusedError(Denial(f"a connection to {place}", Permission(Kind.NETWORK, place)))
    try:
        with trio.fail_after(DIAL_SECONDS):
            addresses = [name] if is_address(name) else await _resolved(name, port, resolve)
            checked = [address for address in addresses if _may(hosts, name, address, port)]
            if not checked:
                raise DialRefusedError(_hidden(name, addresses[0], port))
            return await _connected(place, checked[:_MOST_ADDRESSES], port)
    except trio.TooSlowError:
        raise DialFailedError(f"{place} did not answer within {DIAL_SECONDS:.0f} s") from None


async def _resolved(name: str, port: int, resolve: Resolve) -> list[str]:
    try:
        addresses = await resolve(name, port)
    except (OSError, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DialFailedError(f"{name} has no address: {words}") from error
    if not addresses:
        raise DialFailedError(f"{name} has no address")
    return addresses


def _may(hosts: Hosts, name: str, address: str, port: int) -> bool:
    if hosts.everything or is_public(address):
        return True
    return hosts.allows(address, port) or (name == _LOCAL and is_loopback(address))


def _hidden(name: str, address: str, port: int) -> Denial:
    """The name is listed, but it leads to where only a listed address leads."""
    try:
        place = joined(normal(address), port)
    except HostError:
        return Denial(f"a connection to {joined(name, port)}, which leads to {address}: no public address")
    return Denial(
        f"a connection to {joined(name, port)}, which leads to {address}: no public address, "
        "so it has to be allowed itself",
        Permission(Kind.NETWORK, place),
    )


async def _connected(place: str, addresses: list[str], port: int) -> trio.SocketStream:
    why = ""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            made = trio.socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            why = error.strerror or str(error)
            continue
        try:
            with trio.fail_after(_EACH_SECONDS if len(addresses) > 1 else DIAL_SECONDS):
                await made.connect((address, port))
        except (OSError, trio.TooSlowError) as error:
            made.close()
            why = (error.strerror or str(error)) if isinstance(error, OSError) else "no answer"
        except BaseException:
            made.close()
            raise
        else:
            return trio.SocketStream(made)
    raise DialFailedError(f"{place} can't be reached: {why}")
