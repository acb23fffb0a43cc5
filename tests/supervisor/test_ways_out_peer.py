"""Ways out against peers that are no good workers: what they send is looked at before it is used."""

import os
import socket
from collections.abc import AsyncIterator

import pytest
import trio

from protocol import wire
from protocol.conversation import ToolCall
from protocol.policy import Limits, Network, Rung, SandboxPolicy
from supervisor.pool.worker import Running
from tests.supervisor.network_stage import ok, serving
from tests.supervisor.test_pool_channel import HELLO, Peer

LISTENS = wire.encode(wire.ProxyListens())


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    found = Peer()
    yield found
    found.close()


async def greeted(
    peer: Peer, *after_ready: bytes, network: Network = Network.LISTED, hosts: tuple[str, ...] = ()
) -> None:
    """A handshake with a policy, and what the worker says in one breath with its Ready."""
    async with trio.open_nursery() as nursery:
        policy = SandboxPolicy("/", network=network, hosts=hosts)
        nursery.start_soon(peer.worker.greet, policy, Limits())
        peer.wire.sendall(HELLO)
        await trio.to_thread.run_sync(peer.hear)
        peer.wire.sendall(b"".join((wire.encode(wire.Ready(Rung.FULL)), *after_ready)))


@pytest.mark.parametrize("sent", ["nothing", "a file", "a pair", "no listener", "another name"])
async def test_a_door_that_is_none_ends_the_worker(peer: Peer, sent: str) -> None:
    one, other = socket.socketpair()
    with (
        one,
        other,
        socket.socket() as idle,
        socket.create_server(("127.0.0.1", 0)) as door,
        os.fdopen(os.open(os.devnull, os.O_RDONLY)) as file,
    ):
        match sent:
            case "a file":
                socket.send_fds(peer.descriptors, [b"proxy"], [file.fileno()])
            case "a pair":
                socket.send_fds(peer.descriptors, [b"proxy"], [one.fileno()])
            case "no listener":
                socket.send_fds(peer.descriptors, [b"proxy"], [idle.fileno()])
            case "another name":
                socket.send_fds(peer.descriptors, [b"call-1"], [door.fileno()])
        await greeted(peer, LISTENS)
        before = len(os.listdir("/proc/self/fd"))
        words = await peer.broken()
        assert "it told of a proxy, but sent none" in words or "something else than the door" in words
        assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_second_door_and_one_in_our_own_network_end_the_worker(peer: Peer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        socket.send_fds(peer.descriptors, [b"proxy"], [door.fileno()])
        await greeted(peer, LISTENS, LISTENS)
        assert "a proxy that nobody wants" in await peer.broken()
    second = Peer()
    try:
        await greeted(second, LISTENS, network=Network.ON)
        assert "a proxy that nobody wants" in await second.broken()
    finally:
        second.close()


async def test_only_a_call_that_runs_is_connected_and_not_without_end(peer: Peer) -> None:
    await greeted(peer)
    running = Running(ToolCall("a", "fetch", "{}"), lambda text: None)
    peer.worker.start(running)
    answers: list[wire.ToWorker] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.worker.live)
        await trio.to_thread.run_sync(peer.hear)
        asked = [wire.Dial("z", "listed.example", 443), *[wire.Dial("a", "x.example", 443)] * 18]
        peer.wire.sendall(b"".join(map(wire.encode, asked)))
        while len(answers) < len(asked):
            answer = await trio.to_thread.run_sync(peer.hear)
            answers.append(wire.decode_to_worker(answer))
        nursery.cancel_scope.cancel()
    refused = [answer for answer in answers if isinstance(answer, wire.DialRefused)]
    assert len(refused) == len(asked)
    assert [each.call_id for each in refused if each.denial is None] == ["z", "a", "a"]
    assert {str(each.denial.permission) for each in refused if each.denial} == {"network:x.example:443"}


async def test_a_worker_gets_no_socket_of_our_network(peer: Peer) -> None:
    """On one it could connect to another place, whatever namespace it is in."""
    async with serving(ok(b"page")) as server, trio.open_nursery() as nursery:
        place = f"127.0.0.1:{server.port}"
        await greeted(peer, hosts=(place,))
        peer.worker.start(Running(ToolCall("a", "fetch", "{}"), lambda text: None))
        nursery.start_soon(peer.worker.live)
        await trio.to_thread.run_sync(peer.hear)
        peer.wire.sendall(wire.encode(wire.Dial("a", "127.0.0.1", server.port)))
        assert wire.decode_to_worker(await trio.to_thread.run_sync(peer.hear)) == wire.Dialled("a")
        name, (fd,), _, _ = socket.recv_fds(peer.descriptors, 100, 1)
        with socket.socket(fileno=fd) as given:
            assert (name, given.family) == (b"a", socket.AF_UNIX)
            given.setblocking(True)
            given.sendall(b"GET / HTTP/1.1\r\n\r\n")
            given.settimeout(5)
            assert (await trio.to_thread.run_sync(given.recv, 1000)).endswith(b"page")
        nursery.cancel_scope.cancel()
