"""Which addresses belong to the internet at large.  Pure.

All others (this machine, its networks, a cloud's metadata) are reached only where the user has listed the
very address: a name can be made to point at them.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_ASSIGNED = IPv6Network("2000::/3")
"""All of IPv6 that is given to the internet."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""An IPv4 address behind a translator: its last 32 bits."""
_SPECIAL = (
    IPv4Network("168.63.129.16/32"),  # a cloud's metadata, though its address looks public
    IPv4Network("192.88.99.0/24"),  # relays from IPv4 to IPv6
)
_SPECIAL_SIX = (
    IPv6Network("2001::/23"),  # tunnels and benchmarks
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("3fff::/20"),  # documentation
)


def is_public(address: str) -> bool:
    """`address`: as a resolver gives it.  What is no address is not public."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return _four(parsed) if isinstance(parsed, IPv4Address) else _six(parsed)


def is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return parsed.is_loopback


def _four(address: IPv4Address) -> bool:
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_private)
        and not any(address in network for network in _SPECIAL)
    )


def _six(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    inner = address.ipv4_mapped or address.sixtofour
    if address in _TRANSLATED:
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None:
        return _four(inner)
    return address in _ASSIGNED and address.is_global and not any(address in net for net in _SPECIAL_SIX)
