"""How a host and a port are written: two spellings of one host are one, and no number hides in a name.

Pure.  What may be reached is decided by the supervisor, on the text that comes from here.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST = 253
"""Characters of a name in the DNS."""
MAX_PORT = 65535


class HostError(ValueError):
    """This is no name of a host and no address; the message says why."""


def normal(host: str) -> str:
    """The one spelling of a name (small letters, ASCII, no dot at the end) or of an address (dotted quad;
    IPv6 compressed, without brackets; IPv4 within IPv6 as IPv4).  Raises HostError.

    An address in any other spelling (one number, octal, hexadecimal, fewer parts) is refused: resolvers
    would take it for an address where a list of names doesn't see one.
    """
    if ":" in host or host.startswith("["):
        return _six(host)
    if not host.isascii():
        host = _ascii(host)
    name = host.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))
        except AddressValueError:
            raise HostError(f"{_short(host)} is no address; write one as four decimal numbers") from None
    if len(name) > _LONGEST or not all(_LABEL.fullmatch(label) for label in labels):
        raise HostError(f"{_short(host)} is no name of a host")
    return name


def is_address(host: str) -> bool:
    """Whether a host in its normal spelling is an address."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


def joined(host: str, port: int) -> str:
    """HOST:PORT of a host in its normal spelling."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parted(text: str) -> tuple[str, int]:
    """HOST:PORT -> the normal host, the port.  Raises HostError."""
    host, _, digits = text.rpartition(":")
    port = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 5 else 0
    if not host or not 0 < port <= MAX_PORT:
        raise HostError(f"{_short(text)}: a host and a port are wanted, as in example.org:443")
    if ":" in host and not host.startswith("["):
        raise HostError(f"{_short(text)}: an IPv6 address stands in brackets, as in [::1]:443")
    return normal(host), port


def _six(host: str) -> str:
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        if "%" in text:
            raise AddressValueError
        address = IPv6Address(text)
    except AddressValueError:
        raise HostError(f"{_short(host)} is no IPv6 address") from None
    return str(address.ipv4_mapped or address)


def _ascii(host: str) -> str:
    """Other alphabets as the DNS has them (`xn--...`), and look-alikes of ASCII as ASCII."""
    if len(host) > _LONGEST:  # the encoding takes time that grows faster than the text
        raise HostError(f"{_short(host)} is no name of a host")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise HostError(f"{_short(host)} is no name of a host") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
