"""A reply's bytes, as much at a time as one network read brought.

httpx hands out each HTTP chunk by itself, and a server that streams makes one of every token: 64 KB in the
socket are some 200 of them. Between two chunks of one read nothing waits, so what has come is held until
the reading task really would, and handed over then. A burst costs one call instead of hundreds, and a token
that comes alone is still handed over at once.

httpx also nests five generators, and leaving the outer one early leaves the others to the garbage
collector. An exception from within closes them all, so to leave is to be cancelled at the next read.
"""

from collections.abc import Awaitable, Callable, Generator
from enum import Enum
from types import TracebackType

import httpx
import outcome
import trio

END_SECONDS = 1.0
"""For the last bytes of HTTP when nothing else is wanted, so that the connection can be kept."""


class Want(Enum):
    """What is wanted after some bytes: more, only the end of the HTTP body, or nothing."""

    MORE = "more"
    END = "end"
    NOTHING = "nothing"


async def each_read(response: httpx.Response, take: Callable[[bytes], Want]) -> None:
    """Hand the body to `take`, read by read, for as long as it wants more.  What `take` raises is raised."""
    reads = response.aiter_raw()
    with trio.CancelScope() as leaving:
        taking = _Taking(take, leaving)
        while (data := await _Noticing(anext(reads, None), taking.hand_over)) is not None:
            taking.pieces.append(data)
        taking.hand_over()
    taking.last.unwrap()


class _Taking:
    """What has come and is not handed over yet."""

    def __init__(self, take: Callable[[bytes], Want], leaving: trio.CancelScope) -> None:
        self.pieces: list[bytes] = []
        self.last: outcome.Value[Want] | outcome.Error = outcome.Value(Want.MORE)
        self._take = take
        self._leaving = leaving

    def hand_over(self) -> None:
        """Never raises: it is called where the task is about to wait, and an exception would tear that."""
        data = b"".join(self.pieces)
        self.pieces.clear()
        if not data or self.last != outcome.Value(Want.MORE):
            return
        self.last = outcome.capture(self._take, data)
        if self.last == outcome.Value(Want.END):
            self._leaving.deadline = trio.current_time() + END_SECONDS
        elif self.last != outcome.Value(Want.MORE):
            self._leaving.cancel()


class _Noticing(Generator[object, object, bytes | None]):
    """Awaits `step`; `before_waiting` is called each time when it is about to wait."""

    def __init__(self, step: Awaitable[bytes | None], before_waiting: Callable[[], None]) -> None:
        self._inner: Generator[object, object, bytes | None] = step.__await__()
        self._before_waiting = before_waiting

    def __await__(self) -> Generator[object, object, bytes | None]:
        return self

    def send(self, value: object) -> object:
        trap = self._inner.send(value)
        self._before_waiting()
        return trap

    def throw(
        self,
        error: type[BaseException] | BaseException,
        value: object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> object:
        """`value` and `traceback` belong to a form that nobody uses any more."""
        trap = self._inner.throw(error)
        self._before_waiting()
        return trap
