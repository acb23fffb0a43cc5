"""What the zygote and a process that becomes a worker say to each other, on a socketpair that keeps borders.

Its end is a message too: who is gone can't do the next step, and then nobody else goes on.

    zygote                          middle process, then the worker
                                 <- WantsUsers                      root's namespace is to know all users
    UsersMapped{done}            ->
                                 <- Forked{pid}                        the last word of the middle process
    Go{means, probes, ...}       ->                                    the middle process is gone
                                 <- Confined | Refused{why, lasting}
"""

import contextlib
import select
import socket

import msgspec
from msgspec import Struct

from protocol.policy import Means
from protocol.wire import Probe

_BYTES = 65536


class WantsUsers(Struct, frozen=True, tag="wants-users"):
    pass


class UsersMapped(Struct, frozen=True, tag="users-mapped"):
    done: bool


class Forked(Struct, frozen=True, tag="forked"):
    pid: int


class Go(Struct, frozen=True, tag="go"):
    """`probes`: what was tried before.  `landlock`: whether it may be used."""

    means: Means
    probes: tuple[Probe, ...]
    landlock: bool
    own_processes: bool
    """Whether the worker is the first of its PID namespace."""


class Confined(Struct, frozen=True, tag="confined"):
    """All walls stand."""


class Refused(Struct, frozen=True, tag="refused"):
    """`lasting`: it would be so for every policy."""

    why: str
    lasting: bool = True


Word = WantsUsers | UsersMapped | Forked | Go | Confined | Refused

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Word)


class EndedError(Exception):
    """The other side is gone, or says nothing for too long."""


class Line:
    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple["Line", "Line"]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    def fileno(self) -> int:
        return self._end.fileno()

    def say(self, word: Word) -> None:
        """Who is gone is noticed by who listens next."""
        with contextlib.suppress(OSError):
            self._end.sendall(_encoder.encode(word))

    def hear(self, seconds: float | None = None) -> Word:
        """Raises EndedError."""
        self._end.settimeout(seconds)
        try:
            payload = self._end.recv(_BYTES)
        except OSError as error:
            raise EndedError(str(error)) from error
        if not payload:
            raise EndedError("it ended without a word")
        return _decoder.decode(payload)

    def is_over(self) -> bool:
        """Whether the other side is gone by now."""
        poll = select.poll()
        poll.register(self._end, 0)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._end.close()
