"""Messages between supervisor and worker, and their frames.

A frame is a length (4 bytes, big endian) and that many bytes of msgpack: one message of a tagged union per
direction.  The supervisor treats what a worker says as a stranger's: the length is checked before anything
is buffered, the shape by a typed decoder.  Unknown fields are ignored, so fields may be added within a
version.  Nothing here depends on the peer being local: file descriptors travel on a second socket, named
by call id, and a peer without one sends output as frames.

    worker                         supervisor
    Hello{min, max}             ->
                                <- Welcome{version, policy, limits} | Nope{why}
    Ready{rung, means, notes}   ->
                                <- RunTool{call_id, name, arguments, ...}
    ToolOutput*, OpenOutput?    ->
                                <- OutputOpened{call_id, name} | OutputRefused{call_id, why}
    Dial?                       ->
                                <- Dialled{call_id} | DialRefused{call_id, why}
                                <- Cancel{call_id}?
    ToolFinished{call_id, ...}  ->
    JobEnded{id, ...}           ->
    ProxyListens                ->                    once, where the worker has a network of its own
"""

from enum import Enum

import msgspec
from msgspec import Struct

from protocol.display import Display
from protocol.permission import Permission
from protocol.policy import Limit, Limits, Means, Rung, SandboxPolicy

VERSION_MIN = 1
VERSION_MAX = 1
"""Versions of this file that this build speaks."""

MAX_FRAME = 16 * 1024 * 1024
"""Bytes.  Results are cut long before this, so a longer frame is a broken peer."""

HANDSHAKE_SECONDS = 10.0
"""A worker that has not said Hello and Ready by then is killed; forked ones need about 10 ms."""

PROXY = "proxy"
"""The name of the proxy's listening socket on the second socket."""

HEADER = 4
"""Bytes of a frame's length."""


class Status(Enum):
    """How a call ended.  All but DONE are failures for the model."""

    DONE = "done"
    FAILED = "failed"
    """The tool ran and says no: not found, not unique.  A command's exit code other than 0 is DONE."""
    REFUSED = "refused"
    """Not run: bad arguments, outside the workspace, no sandbox."""
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    DIED = "died"
    """The worker died; the effect is unknown."""


class Denial(Struct, frozen=True):
    """Something that the sandbox refused.  `what`: in words, one line; `permission`: what would allow it,
    where something would.  `sure`: the policy refuses it and plain permissions would not; otherwise it is
    likely from what was printed."""

    what: str
    permission: Permission | None = None
    sure: bool = True


class Welcome(Struct, frozen=True, tag="welcome"):
    version: int
    policy: SandboxPolicy
    limits: Limits


class Nope(Struct, frozen=True, tag="nope"):
    why: str


class RunTool(Struct, frozen=True, tag="run"):
    call_id: str
    name: str
    arguments: str
    """The JSON text of the arguments, as the model wrote it."""
    approved: bool = False
    """The user allowed this very command to run, though nothing may confine it: on the rung `off` a command
    that isn't approved is refused."""
    cwd: str = ""
    """Where commands start from this call on: another worker has moved there.  Empty: where this worker's
    last command ended."""
    alone: bool = False
    """This worker ends with the call, so nothing may be left running by it."""


class Cancel(Struct, frozen=True, tag="cancel"):
    """Stop this call.  Its ToolFinished still comes, with what it had."""

    call_id: str


class OutputOpened(Struct, frozen=True, tag="output-opened"):
    """The descriptor for this call has been sent on the second socket.  `name`: in the output directory."""

    call_id: str
    name: str


class OutputRefused(Struct, frozen=True, tag="output-refused"):
    call_id: str
    why: str


class Dialled(Struct, frozen=True, tag="dialled"):
    """A socket for this call has been sent on the second socket; the supervisor passes on what goes through
    it.  It is not the connection itself: whoever has that can connect it to another place."""

    call_id: str


class DialRefused(Struct, frozen=True, tag="dial-refused"):
    """`denial`: where the list of hosts is the reason, and not the network."""

    call_id: str
    why: str
    denial: Denial | None = None


ToWorker = Welcome | Nope | RunTool | Cancel | OutputOpened | OutputRefused | Dialled | DialRefused


class Hello(Struct, frozen=True, tag="hello"):
    min: int
    max: int


class Probe(Struct, frozen=True):
    """One means of the sandbox, as it was tried here.  `why`: what the kernel said, or what it gives;
    `remedy`: what whoever owns the machine can do about it, or empty."""

    name: str
    works: bool
    why: str
    remedy: str = ""


class Ready(Struct, frozen=True, tag="ready"):
    """The sandbox is in force.  `notes`: one line for each thing that is not enforced."""

    rung: Rung
    notes: tuple[str, ...] = ()
    refuse_commands: str = ""
    """Why a command that isn't approved is refused here; empty where it may run."""
    means: Means = Means.NONE
    probes: tuple[Probe, ...] = ()
    """What was tried on the way, the strongest first."""


class ToolOutput(Struct, frozen=True, tag="output"):
    """Text that a command has just printed, for the screen.  Merged by time; may be left out."""

    call_id: str
    text: str


class OpenOutput(Struct, frozen=True, tag="open-output"):
    """This call's output outgrows its result: a file is wanted."""

    call_id: str


class ToolFinished(Struct, frozen=True, tag="finished"):
    call_id: str
    status: Status
    text: str
    """What the model gets, already capped."""
    display: Display
    background: tuple[str, ...] = ()
    """What still runs after the call, one line each: job id, pid, command."""
    paths: tuple[str, ...] = ()
    """Files written, relative to the workspace."""
    denials: tuple[Denial, ...] = ()
    """What the sandbox kept the call from."""
    limit: Limit | None = None
    """The limit that ended the command."""
    cwd: str = ""
    """Where the next command starts; empty where that can't be known."""
    jobs: int = 0
    """Background jobs of this worker that run now."""


class JobEnded(Struct, frozen=True, tag="job-ended"):
    """A background job is over.  `line`: its id, command and how it ended.  `jobs`: how many of this worker
    still run."""

    id: str
    line: str
    jobs: int = 0


class Dial(Struct, frozen=True, tag="dial"):
    """This call wants a connection to a host and a port; the supervisor decides as its proxy does."""

    call_id: str
    host: str
    port: int


class ProxyListens(Struct, frozen=True, tag="proxy-listens"):
    """The listening socket of the worker's own network, at which commands look for a proxy, has been sent on
    the second socket under the name `proxy`."""


class Uncovered(Struct, frozen=True, tag="uncovered"):
    """The call was not begun: somebody outside has replaced a file that is closed in here, and so it is open.
    Only a new worker can close it."""

    call_id: str


ToSupervisor = (
    Hello | Ready | ToolOutput | OpenOutput | ToolFinished | JobEnded | Dial | ProxyListens | Uncovered
)


class FrameError(ValueError):
    """What arrived is no frame of this protocol; the channel can't be used any more."""


class Frames:
    """Bytes in, whole messages' bytes out.  No I/O."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._max = max_frame

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """The payloads that are complete now.  Raises FrameError on a length above the maximum."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        at = 0
        while len(buffer) - at >= HEADER:
            size = int.from_bytes(buffer[at : at + HEADER], "big")
            if size > self._max:
                raise FrameError(f"a frame of {size} bytes; at most {self._max} are allowed")
            if len(buffer) - at - HEADER < size:
                break
            # One copy: a slice of the buffer itself would be a second one.
            with memoryview(buffer) as view:
                found.append(bytes(view[at + HEADER : at + HEADER + size]))
            at += HEADER + size
        if at:
            del buffer[:at]
        return found

    @property
    def partial(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)


_encoder = msgspec.msgpack.Encoder()
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_to_supervisor = msgspec.msgpack.Decoder(ToSupervisor)


def encode(message: ToWorker | ToSupervisor, max_frame: int = MAX_FRAME) -> bytes:
    """The message as a frame.  Raises FrameError where it is too large or holds a lone surrogate."""
    try:
        payload = _encoder.encode(message)
    except UnicodeEncodeError as error:
        raise FrameError(f"not UTF-8: {error}") from error
    if len(payload) > max_frame:
        raise FrameError(f"a message of {len(payload)} bytes; at most {max_frame} are allowed")
    return len(payload).to_bytes(HEADER, "big") + payload


def decode_to_worker(payload: bytes) -> ToWorker:
    """Raises FrameError."""
    try:
        return _to_worker.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:  # the latter: a field nested without end
        raise FrameError(f"not a message for a worker: {error}") from error


def decode_to_supervisor(payload: bytes) -> ToSupervisor:
    """Raises FrameError."""
    try:
        return _to_supervisor.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:  # the latter: a field nested without end
        raise FrameError(f"not a message for the supervisor: {error}") from error


def agree(hello: Hello) -> int | None:
    """The highest version that both speak, or None."""
    version = min(hello.max, VERSION_MAX)
    return version if version >= max(hello.min, VERSION_MIN) else None
