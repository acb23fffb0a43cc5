"""The search by ripgrep: the program of the package of that name, run in the directory that is searched.

It is found beside this Python and nowhere else, reads no configuration, follows no links, and speaks JSON,
so that names and lines of any bytes come through.  It dies with the call.
"""

import base64
import os
import re
import selectors
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from worker.files.cancelled import go_on
from worker.files.findings import Hunt, Match, PatternError
from worker.files.walking import Top, Unread

_OPTIONS = (
    "--json", "--no-config", "--hidden", "--glob=!.git", "--no-require-git", "--no-ignore-global",
    "--no-ignore-exclude", "--no-ignore-dot", "--no-ignore-messages", "--sort=path",
    "--no-follow", "--no-mmap", "--crlf",
)  # fmt: skip
_SIMPLE_GLOB = re.compile(r"[\w.*-]+")
_MESSAGE_MAX = 64 * 1024 * 1024
"""Bytes of one message.  A line so long that its message outgrows this is passed over, and that is said."""
_STDERR_MAX = 64 * 1024
_SAID_MAX = 500
"""Characters of its complaint that a result quotes."""
_LOOK_SECONDS = 0.05
_MATCH = b'{"type":"match"'
_UNREADABLE = re.compile(rb"rg: \./(.*?)(?:: IO error for operation on .*)?: (.*) \(os error \d+\)")
_CHUNK = 256 * 1024


class _Text(Struct, frozen=True, rename={"encoded": "bytes"}):
    """Text, or where it is no UTF-8, its bytes in base64."""

    text: str | None = None
    encoded: str | None = None

    def raw(self) -> bytes:
        return base64.b64decode(self.encoded or "") if self.text is None else self.text.encode()


class _Span(Struct, frozen=True):
    start: int
    end: int


class _Data(Struct, frozen=True):
    path: _Text | None = None
    lines: _Text | None = None
    line_number: int | None = None
    submatches: tuple[_Span, ...] = ()


class _Message(Struct, frozen=True):
    type: str
    data: _Data


_decode = msgspec.json.Decoder(_Message).decode


def program() -> str | None:
    """The path of `rg` beside this Python; None where its package is not installed."""
    for directory in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        found = directory / "rg"
        if found.is_file() and os.access(found, os.X_OK):
            return str(found)
    return None


def search_tree(rg: str, top: Top, hunt: Hunt) -> Generator[Match, None, None]:
    """Matches in all text files below the top.

    Raises CancelledError, PatternError, and OSError where the program can't be run.
    """
    glob = hunt.glob
    narrowed: list[str | bytes] = (
        [f"--type-add=wanted:{glob}".encode(), "--type=wanted"]
        if glob and _SIMPLE_GLOB.fullmatch(glob)
        else []
    )
    command: list[str | bytes] = [rg, *_OPTIONS, *narrowed, "-e", hunt.pattern.encode(), "--", "./"]
    with _started(command, subprocess.DEVNULL, f"/proc/self/fd/{top.fd}") as run:
        yield from _matches(run, top.prefix, hunt)


def search_file(rg: str, fd: int, path: bytes, hunt: Hunt) -> Generator[Match, None, None]:
    """Matches in one open file.  Raises as `search_tree`."""
    command: list[str | bytes] = [rg, *_OPTIONS, "-e", hunt.pattern.encode(), "--", "-"]
    with _started(command, fd, "/") as run:
        for match in _matches(run, b"", hunt):
            yield Match(path, match.number, match.line, match.start, match.end)


def _started(command: Sequence[str | bytes], stdin: int, directory: str) -> "_Run":
    return _Run(
        subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=directory, env={}
        )
    )


class _Splitter:
    """Chunks in, whole lines out; a line above the maximum is dropped and counted."""

    def __init__(self, most: int = _MESSAGE_MAX) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0
        self.dropped = 0

    def feed(self, data: bytes) -> list[bytes]:
        lines: list[bytes] = []
        head, ended, rest = data.rpartition(b"\n")
        if ended:
            first, *lines = head.split(b"\n")
            if self._size > self._most:
                self.dropped += 1
            else:
                lines.insert(0, b"".join([*self._pieces, first]))
            self._pieces, self._size = [], 0
        self._size += len(rest)
        if self._size > self._most:
            self._pieces = []
        elif rest:
            self._pieces.append(rest)
        return lines


class _Run:
    """A running ripgrep, ended at the end of the `with` whatever happens in it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.errors = bytearray()
        self.dropped = 0

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()

    def messages(self, cancelled: threading.Event) -> Iterator[bytes]:
        """Its output, line by line; its complaints are kept aside.  Raises CancelledError."""
        splitter = _Splitter()
        with closing(selectors.DefaultSelector()) as selector:
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(_LOOK_SECONDS)
                go_on(cancelled)
                for key, _ in ready:
                    data = os.read(key.fd, _CHUNK)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self.process.stderr:
                        self.errors += data[: _STDERR_MAX - len(self.errors)]
                    else:
                        yield from splitter.feed(data)
        self.dropped = splitter.dropped


def _matches(run: _Run, prefix: bytes, hunt: Hunt) -> Generator[Match, None, None]:
    path, passed_over, whole = b"", False, False
    for line in run.messages(hunt.cancelled):
        if passed_over and line.startswith(_MATCH):
            continue
        message = _decode(line)
        if message.type == "begin" and message.data.path is not None:
            path = prefix + message.data.path.raw().removeprefix(b"./")
            passed_over = not hunt.wanted(path)
        elif message.type == "match" and message.data.lines is not None and not passed_over:
            data = message.data
            text = message.data.lines.raw().removesuffix(b"\n").removesuffix(b"\r")
            first = data.submatches[0] if data.submatches else _Span(0, 0)
            yield Match(path, data.line_number or 0, text, first.start, first.end)
        whole = whole or message.type == "summary"
    _complain(run, prefix, hunt.unread)
    if not whole:
        code, said = run.process.wait(), run.errors.decode("utf-8", "replace").strip()
        said = said.removeprefix("rg: ")
        # The reason stands last; above it the pattern is repeated, however long it is.
        said = said if len(said) <= _SAID_MAX else "…" + said[-_SAID_MAX:]
        raise PatternError(f"the search failed: {said or f'ripgrep ended by {code}'}")


def _complain(run: _Run, prefix: bytes, unread: Unread) -> None:
    """What ripgrep said on its error output: files that it could not read."""
    for line in bytes(run.errors).split(b"\n"):
        found = _UNREADABLE.fullmatch(line)
        if found is not None:
            path, why = found.groups()
            unread.paths.append((prefix + path, why.decode("utf-8", "replace").lower()))
    if run.dropped:
        unread.paths.append((prefix or b".", f"{run.dropped} lines are too long"))
