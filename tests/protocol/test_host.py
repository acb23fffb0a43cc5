"""One spelling for each host."""

import ipaddress
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.host import HostError, is_address, joined, normal, parted


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("localhost", "localhost"),
        ("my_service.internal", "my_service.internal"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("еxample.org", "xn--xample-2of.org"),  # a Cyrillic e
        ("ｅｘａｍｐｌｅ。ｏｒｇ", "example.org"),
        ("127.0.0.1", "127.0.0.1"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("[::FFFF:7f00:1]", "127.0.0.1"),
    ],
)
def test_a_host_has_one_spelling(host: str, wanted: str) -> None:
    assert normal(host) == wanted
    assert normal(wanted) == wanted


@pytest.mark.parametrize(
    "host",
    [
        "", ".", "..", "example..org", ".example.org", "example.org..", "-a.org", "a-.org", "a b.org", "a/b",
        "user@example.org", "example.org\r\nX: y", "exam\0ple.org", "*.example.org", "a" * 64 + ".org",
        ".".join(["abcdefg"] * 40), "\udc80.org", "ü" * 5000, "%31.org",
        "2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01", "1.2.3.4.5",
        "256.1.1.1", "example.0x", "example.1", "[127.0.0.1]", "[::1", "::1%lo", "fe80::1%eth0", "1::2::3",
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_no_host(host: str) -> None:
    with pytest.raises(HostError):
        normal(host)


@given(st.text(max_size=40))
def test_any_text_is_a_host_in_its_normal_spelling_or_an_error(text: str) -> None:
    try:
        host = normal(text)
    except HostError:
        return
    assert normal(host) == host
    assert host.isascii()
    assert set(host) <= set(string.ascii_lowercase + string.digits + "-_.:")
    assert parted(joined(host, 80)) == (host, 80)


@given(st.ip_addresses())
def test_every_address_is_known_as_one(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    host = normal(str(address))
    assert is_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    assert ipaddress.ip_address(host) == (mapped or address)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["{0}", "0x{0:x}", "0{0:o}", "0X{0:X}"]))
def test_an_address_as_one_number_is_no_host(number: int, spelling: str) -> None:
    with pytest.raises(HostError):
        normal(spelling.format(number))


@pytest.mark.parametrize(
    "text", ["a.org", "a.org:", ":80", "a.org:0", "a.org:65536", "a.org:８０", "::1:80", "a:b:1"]
)
def test_a_host_and_a_port_are_both_wanted(text: str) -> None:
    with pytest.raises(HostError):
        parted(text)
