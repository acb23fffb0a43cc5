"""Who connects where: the list, then the addresses behind a name."""

import socket

import pytest
import trio
from trio.testing import MockClock

from protocol.permission import Kind, Permission
from supervisor.network.dial import DIAL_SECONDS, DialFailedError, DialRefusedError, dial
from supervisor.network.hosts import Hosts
from tests.supervisor.network_stage import Names, ok, serving


async def test_a_listed_literal_address_and_a_listed_localhost_are_reached() -> None:
    async with serving(ok(b"hi")) as server:
        for host in ("127.0.0.1", "localhost", "LOCALHOST."):
            hosts = Hosts([f"127.0.0.1:{server.port}"] if host[0] == "1" else [f"localhost:{server.port}"])
            async with await dial(hosts, host, server.port):
                continue
        with trio.fail_after(5):
            while server.visits < 3:
                await trio.sleep(0.01)


@pytest.mark.parametrize("port", [0, -1, 65536, 10**12])
async def test_what_is_no_port_is_refused_whatever_is_listed(port: int) -> None:
    for host in ("127.0.0.1", "example.org"):
        with pytest.raises(DialRefusedError, match="is no port") as raised:
            await dial(Hosts(everything=True), host, port, Names({}))
        assert raised.value.denial.permission is None


async def test_what_is_not_listed_is_not_even_looked_up_and_the_refusal_names_what_would_allow_it() -> None:
    names = Names({})
    with pytest.raises(DialRefusedError) as raised:
        await dial(Hosts(["example.org:443"]), "Other.example.org.", 443, names)
    assert raised.value.denial.permission == Permission(Kind.NETWORK, "other.example.org:443")
    assert raised.value.denial.what == "a connection to other.example.org:443"
    assert names.asked == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.1", "a b", "[::1%lo]", ""])
async def test_an_odd_spelling_is_refused_whatever_is_listed(host: str) -> None:
    names = Names({})
    with pytest.raises(DialRefusedError) as raised:
        await dial(Hosts(everything=True), host, 80, names)
    assert raised.value.denial.permission is None
    assert names.asked == []


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0"]
)
async def test_a_listed_name_that_leads_to_a_private_address_is_refused(address: str) -> None:
    names = Names({"rebound.example": [[address]]})
    with pytest.raises(DialRefusedError, match="no public address") as raised:
        await dial(Hosts(["rebound.example:443", "localhost:443"]), "rebound.example", 443, names)
    permission = raised.value.denial.permission
    assert permission is not None
    assert Hosts([permission.target]).allows(address, 443)


async def test_a_private_address_is_reached_by_a_name_where_both_are_listed() -> None:
    async with serving(ok(b"hi")) as server:
        names = Names({"intranet.example": [["10.1.2.3", "127.0.0.1"]]})
        hosts = Hosts([f"intranet.example:{server.port}", f"127.0.0.1:{server.port}"])
        async with await dial(hosts, "intranet.example", server.port, names) as stream:
            assert stream.socket.getpeername()[0] == "127.0.0.1"


async def test_a_name_is_resolved_once_and_the_checked_address_is_dialled() -> None:
    async with serving(ok(b"hi")) as server:
        names = Names({"a.example": [["127.0.0.1"], ["169.254.169.254"]]})
        hosts = Hosts([f"a.example:{server.port}", f"127.0.0.1:{server.port}"])
        async with await dial(hosts, "a.example", server.port, names):
            assert names.asked == ["a.example"]
        with pytest.raises(DialRefusedError):
            await dial(hosts, "a.example", server.port, names)


async def test_localhost_leads_to_loopback_only() -> None:
    names = Names({"localhost": [["10.0.0.1"]]})
    with pytest.raises(DialRefusedError):
        await dial(Hosts(["localhost:80"]), "localhost", 80, names)


async def test_a_name_without_an_address_and_a_port_without_a_server_are_failures() -> None:
    with pytest.raises(DialFailedError, match=r"gone\.example has no address: Name or service not known"):
        await dial(Hosts(["gone.example:443"]), "gone.example", 443, Names({}))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DialFailedError, match="refused"):
        await dial(Hosts([f"127.0.0.1:{port}"]), "127.0.0.1", port)


async def test_a_resolver_that_does_not_answer_has_a_deadline(autojump_clock: MockClock) -> None:
    async def silent(host: str, port: int) -> list[str]:
        await trio.sleep_forever()
        return []

    begun = trio.current_time()
    with pytest.raises(DialFailedError, match="did not answer"):
        await dial(Hosts(["slow.example:443"]), "slow.example", 443, silent)
    assert trio.current_time() - begun == pytest.approx(DIAL_SECONDS)
