"""What the scripted server was sent, byte for byte, and when."""

import base64
import os
from pathlib import Path
from typing import BinaryIO

import msgspec
import trio
from msgspec import Struct


class Recorded(Struct):
    """One request.  Times are `time.monotonic_ns` of the server's machine."""

    name: str
    """Of the conversation."""
    number: int
    """Counts the requests of this conversation from 1."""
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    """Empty where bodies are not kept; `size` is right all the same."""
    size: int
    connection: int
    """Which connection it came on, from 1."""
    first_byte_ns: int
    last_byte_ns: int
    previous_end_ns: int
    """The last byte of the reply before, of this conversation; 0 for the first."""
    status: int = 0
    step: int = 0
    """The number of the step that answered; 0 for a refusal."""
    refusal: str = ""
    first_sent_ns: int = 0
    """The first byte of the reply's body."""
    end_ns: int = 0
    """The last byte of the reply; 0 while it is under way."""
    cut: bool = False
    """The client left before the end."""

    def header(self, name: str) -> str:
        """The value of a header; empty where there is none."""
        return next((value for key, value in self.headers if key == name.lower()), "")

    def json(self) -> dict[str, object]:
        """The body, decoded."""
        return msgspec.json.decode(self.body, type=dict[str, object])


class Recording:
    """All requests of a server, in memory and, if wanted, as JSON lines in a file."""

    def __init__(self, path: Path | None = None, *, keep_bodies: bool = True) -> None:
        self._file: BinaryIO | None = None if path is None else _opened(path)
        self._keep = keep_bodies
        self._requests: dict[str, list[Recorded]] = {}
        self._changed = trio.Event()

    def of(self, name: str) -> list[Recorded]:
        """The conversation's requests so far, in order of arrival."""
        return self._requests.setdefault(name, [])

    def add(self, request: Recorded) -> None:
        if not self._keep:
            request.body = b""
        self.of(request.name).append(request)
        self._tell()

    def ended(self, request: Recorded) -> None:
        """The reply is over; the line goes to the file."""
        if self._file is not None:
            self._file.write(_line(request))
        self._tell()

    async def wait_for(self, name: str, count: int, *, ended: bool = False) -> list[Recorded]:
        """Until this conversation has so many requests (`ended`: with their replies over)."""
        while True:
            found = self.of(name)
            if len(found) >= count and (not ended or all(request.end_ns for request in found[:count])):
                return found
            await self._changed.wait()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _opened(path: Path) -> BinaryIO:
    """To append to, for its owner alone: what is said to a model is nobody else's business."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab", 0)


def _line(request: Recorded) -> bytes:
    """`body` as text; as `body_base64` where it is not UTF-8.  The key stays out of the file."""
    fields: dict[str, object] = msgspec.structs.asdict(request)
    fields["headers"] = [
        (name, "[masked]" if name == "authorization" else value) for name, value in request.headers
    ]
    try:
        fields["body"] = request.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(request.body).decode()
        del fields["body"]
    return msgspec.json.encode(fields) + b"\n"
