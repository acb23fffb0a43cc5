"""fetch over real sockets: servers that play by the rules, and those that don't."""

import gzip
import os
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.permission import Permission, parse
from protocol.tools import fetch as words
from protocol.tools.fetch import Fetch, Url, UrlError, needs_of
from protocol.wire import Denial, Status
from tests.worker.desk import Room
from worker.call import Call, Outcome, ToolError
from worker.tools import fetch
from worker.tools.fetch import NOTICE
from worker.web import exchange

Answering = Callable[[socket.socket, bytes], None]


class Site:
    """A server on loopback, and the supervisor's part: it connects every host to it but `refused`."""

    def __init__(self, room: Room, answers: dict[str, bytes | Answering]) -> None:
        self.room = room
        self.answers = answers
        self.heard: list[bytes] = []
        self.dialled: list[tuple[str, int]] = []
        self.refused: set[str] = set()
        self.context: ssl.SSLContext | None = None
        self._door = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for thread in self._threads:
            thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self._door.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._answer, args=(visitor,), daemon=True))
            self._threads[-1].start()

    def _answer(self, visitor: socket.socket) -> None:
        with visitor:
            try:
                if self.context is not None:
                    visitor = self.context.wrap_socket(visitor, server_side=True)
                request = b""
                while b"\r\n\r\n" not in request:
                    if not (part := visitor.recv(4096)):
                        return
                    request += part
                self.heard.append(request)
                answer = self.answers[request.split()[1].decode()]
                if callable(answer):
                    answer(visitor, request)
                else:
                    visitor.sendall(answer)
            except OSError:
                return
            finally:
                visitor.close()

    def dial(self, host: str, port: int) -> socket.socket:
        self.dialled.append((host, port))
        if host in self.refused:
            denial = Denial(f"a connection to {host}:{port}", parse(f"network:{host}:{port}"))
            raise ToolError(f"the sandbox refuses {denial.what}", Status.REFUSED, denial)
        return socket.create_connection(self._door.getsockname())

    def fetch(self, url: str = "http://site.example/") -> Outcome:
        call = self.room.call
        outcome = fetch.run(
            Fetch(url), Call(call.id, call.desk, call.cancelled, call.say, self.open_output, self.dial)
        )
        assert len(outcome.text.encode()) <= call.desk.limits.result_cap_bytes
        return outcome

    def open_output(self) -> tuple[str, int]:
        path = self.room.output / "c1.txt"
        return path.name, os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)


def answer(
    body: bytes, kind: str = "text/html; charset=utf-8", *headers: str, status: str = "200 OK"
) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {kind}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def moved(to: str, status: str = "302 Found") -> bytes:
    return answer(b"", "text/html", f"Location: {to}", status=status)


@pytest.fixture
def site(room: Room) -> Iterator[Site]:
    made = Site(room, {})
    yield made
    made.close()


def test_a_page_comes_as_text_and_says_first_that_it_is_data(site: Site) -> None:
    site.answers["/a?b=c%20d"] = answer(
        b"<title>T</title><h1>Head</h1><p>One <a href='/x'>link</a>.<script>no()</script>"
    )
    told = site.fetch("http://Site.Example/a?b=c d#part")
    assert told.text.split("\n") == [
        "http://site.example/a?b=c%20d (200 OK, text/html)",
        NOTICE,
        "",
        "T",
        "",
        "# Head",
        "",
        "One link <http://site.example/x>.",
    ]
    assert told.status is Status.DONE
    assert told.display.summary == "site.example: 200, 5 lines"
    assert site.dialled == [("site.example", 80)]
    assert b"\r\nHost: site.example\r\n" in site.heard[0]


@pytest.mark.parametrize(
    "kind", ["application/json", "text/plain", "application/rss+xml", "text/markdown; x=y", ""]
)
def test_text_of_other_types_comes_as_it_is(site: Site, kind: str) -> None:
    site.answers["/"] = answer(b'{"a": "<b>"}', kind)
    assert site.fetch().text.endswith('\n\n{"a": "<b>"}')


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"%PDF", "application/pdf"),
        (b"\x89PNG", "image/png"),
        (b"a\0b", "text/plain"),
        (b"a\0b", "application/octet-stream"),
    ],
)
def test_what_is_no_text_is_named_with_its_type_and_size(site: Site, body: bytes, kind: str) -> None:
    site.answers["/"] = answer(body, kind)
    with pytest.raises(ToolError, match=rf"no text: {kind}, {len(body)} bytes.*network:site.example:80"):
        site.fetch()


def test_each_hop_of_a_redirect_is_dialled_anew_and_a_refused_one_names_its_permission(site: Site) -> None:
    site.answers |= {
        "/": moved("/two"),
        "/two": moved("http://other.example:81/three", "308 P"),
        "/three": answer(b"end", "text/plain"),
    }
    told = site.fetch()
    assert told.text.startswith(
        "http://other.example:81/three (200 OK, text/plain)\n[redirected from http://site.example/]\n"
    )
    assert site.dialled == [("site.example", 80), ("site.example", 80), ("other.example", 81)]
    site.refused = {"other.example"}
    with pytest.raises(ToolError) as raised:
        site.fetch()
    assert raised.value.denial is not None
    assert str(raised.value.denial.permission) == "network:other.example:81"
    assert raised.value.status is Status.REFUSED


@pytest.mark.parametrize(
    "to",
    ["file:///etc/passwd", "ftp://x.example/", "http://u:p@x.example/", "http://2130706433/", "//[::1%lo]/"],
)
def test_a_redirect_to_what_is_no_page_is_refused_before_anybody_is_dialled(site: Site, to: str) -> None:
    site.answers["/"] = moved(to)
    with pytest.raises(ToolError, match="leads to what can't be fetched"):
        site.fetch()
    assert len(site.dialled) == 1


def test_redirects_end(site: Site) -> None:
    site.answers["/"] = moved("/")
    with pytest.raises(ToolError, match="more than 5 redirects"):
        site.fetch()
    assert len(site.dialled) == fetch.HOPS + 1


def test_a_long_page_is_cut_and_lies_whole_in_a_file(site: Site) -> None:
    body = "".join(f"line {number}\n" for number in range(20_000))
    site.answers["/"] = answer(body.encode(), "text/plain")
    told = site.fetch()
    assert "line 0\n" in told.text
    assert told.text.endswith("line 19999\n")
    assert "bytes left out here; the whole output: /run/polier/output/c1.txt" in told.text
    assert (site.room.output / "c1.txt").read_text() == body


def test_a_page_of_an_error_is_shown_as_a_failure(site: Site) -> None:
    site.answers["/"] = answer(b"<p>gone away", status="404 Not Found")
    told = site.fetch()
    assert told.status is Status.FAILED
    assert told.text.startswith("http://site.example/ (404 Not Found, text/html)")
    assert told.text.endswith("gone away")


@pytest.mark.parametrize("packing", ["gzip", "deflate", "raw"])
def test_a_packed_page_is_unpacked(site: Site, packing: str) -> None:
    text = b"packed " * 1000
    machine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = {
        "gzip": gzip.compress(text),
        "deflate": zlib.compress(text),
        "raw": machine.compress(text) + machine.flush(),
    }
    name = "deflate" if packing == "raw" else packing
    site.answers["/"] = answer(packed[packing], "text/plain", f"Content-Encoding: {name}")
    assert site.fetch().text.endswith(text.decode())


def test_a_bomb_is_unpacked_only_up_to_the_bound(site: Site) -> None:
    bomb = gzip.compress(b"x" * 100_000_000, 9)
    assert len(bomb) < 400_000
    site.answers["/"] = answer(bomb, "text/plain", "Content-Encoding: gzip")
    begun = time.monotonic()
    told = site.fetch()
    assert f"[cut: the page goes on after {exchange.BODY_BYTES:,} bytes]" in told.text
    assert time.monotonic() - begun < 10


def test_a_body_without_end_is_cut(site: Site) -> None:
    def endless(visitor: socket.socket, _request: bytes) -> None:
        visitor.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            visitor.sendall(b"y" * 65536)

    site.answers["/"] = endless
    assert "[cut: the page goes on" in site.fetch().text


def test_a_slow_server_ends_with_the_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(visitor: socket.socket, _request: bytes) -> None:
        visitor.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        for _ in range(100):
            visitor.sendall(b".")
            time.sleep(0.05)

    monkeypatch.setattr(fetch, "SECONDS", 0.4)
    site.answers["/"] = slow
    begun = time.monotonic()
    with pytest.raises(ToolError, match="it took more than"):
        site.fetch()
    assert time.monotonic() - begun < 3


def test_a_cancel_is_noticed_while_a_server_says_nothing(site: Site) -> None:
    def silent(visitor: socket.socket, _request: bytes) -> None:
        site.room.cancelled.set()
        visitor.recv(1)

    site.answers["/"] = silent
    assert site.fetch().status is Status.CANCELLED


@pytest.mark.parametrize(
    "said",
    [
        b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 9999999 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: br\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\nabc",
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_failure_in_words(site: Site, said: bytes) -> None:
    site.answers["/"] = said
    with pytest.raises(ToolError, match=r"^http://site.example/: "):
        site.fetch()


def test_a_body_that_breaks_off_says_so(site: Site) -> None:
    site.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\nhalf"
    told = site.fetch()
    assert told.text.endswith("half")
    assert "[cut: the page goes on after 4 bytes]" in told.text


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for site.example that is its own authority, and its key."""
    directory = tmp_path_factory.mktemp("certificates")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=site.example", "-addext", "subjectAltName=DNS:site.example",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def secured(site: Site, certificates: tuple[Path, Path], *, trusted: bool) -> None:
    site.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    site.context.load_cert_chain(*certificates)
    site.answers["/"] = answer(b"safe", "text/plain")
    if trusted:
        site.room.confine(environment=(("SSL_CERT_FILE", str(certificates[0])),))


def test_https_is_verified_and_read(site: Site, certificates: tuple[Path, Path]) -> None:
    secured(site, certificates, trusted=True)
    assert site.fetch("https://site.example/").text.endswith("\nsafe")
    assert site.dialled == [("site.example", 443)]


def test_a_certificate_of_another_host_or_stranger_is_not_accepted(
    site: Site, certificates: tuple[Path, Path]
) -> None:
    secured(site, certificates, trusted=True)
    with pytest.raises(ToolError, match=r"the certificate of other\.example is not accepted"):
        site.fetch("https://other.example/")
    site.room.confine(environment=())
    with pytest.raises(ToolError, match=r"the certificate of site\.example is not accepted|no certificates"):
        site.fetch("https://site.example/")
    assert site.heard == []


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://example.org", Url("http", "example.org", 80, "/")),
        (" https://EXAMPLE.org.:8443/a b?q=ü#x ", Url("https", "example.org", 8443, "/a%20b?q=%C3%BC")),
        ("https://bücher.example/ä", Url("https", "xn--bcher-kva.example", 443, "/%C3%A4")),
        ("http://[::1]:8080/", Url("http", "::1", 8080, "/")),
        ("http://example.org/%61/%2F/./b/../c%20/..", Url("http", "example.org", 80, "/a/%2F/")),
        ("http://example.org/..", Url("http", "example.org", 80, "/")),
        ("http://example.org/a\r\nX: y", Url("http", "example.org", 80, "/aX:%20y")),
    ],
)
def test_a_url_has_one_spelling(url: str, wanted: Url) -> None:
    assert words.parse(url) == wanted
    assert words.parse(str(wanted)) == wanted
    assert needs_of(Fetch(url)) == wanted.permission
    assert parse(str(wanted.permission)) == wanted.permission
    assert isinstance(wanted.permission, Permission)


@pytest.mark.parametrize(
    "url",
    ["", "example.org", "ftp://a.org/", "http://", "http:///x", "http://a.org:0/", "http://a.org:99999/", "http://u@a.org/",
     "http://127.1/", "http://0x7f000001/", "file:///etc/passwd", "http://a.org/\ud800",
     "http://[::1/", "http://a.org/" + "x" * 9000],
)  # fmt: skip
def test_what_is_no_url_is_refused_and_needs_nothing(site: Site, url: str) -> None:
    with pytest.raises(UrlError):
        words.parse(url)
    assert needs_of(Fetch(url)) is None
    with pytest.raises(ToolError) as raised:
        site.fetch(url)
    assert raised.value.status is Status.REFUSED
    assert site.dialled == []
