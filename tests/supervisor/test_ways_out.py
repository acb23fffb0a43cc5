"""Out of a real worker: what its proxy and `fetch` reach, and what nothing reaches."""

import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from protocol.conversation import ToolCall
from protocol.display import Display
from protocol.permission import Kind, Permission
from protocol.policy import Network, Rung
from protocol.wire import Denial, Status, ToolFinished
from supervisor.pool.opening import open_pool
from supervisor.pool.ways_out import with_denials
from supervisor.pool.workers import Pool
from tests.supervisor.network_stage import listening, ok, serving
from tests.supervisor.pool_play import LAUNCH, LIMITS, Site

REAL = replace(LAUNCH, registry="worker.tools.registry")


class Outside:
    """A pool whose workers have a list of hosts."""

    def __init__(self, site: Site, pool: Pool) -> None:
        self.site = site
        self.pool = pool
        self._calls = 0

    async def run(self, name: str, **arguments: object) -> ToolFinished:
        results: list[ToolFinished] = []
        self._calls += 1
        call = ToolCall(f"{name}-{self._calls}", name, json.dumps(arguments))
        with trio.fail_after(40):
            await self.pool.run(call, results.append, self.site.said.append)
        return results[0]

    async def command(self, command: str) -> ToolFinished:
        return await self.run("run_command", command=command)

    async def full(self) -> None:
        if (ready := await self.pool.ready()).rung is not Rung.FULL:
            pytest.skip(f"no namespaces here: {ready.notes} {ready.refuse_commands}")


@asynccontextmanager
async def outside(root: Path, *hosts: str, network: Network = Network.OFF) -> AsyncIterator[Outside]:
    site = Site(root)
    policy = replace(site.policy, network=network, hosts=hosts)
    opening = open_pool(policy, LIMITS, site.open_output, site.tell, environ=os.environ, launch=REAL)
    async with opening as pool:
        yield Outside(site, pool)


def needed(*places: str) -> list[Permission | None]:
    return [Permission(Kind.NETWORK, place) for place in places]


TRY = """
import socket, sys
kind, family, address, *port = sys.argv[1:]
made = socket.socket(getattr(socket, family), getattr(socket, kind))
made.settimeout(3)
try:
    made.connect((address, int(port[0])) if port else "\\0" + address)
    made.send(b"out")
    print("sent")
except OSError as error:
    print("no:", error)
"""


async def test_a_command_reaches_what_is_listed_through_the_proxy_and_the_rest_is_named(
    tmp_path: Path,
) -> None:
    async with serving(ok(b"the page")) as server:
        place = f"127.0.0.1:{server.port}"
        async with outside(tmp_path, place, network=Network.LISTED) as out:
            await out.full()
            # NO_PROXY names loopback, which is the sandbox's own; the proxy's means ours.
            told = await out.command(f"curl -sS --noproxy '' http://{place}/")
            assert (told.text, told.denials) == ("the page", ())
            told = await out.command("curl -sS http://x.example/; curl -sS https://y.example/")
            assert [one.permission for one in told.denials if one.sure] == needed(
                "x.example:80", "y.example:443"
            )
            assert 'ask with needs=["network:y.example:443"]' in told.text


async def test_with_the_network_off_nothing_passes_and_what_was_wanted_is_named(tmp_path: Path) -> None:
    async with serving(ok(b"the page")) as server:
        place = f"127.0.0.1:{server.port}"
        # What pages are fetched from is not for commands.
        async with outside(tmp_path, place) as out:
            await out.full()
            told = await out.command(f"curl -sS --noproxy '' http://{place}/")
            assert [one.permission for one in told.denials] == needed(place)
        assert server.visits == 0


@pytest.mark.parametrize("network", [Network.OFF, Network.LISTED])
async def test_nothing_gets_out_beside_the_proxy(tmp_path: Path, network: Network) -> None:
    """Each listener of ours is tried from inside, and hears nothing."""
    name = f"polier-{os.urandom(6).hex()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{name}")
        abstract.listen()
        for listener in (tcp, udp, abstract):
            listener.setblocking(False)
        tries = (
            f"SOCK_STREAM AF_INET 127.0.0.1 {tcp.getsockname()[1]}",
            f"SOCK_DGRAM AF_INET 127.0.0.1 {udp.getsockname()[1]}",
            "SOCK_STREAM AF_INET 1.1.1.1 443",
            "SOCK_DGRAM AF_INET 1.1.1.1 53",
            f"SOCK_STREAM AF_UNIX {name}",
        )
        async with outside(tmp_path, "listed.example:443", network=network) as out:
            await out.full()
            (out.site.workspace / "try.py").write_text(TRY)
            told = await out.command("; ".join(f"{sys.executable} try.py {each}" for each in tries))
            # A datagram to the sandbox's own loopback is sent, and heard by nobody.
            assert [line.split(":")[0] for line in told.text.splitlines()][:5].count("no") >= 4, told.text
            told = await out.command("getent hosts listed.example || echo no name")
            assert told.text.splitlines()[0] == "no name"
        for listener in (tcp, abstract):
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(10)


async def test_the_sandbox_has_a_loopback_of_its_own(tmp_path: Path) -> None:
    async with outside(tmp_path) as out:
        await out.full()
        told = await out.command(
            f"{sys.executable} -m http.server 8099 --bind 127.0.0.1 >/dev/null 2>&1 & "
            "for i in $(seq 50); do curl -sS http://localhost:8099/ >page 2>&1 && break; sleep 0.1; done; "
            "grep -c 'Directory listing' page; kill %1"
        )
        assert told.text.splitlines()[0] != "0", told.text


async def test_fetch_reads_what_is_listed_on_every_rung(tmp_path: Path) -> None:
    async with serving(ok(b"<h1>Hello</h1>", b"Content-Type: text/html")) as server:
        place = f"127.0.0.1:{server.port}"
        async with outside(tmp_path, place) as out:
            told = await out.run("fetch", url=f"http://{place}/page")
            assert told.status is Status.DONE
            assert told.text.splitlines()[0] == f"http://{place}/page (200 OK, text/html)"
            assert told.text.endswith("\n\n# Hello")
            assert told.denials == ()
        assert b"GET /page HTTP/1.1" in server.heard[0]


async def test_fetch_of_what_is_not_listed_is_refused_and_named_the_hop_of_a_redirect_too(
    tmp_path: Path,
) -> None:
    async with serving(ok(b"", b"Location: http://[::ffff:169.254.169.254]/", status=b"302 Found")) as server:
        place = f"127.0.0.1:{server.port}"
        async with outside(tmp_path, place) as out:
            for url, wanted in (
                ("https://x.example/", "x.example:443"),
                (f"http://127.0.0.2:{server.port}/", f"127.0.0.2:{server.port}"),
                (f"http://{place}/", "169.254.169.254:80"),
            ):
                told = await out.run("fetch", url=url)
                assert told.status is Status.REFUSED, told.text
                assert [one.permission for one in told.denials] == needed(wanted)
                assert f"network:{wanted}" in told.text
        assert server.visits == 1


async def test_fetch_reaches_everything_where_the_network_is_on(tmp_path: Path) -> None:
    async with serving(ok(b"text", b"Content-Type: text/plain")) as server:
        async with outside(tmp_path, network=Network.ON) as out:
            told = await out.run("fetch", url=f"http://127.0.0.1:{server.port}/")
            assert told.text.endswith("\n\ntext")


async def test_a_fetch_that_is_cancelled_lets_its_connection_go(tmp_path: Path) -> None:
    gone = trio.Event()

    async def silent(stream: trio.SocketStream) -> None:
        async with stream:
            async for _ in stream:
                asked.set()
        gone.set()

    asked = trio.Event()
    async with listening(silent) as port:
        place = f"127.0.0.1:{port}"
        async with outside(tmp_path, place) as out:
            with trio.CancelScope() as scope, trio.fail_after(20):
                async with trio.open_nursery() as calls:
                    calls.start_soon(lambda: out.run("fetch", url=f"http://{place}/"))
                    await asked.wait()
                    scope.cancel()
            with trio.fail_after(10):
                await gone.wait()


def test_what_the_proxy_refused_stands_for_what_was_guessed() -> None:
    permission = Permission(Kind.NETWORK, "x.example:443")
    guess, sure = (
        Denial("perhaps", permission, sure=False),
        Denial("a connection to x.example:443", permission),
    )
    finished = ToolFinished("c", Status.DONE, "text", Display("d"), denials=(guess,))
    told = with_denials(finished, (sure,))
    assert told.denials == (sure,)
    assert told.text == (
        "text\n[sandbox: blocked a connection to x.example:443: it is not on the list of hosts; "
        'ask with needs=["network:x.example:443"]]'
    )
    assert with_denials(told, (sure,)) == told
    assert with_denials(finished, ()) == finished
