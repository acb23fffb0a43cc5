"""Messages between the supervisor and the zygote, which forks workers.

They travel on a socket of their own that keeps message borders: a message is its msgpack alone, and
descriptors travel with it.

    zygote                         supervisor
    ZygoteReady                 ->
                                <- Fork{id} + the worker's ends of its two sockets, and its Birth to read
    Forked{id, pid} + pidfd | NotForked{id, why}  ->
    Exited{pid, code}           ->                    after all that the worker left behind has been ended
"""

import msgspec
from msgspec import Struct

from protocol.policy import Limits, SandboxPolicy
from protocol.wire import FrameError


class Birth(Struct, frozen=True):
    """What a forked worker is confined to before it says a word.  It is read from a descriptor that is sent
    with the Fork, since a policy may be longer than a datagram."""

    policy: SandboxPolicy
    limits: Limits


class Fork(Struct, frozen=True, tag="fork"):
    """A worker is wanted.  Three descriptors come with it: the wire, the second socket, and one from which
    its Birth can be read up to its end."""

    id: int


class ZygoteReady(Struct, frozen=True, tag="zygote-ready"):
    """Everything that workers need is imported."""

    pid: int


class Forked(Struct, frozen=True, tag="forked"):
    """One descriptor comes with it: the worker's pidfd."""

    id: int
    pid: int


class NotForked(Struct, frozen=True, tag="not-forked"):
    id: int
    why: str


class Exited(Struct, frozen=True, tag="exited"):
    """A worker is gone, and so is what it had started.  `code`: its exit code, or minus the signal."""

    pid: int
    code: int


FromZygote = ZygoteReady | Forked | NotForked | Exited


_encoder = msgspec.msgpack.Encoder()
_to_zygote = msgspec.msgpack.Decoder(Fork)
_from_zygote = msgspec.msgpack.Decoder(FromZygote)
_birth = msgspec.msgpack.Decoder(Birth)


def encode_control(message: Fork | FromZygote) -> bytes:
    """The message as one datagram between zygote and supervisor."""
    return _encoder.encode(message)


def decode_to_zygote(payload: bytes) -> Fork:
    """Raises FrameError."""
    try:
        return _to_zygote.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FrameError(f"not a message for the zygote: {error}") from error


def decode_from_zygote(payload: bytes) -> FromZygote:
    """Raises FrameError."""
    try:
        return _from_zygote.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FrameError(f"not a message of the zygote: {error}") from error


def encode_birth(birth: Birth) -> bytes:
    """The Birth as bytes to read."""
    return _encoder.encode(birth)


def decode_birth(payload: bytes) -> Birth:
    """Raises FrameError."""
    try:
        return _birth.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FrameError(f"not a worker's birth: {error}") from error
