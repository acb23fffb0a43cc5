"""What the bytes of one HTTP reply amount to: a completion or a failure.  No I/O, no clock.

A stream of events, or one JSON object where a server streams nothing, or a web page: the first byte tells.
When a reply counts as whole is decided here: it has said why it finished, or `[DONE]`; anything less is a
cut.
"""

from collections.abc import Callable

from supervisor.model.assembly import Assembly, Completion, Delta, StreamedError
from supervisor.model.chunks import ChunkError
from supervisor.model.errors import (
    BrokenStreamError,
    EmptyReplyError,
    Failure,
    NotAModelServerError,
    ServerError,
    SilenceError,
    excerpt,
    seconds,
)
from supervisor.model.reads import Want
from supervisor.model.refusals import classified, unreachable, web_page, words_of
from supervisor.model.sse import CAP, Events, OversizedEventError

_BLANK = b" \t\r\n\xef\xbb\xbf"
"""What may stand before the first byte that tells JSON, HTML and a stream apart."""

_OUT_OF_CAPACITY = "insufficient_system_resource"


class Reading:
    """A reply that is being read.  `on_delta` is told what each piece brought."""

    def __init__(self, url: str, on_delta: Callable[[Delta], None]) -> None:
        self._url = url
        self._on_delta = on_delta
        self._assembly = Assembly()
        self._events = Events()
        self._first = b""
        self._payloads = 0
        self._whole: bytearray | None = None
        self._failure: Failure | None = None

    @property
    def events(self) -> int:
        """Events with a part of the reply so far; comments don't count."""
        return self._assembly.events

    @property
    def finished(self) -> bool:
        """The reply has said why it ended: only the usage may still come."""
        return bool(self._assembly.finish_reason)

    def take(self, data: bytes) -> Want:
        """One network read."""
        if not self._first:
            self._first = data.lstrip(_BLANK)[:200]
            if self._first.startswith(b"<"):
                self._failure = web_page(200, self._url)
            elif self._first.startswith(b"{"):
                self._whole = bytearray()
        if self._failure is not None:
            return Want.NOTHING
        try:
            if self._whole is not None:
                self._whole += data
                if len(self._whole) > CAP:
                    raise OversizedEventError(f"a reply of more than {CAP} bytes")
                return Want.MORE
            payloads = self._events.feed(data)
        except OversizedEventError as error:
            self._failure = BrokenStreamError(
                f"{self._url} sent {error}; ask for less at once", partial=self._assembly.partial()
            )
            return Want.NOTHING
        self._failure = self._join(payloads) if payloads else None
        if self._failure is not None:
            return Want.NOTHING
        return Want.END if self._events.done else Want.MORE

    def ended(self) -> Completion | Failure:
        """The HTTP body is over: what that makes of the reply."""
        if self._failure is not None:
            return self._failure
        done = self._events.done or self._whole is not None
        payloads = self._events.close() if self._whole is None else [bytes(self._whole.strip(_BLANK))]
        failure = self._join(payloads) if payloads else None
        if failure is not None:
            return failure
        if not self.events:
            if not self._first or (self._events.done and not self._payloads):
                return EmptyReplyError(f"{self._url} answered with nothing at all; try again")
            words = f"{self._url} answered with no reply: {excerpt(self._first)}; check the base URL"
            return NotAModelServerError(words)
        if not self.finished and not done:
            return self.broken("the stream ended before the reply did")
        return self._judged()

    def broken(self, why: str) -> Completion | Failure:
        """The connection is gone: before the reply, within it, or when it was whole already."""
        if self._failure is not None:
            return self._failure
        if self.finished:
            return self._judged()
        if not self.events:
            return unreachable(why, self._url)
        return BrokenStreamError(
            f"{self._url} broke off the reply: {why}; try again", partial=self._assembly.partial()
        )

    def silent(self, first_event_seconds: float, idle_seconds: float) -> Completion | Failure:
        """The time is up."""
        if self.finished:
            return self._judged()
        if self.events:
            words = f"{self._url} fell silent within the reply for {seconds(idle_seconds)}; try again"
            return SilenceError(words, partial=self._assembly.partial())
        comments = self._events.comments
        queued = f" but {comments} keep-alive comments" if comments else ""
        waited = seconds(first_event_seconds)
        return SilenceError(f"{self._url} sent nothing{queued} for {waited}; try again later")

    def _join(self, payloads: list[bytes]) -> Failure | None:
        """Join the events and tell of what they brought; the failure that they are, if they are one."""
        self._payloads += len(payloads)
        try:
            self._assembly.take(payloads, self._on_delta)
        except StreamedError as error:
            words, status = words_of(error.error)
            partial = self._assembly.partial()
            if partial.seen:
                broke = f"{self._url} broke off the reply: {excerpt(words)}; try again"
                return BrokenStreamError(broke, partial=partial)
            return classified(status, words, self._url)
        except ChunkError as error:
            why = f"{self._url} sent what is no part of a reply ({excerpt(str(error), 120)})"
            if self.events:
                return BrokenStreamError(f"{why}; try again", partial=self._assembly.partial())
            return NotAModelServerError(f"{why}: {excerpt(self._first)}; check the base URL")
        return None

    def _judged(self) -> Completion | Failure:
        """A reply that has ended: is there anything in it."""
        whole = self._assembly.completion()
        partial = self._assembly.partial()
        if whole.finish_reason == _OUT_OF_CAPACITY:
            words = f"{self._url} broke off the reply for lack of capacity; try again later"
            return BrokenStreamError(words, partial=partial) if partial.seen else ServerError(words)
        if whole.calls or whole.text.strip():
            return whole
        held = "thinking only" if whole.reasoning else "neither text nor a call"
        return EmptyReplyError(
            f"{self._url} ended its reply ({whole.finish_reason or 'no reason given'}) with {held}; "
            + _advice(whole.finish_reason),
            partial=partial,
            finish=whole.finish_reason,
        )


def _advice(finish_reason: str) -> str:
    match finish_reason:
        case "length":
            return "the output limit was used up: raise max_output_tokens or ask for less at once"
        case "content_filter":
            return "its filter stopped it: say it in other words"
        case _:
            return "say it in other words, or try again"
