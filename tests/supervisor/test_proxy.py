"""The proxy over real sockets: what passes, what is refused and named, and that nothing stays behind."""

import gc
import os
import socket
import subprocess
import threading
from contextlib import suppress

import pytest
import trio

from protocol.permission import Kind, Permission
from supervisor.network import proxy as proxy_module
from supervisor.network.door import Door
from supervisor.network.hosts import Hosts
from supervisor.network.proxy import CONNECTIONS, HEAD_BYTES, serve_proxy
from tests.supervisor.network_stage import Names, listening, ok, proxying, serving


async def echo(stream: trio.SocketStream) -> None:
    """Sends back what comes, and a word after its end."""
    async with stream:
        async for data in stream:
            await stream.send_all(data)
        await stream.send_all(b"-end")


def connect(target: str, after: bytes = b"") -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode() + after


def get(url: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {url} HTTP/1.1", *headers, "", ""]).encode()


async def test_a_tunnel_to_a_listed_host_carries_bytes_both_ways_and_each_end_alone() -> None:
    async with listening(echo) as port, proxying(f"127.0.0.1:{port}") as proxy:
        told = await proxy.ask(connect(f"127.0.0.1:{port}", b"early"))
        head, _, body = told.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert body == b"early-end"
        assert proxy.denied == []


async def test_a_large_transfer_is_whole() -> None:
    data = os.urandom(3_000_000)
    async with listening(echo) as port, proxying(f"127.0.0.1:{port}") as proxy:
        async with await proxy.connect() as stream, trio.open_nursery() as nursery:

            async def send() -> None:
                await stream.send_all(connect(f"127.0.0.1:{port}") + data)
                await stream.send_eof()

            nursery.start_soon(send)
            told = b"".join([part async for part in stream])
        assert told.partition(b"\r\n\r\n")[2] == data + b"-end"


@pytest.mark.parametrize(
    ("target", "permission"),
    [
        ("other.example:443", "other.example:443"),
        ("listed.example:80", "listed.example:80"),
        ("listed.example.evil.net:443", "listed.example.evil.net:443"),
        ("evil-listed.example:443", "evil-listed.example:443"),
        ("127.0.0.2:443", "127.0.0.2:443"),
        ("169.254.169.254:443", "169.254.169.254:443"),
        ("[::1]:443", "[::1]:443"),
        ("[::ffff:127.0.0.1]:443", "127.0.0.1:443"),
        ("files.example:443", "files.example:443"),
    ],
)
async def test_what_is_not_listed_is_refused_and_named(target: str, permission: str) -> None:
    names = Names({"listed.example": [["127.0.0.1"]]})
    async with proxying("listed.example:443", "*.files.example:443", names=names) as proxy:
        told = await proxy.ask(connect(target))
        assert told.startswith(b"HTTP/1.1 403 network:" + permission.encode() + b" is not allowed\r\n")
        assert f"needs=['network:{permission}']".encode() in told
        assert [each.permission for each in proxy.denied] == [Permission(Kind.NETWORK, permission)]
        assert names.asked == []


@pytest.mark.parametrize(
    "target",
    ["2130706433:443", "0x7f000001:443", "0177.0.0.1:443", "127.1:443", "a..b:443", "listed.example"],
)
async def test_an_odd_target_is_refused(target: str) -> None:
    async with proxying("listed.example:443", "127.0.0.1:443") as proxy:
        told = await proxy.ask(connect(target))
        assert told.startswith(b"HTTP/1.1 400 ")


async def test_a_name_that_leads_inside_is_refused_also_when_it_changes_its_mind() -> None:
    async with listening(echo) as port:
        names = Names({"rebound.example": [["93.184.216.34", "127.0.0.1"], ["127.0.0.1"]]})
        names.told["rebound.example"].pop(0)
        async with proxying(f"rebound.example:{port}", names=names) as proxy:
            told = await proxy.ask(connect(f"rebound.example:{port}"))
            assert told.startswith(b"HTTP/1.1 403 network:127.0.0.1:")
            assert b"no public address" in told


async def test_plain_http_is_passed_on_in_origin_form_without_the_headers_of_a_hop() -> None:
    async with serving(
        ok(b"hello", b"X-Kept: 1", b"Keep-Alive: timeout=5", b"Connection: keep-alive")
    ) as server:
        async with proxying(f"127.0.0.1:{server.port}") as proxy:
            place = f"127.0.0.1:{server.port}"
            request = get(
                f"http://{place}/a/b?c=%20d", f"Host: {place}", "Accept: */*", "Proxy-Connection: keep-alive",
                "Proxy-Authorization: Basic eDp5", "Connection: X-Hop", "X-Hop: 1",
            )  # fmt: skip
            told = await proxy.ask(request, end=False)
        head, _, body = told.partition(b"\r\n\r\n")
        assert body == b"hello"
        assert b"200 OK" in head
        assert b"x-kept: 1" in head.lower()
        assert b"keep-alive" not in head.lower()
        (heard,) = server.heard
        assert heard.startswith(b"GET /a/b?c=%20d HTTP/1.1\r\n")
        assert b"proxy-" not in heard.lower()
        assert b"x-hop" not in heard.lower()
        assert b"connection: close" in heard.lower()


async def test_a_body_is_passed_on() -> None:
    async with (
        serving(ok(b"got it", status=b"201 Created")) as server,
        proxying(f"127.0.0.1:{server.port}") as proxy,
    ):
        place = f"127.0.0.1:{server.port}"
        request = f"POST http://{place}/ HTTP/1.1\r\nHost: {place}\r\nContent-Length: 5\r\n\r\n12345".encode()
        told = await proxy.ask(request, end=False)
        assert told.startswith(b"HTTP/1.1 201 Created")
        assert told.endswith(b"\r\n\r\ngot it")
        assert server.heard[0].endswith(b"\r\n\r\n12345")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nabc",
    ],
)
async def test_an_answer_of_any_framing_arrives_whole(answer: bytes) -> None:
    async with serving(answer) as server, proxying(f"127.0.0.1:{server.port}") as proxy:
        told = await proxy.ask(f"GET http://127.0.0.1:{server.port}/ HTTP/1.0\r\n\r\n".encode(), end=False)
        assert told.partition(b"\r\n\r\n")[2] == b"abc"


async def test_the_answer_to_head_has_no_body() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n") as server:
        async with proxying(f"127.0.0.1:{server.port}") as proxy:
            place = f"127.0.0.1:{server.port}"
            request = f"HEAD http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n"
            told = await proxy.ask(request.encode(), end=False)
            assert told.startswith(b"HTTP/1.1 200 OK")
            assert told.endswith(b"\r\n\r\n")


async def test_each_request_of_a_connection_is_checked_since_there_is_one() -> None:
    async with serving(ok(b"one")) as server, proxying(f"127.0.0.1:{server.port}") as proxy:
        place = f"127.0.0.1:{server.port}"
        told = await proxy.ask(
            get(f"http://{place}/", f"Host: {place}") + get("http://x.example/", "Host: x.example")
        )
        assert told.count(b"HTTP/1.1 ") == 1
        assert len(server.heard) == 1
        assert b"x.example" not in server.heard[0]


async def test_the_next_hop_of_a_redirect_is_another_request_and_is_checked() -> None:
    async with serving(ok(b"", b"Location: http://169.254.169.254/", status=b"302 Found")) as server:
        async with proxying(f"127.0.0.1:{server.port}") as proxy:
            place = f"127.0.0.1:{server.port}"
            told = await proxy.ask(get(f"http://{place}/", f"Host: {place}"), end=False)
            assert b"302 Found" in told
            told = await proxy.ask(get("http://169.254.169.254/", "Host: 169.254.169.254"))
            assert told.startswith(b"HTTP/1.1 403 ")
            assert [str(each.permission) for each in proxy.denied] == ["network:169.254.169.254:80"]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/", "Host: listed.example"), 400),
        (get("https://listed.example/", "Host: listed.example"), 400),
        (get("ftp://listed.example/", "Host: listed.example"), 400),
        (get("file:///etc/passwd", "Host: listed.example"), 400),
        (get("http://user:word@listed.example/", "Host: listed.example"), 400),
        (get("http://listed.example/", "Host: other.example"), 400),
        (get("http://listed.example/", "Host: listed.example:81"), 400),
        (get("http://listed.example:99999/", "Host: listed.example"), 400),
        (get("http://listed.example/", "Host: listed.example", "Host: other.example"), 400),
        (get("http:///", "Host: listed.example"), 400),
        (b"TRACE http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\n\r\n", 405),
        (b"BREW http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\n\r\n", 405),
        (b"\x05\x01\x00", 400),
        (b"nonsense\r\n\r\n", 400),
        (get("http://listed.example/", "Host: listed.example", "X: " + "y" * 3 * HEAD_BYTES), 431),
        (
            b"POST http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\nContent-Length: 3\r\n"
            b"Content-Length: 4\r\n\r\nabcd",
            400,
        ),
    ],
)  # fmt: skip
async def test_what_is_no_request_for_a_proxy_gets_a_clear_no(request_bytes: bytes, status: int) -> None:
    names = Names({"listed.example": [["127.0.0.1"]]})
    async with proxying("listed.example:80", "listed.example:443", names=names) as proxy:
        told = await proxy.ask(request_bytes)
        assert told.startswith(f"HTTP/1.1 {status} ".encode()), told
        assert names.asked == []


async def test_a_length_beside_chunks_is_not_passed_on() -> None:
    async with serving(ok(b"")) as server, proxying(f"127.0.0.1:{server.port}") as proxy:
        place = f"127.0.0.1:{server.port}"
        head = f"POST http://{place}/ HTTP/1.1\r\nHost: {place}\r\nContent-Length: 4\r\n"
        await proxy.ask(f"{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode(), end=False)
        (heard,) = server.heard
        assert b"content-length" not in heard.lower()


async def test_a_host_that_can_not_be_reached_is_a_failure_and_no_denial() -> None:
    async with proxying("gone.example:443") as proxy:
        told = await proxy.ask(connect("gone.example:443"))
        assert told.startswith(b"HTTP/1.1 502 ")
        assert b"Name or service not known" in told
        assert proxy.denied == []


async def test_a_server_that_answers_nonsense_is_a_failure() -> None:
    async with serving(b"nonsense\r\n\r\n") as server, proxying(f"127.0.0.1:{server.port}") as proxy:
        told = await proxy.ask(
            get(f"http://127.0.0.1:{server.port}/", f"Host: 127.0.0.1:{server.port}"), end=False
        )
        assert told.startswith(b"HTTP/1.1 502 ")


async def test_a_grant_counts_from_the_next_connection_on() -> None:
    async with listening(echo) as port, proxying() as proxy:
        assert b" 403 " in await proxy.ask(connect(f"127.0.0.1:{port}"))
        proxy.hosts.add(f"127.0.0.1:{port}")
        assert b" 200 " in await proxy.ask(connect(f"127.0.0.1:{port}"))


async def test_a_client_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "HEAD_SECONDS", 0.05)
    async with proxying() as proxy, await proxy.connect() as stream:
        with trio.fail_after(5):
            told = b"".join([part async for part in stream])
        assert told.startswith(b"HTTP/1.1 408 ")


async def test_connections_beyond_the_limit_wait_for_one_to_end() -> None:
    async with proxying() as proxy:
        idle = [await proxy.connect() for _ in range(CONNECTIONS)]
        async with await proxy.connect() as stream:
            await stream.send_all(connect("x.example:1"))
            with trio.move_on_after(0.2) as waited:
                await stream.receive_some()
            assert waited.cancelled_caught
            await idle[0].aclose()
            with trio.fail_after(5):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 403 ")
        for each in idle:
            await each.aclose()


async def test_nothing_stays_open_after_a_cancel_in_the_middle_of_everything() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    async with listening(echo) as port, trio.open_nursery() as nursery:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = listener.getsockname()
            nursery.start_soon(serve_proxy, listener.dup(), Hosts([f"127.0.0.1:{port}"]), print)
        streams = [await trio.open_tcp_stream(*place) for _ in range(3)]
        await streams[0].send_all(connect(f"127.0.0.1:{port}"))
        assert (await streams[0].receive_some()).startswith(b"HTTP/1.1 200 ")
        await streams[1].send_all(b"GET http://half")
        nursery.cancel_scope.cancel()
    for stream in streams:
        await stream.aclose()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_door_that_is_closed_while_it_takes_somebody_in_keeps_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))

    async def serve(listener: socket.socket) -> None:
        with Door(listener) as door:
            while True:
                await (await door.accept()).aclose()

    for number in range(100):
        listener = socket.create_server(("127.0.0.1", 0))
        with socket.create_connection(listener.getsockname()):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, listener)
                for _ in range(number % 7):
                    await trio.lowlevel.checkpoint()
                await trio.sleep(0.0002 * (number % 5))
                nursery.cancel_scope.cancel()
    with trio.fail_after(5):  # threads that nobody waits for are leaving still
        while len(os.listdir("/proc/self/fd")) != before:
            await trio.sleep(0.01)
    gc.collect()  # what was forgotten open would be a warning here


@pytest.mark.skipif(not os.path.exists("/usr/bin/curl"), reason="there is no curl")
async def test_an_ordinary_program_finds_its_way_and_shows_why_not() -> None:
    async with serving(ok(b"page")) as server, proxying(f"127.0.0.1:{server.port}") as proxy:

        async def curl(url: str, *more: str) -> subprocess.CompletedProcess[bytes]:
            command = ["/usr/bin/curl", "-sS", "-m", "8", "-x", f"http://127.0.0.1:{proxy.port}", *more, url]
            return await trio.to_thread.run_sync(
                lambda: subprocess.run(command, capture_output=True, check=False)
            )

        assert (await curl(f"http://127.0.0.1:{server.port}/")).stdout == b"page"
        assert (await curl(f"http://127.0.0.1:{server.port}/", "-p")).stdout == b"page"
        assert b"403" in (await curl("https://x.example/")).stderr
        assert b"needs=['network:x.example:80']" in (await curl("http://x.example/")).stdout


async def test_a_worker_that_keeps_the_door_can_t_hold_the_program_up() -> None:
    """It shares the socket, so it can make it block, and take connections before us."""
    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.01)
            ticks += 1

    def take() -> None:
        for _ in range(20):
            kept.setblocking(True)
            with suppress(OSError):
                kept.accept()[0].close()

    with listener.dup() as kept:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_proxy, listener, Hosts([]), lambda denial: None)
            nursery.start_soon(tick)
            thread = threading.Thread(target=take, daemon=True)
            thread.start()
            for _ in range(60):
                with socket.create_connection(place):
                    await trio.sleep(0.005)
            before = ticks
            await trio.sleep(0.2)
            assert ticks > before
            nursery.cancel_scope.cancel()
        thread.join(5)
        assert not thread.is_alive()
