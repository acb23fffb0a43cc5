"""The list of hosts, and which addresses are public."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.host import HostError
from supervisor.network.addresses import is_public
from supervisor.network.hosts import Hosts

LABEL = st.text("abcxyz019-_", min_size=1, max_size=8).filter(
    lambda text: text[0] != "-" != text[-1] and not re.fullmatch("[0-9]+|0x[0-9a-f]*", text)
)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PORT = st.integers(1, 65535)


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("example.org", 443, True),
        ("EXAMPLE.org.", 443, True),
        ("example.org", 80, False),
        ("www.example.org", 443, False),
        ("example.org.evil.net", 443, False),
        ("evilexample.org", 443, False),
        ("a.files.example.net", 443, True),
        ("a.b.files.example.net", 443, True),
        ("files.example.net", 443, False),
        ("xfiles.example.net", 443, False),
        ("a.files.example.net.evil.net", 443, False),
        ("еxample.org", 443, False),
        ("127.0.0.1", 8080, True),
        ("::ffff:127.0.0.1", 8080, True),
        ("127.0.0.2", 8080, False),
        ("2130706433", 8080, False),
        ("0x7f.1", 8080, False),
        ("::1", 8080, False),
        ("", 443, False),
        (".files.example.net", 443, False),
    ],
)
def test_only_what_is_listed_is_allowed(host: str, port: int, allowed: bool) -> None:
    hosts = Hosts(["Example.org:443", "*.files.example.net:443", "127.0.0.1:8080"])
    assert hosts.allows(host, port) is allowed


@given(NAME, PORT, NAME, PORT)
def test_an_exact_entry_allows_itself_only(listed: str, port: int, host: str, other: int) -> None:
    assert Hosts([f"{listed}:{port}"]).allows(host, other) is ((listed, port) == (host, other))


@given(NAME, PORT, NAME)
def test_a_star_stands_for_whole_labels_and_at_least_one(suffix: str, port: int, host: str) -> None:
    hosts = Hosts([f"*.{suffix}:{port}"])
    assert hosts.allows(f"{host}.{suffix}", port)
    assert hosts.allows(host, port) is host.endswith("." + suffix)
    assert not hosts.allows(suffix, port)


def test_an_empty_list_allows_nothing_and_a_network_that_is_on_everything() -> None:
    assert not Hosts().allows("example.org", 443)
    assert Hosts(everything=True).allows("example.org", 443)
    assert not Hosts(everything=True).allows("exa mple.org", 443)


def test_a_list_grows_and_shrinks_while_it_is_in_use() -> None:
    hosts = Hosts()
    hosts.add("A.example.org.:443")
    assert list(hosts) == ["a.example.org:443"]
    hosts.discard("a.EXAMPLE.org:443")
    assert len(hosts) == 0


@pytest.mark.parametrize(
    "entry", ["example.org", "*:443", "*.*.org:443", "a*.org:443", "*.0.0.1:80", "*.[::1]:80"]
)
def test_a_malformed_entry_is_refused(entry: str) -> None:
    with pytest.raises(HostError):
        Hosts([entry])


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1",
        "168.63.129.16", "169.254.169.254", "172.16.0.1", "192.0.0.1", "192.0.2.1", "192.88.99.1",
        "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
        "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1",
        "2002:7f00:1::", "2002:a00:1::", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0",
        "fec0::1", "ff02::1", "nonsense", "",
    ],
)  # fmt: skip
def test_no_address_of_this_machine_or_its_networks_is_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::"],
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)
