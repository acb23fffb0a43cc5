"""One request -> deltas -> a completion: the HTTP, the time limits, the tries.

Raw bytes are read (httpx would decode by a charset that servers get wrong, and split lines at U+2028), and
the time limits are trio deadlines: httpx knows none that tells a comment from an event. What a stream means
is decided in sse.py and assembly.py, what an error is in refusals.py, what is tried again in retries.py.
"""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

import httpx
import trio

from supervisor.model.assembly import Assembly, Completion, Delta, StreamedError
from supervisor.model.chunks import ChunkError
from supervisor.model.endpoint import Endpoint
from supervisor.model.errors import (
    BrokenStreamError,
    EmptyReplyError,
    Failure,
    ModelError,
    NotAModelServerError,
    ServerError,
    SilenceError,
    excerpt,
    seconds,
)
from supervisor.model.refusals import classified, refused, unreachable, web_page, words_of
from supervisor.model.retries import retry_after
from supervisor.model.sse import CAP, Events, OversizedEventError

_BLANK = b" \t\r\n\xef\xbb\xbf"
"""What may stand before the first byte that tells JSON, HTML and a stream apart."""

_ERROR_BODY_CAP = 64 * 1024
"""Bytes that are read of an error's body."""

_ERROR_BODY_SECONDS = 15.0
"""An error's body comes with its headers; who dawdles is judged by the status alone."""

_TRAILER_SECONDS = 10.0
"""After a finish_reason only the usage is missing; a reply is whole without it."""

_DRAIN_SECONDS = 1.0
"""For the last bytes of HTTP after `[DONE]`; later ones cost only a new connection."""

_OUT_OF_CAPACITY = "insufficient_system_resource"


class ChatModel:
    """The model behind one endpoint.  Holds no conversation; may be used by several tasks at once."""

    def __init__(self, http: httpx.AsyncClient, endpoint: Endpoint) -> None:
        self._http = http
        self._endpoint = endpoint
        self._headers = endpoint.headers()

    async def complete(
        self, body: bytes, on_delta: Callable[[Delta], None], on_retry: Callable[[str], None]
    ) -> Completion:
        """The reply to this request; its calls are unchecked.  Raises a ModelError.

        `on_delta` is told of each network read that brought something.  `on_retry` is told why the request
        is sent again: whatever thinking was shown of the try before is void then.  A cancellation closes the
        connection and leaves nothing behind.
        """
        attempt = 0
        while True:
            attempt += 1
            outcome = await self._attempt(body, on_delta)
            if isinstance(outcome, Completion):
                return outcome
            pause = retry_after(outcome, attempt, random.random())
            if pause is None or attempt >= self._endpoint.tries:
                raise outcome
            on_retry(f"{outcome}; trying again in {seconds(pause)} ({attempt + 1} of {self._endpoint.tries})")
            await trio.sleep(pause)

    async def _attempt(self, body: bytes, on_delta: Callable[[Delta], None]) -> Completion | Failure:
        """The reply, or what went wrong, as a value: whether that is the end is decided by the caller."""
        assembly = Assembly()
        events = Events()
        scope = trio.CancelScope(deadline=trio.current_time() + self._endpoint.first_event_seconds)
        outcome: Completion | Failure | None = None
        with scope:
            try:
                async with self._http.stream(
                    "POST", self._endpoint.url, content=body, headers=self._headers
                ) as response:
                    outcome = await self._read(response, assembly, events, scope, on_delta)
            except BrokenStreamError as error:
                outcome = error
            except httpx.ConnectTimeout:
                outcome = unreachable(f"none within {seconds(self._endpoint.connect_seconds)}", self._url)
            except httpx.TransportError as error:
                outcome = self._broken(assembly, str(error) or type(error).__name__)
            except httpx.InvalidURL as error:
                outcome = NotAModelServerError(f"{self._url} is no URL: {error}; correct the base URL")
        if outcome is None:
            outcome = self._silence(assembly, events)
        if isinstance(outcome, ModelError):
            outcome.args = (self._endpoint.masked(str(outcome)),)
        return outcome

    async def _read(
        self,
        response: httpx.Response,
        assembly: Assembly,
        events: Events,
        scope: trio.CancelScope,
        on_delta: Callable[[Delta], None],
    ) -> Completion | Failure:
        if response.status_code != 200:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return refused(response.status_code, await _head(response), self._url, headers)
        first = b""
        async with aclosing(_raw(response)) as reads:
            async for data in reads:
                if not first:
                    first = data.lstrip(_BLANK)[:200]
                    if first.startswith(b"{"):
                        return await self._whole(data, reads, assembly, on_delta)
                    if first.startswith(b"<"):
                        return web_page(200, self._url)
                payloads = self._fed(events, data, assembly)
                if payloads:
                    failure = self._told(payloads, assembly, on_delta)
                    if failure is not None:
                        return failure
                    wait = _TRAILER_SECONDS if assembly.finish_reason else self._endpoint.idle_seconds
                    scope.deadline = trio.current_time() + wait
                if events.done:
                    await _drain(reads)
                    break
        failure = self._told(events.close(), assembly, on_delta)
        return failure or self._ended(assembly, first, done=events.done)

    async def _whole(
        self,
        data: bytes,
        reads: AsyncGenerator[bytes, None],
        assembly: Assembly,
        on_delta: Callable[[Delta], None],
    ) -> Completion | Failure:
        """The reply from a server that answers with one JSON object although a stream was asked for."""
        body = bytearray(data)
        async for more in reads:
            body += more
            if len(body) > CAP:
                return BrokenStreamError(f"{self._url} sent a reply of more than {CAP} bytes")
        text = bytes(body.strip(_BLANK))
        failure = self._told([text], assembly, on_delta)
        return failure or self._ended(assembly, text, done=True)

    def _fed(self, events: Events, data: bytes, assembly: Assembly) -> list[bytes]:
        try:
            return events.feed(data)
        except OversizedEventError as error:
            raise BrokenStreamError(f"{self._url} sent {error}", partial=assembly.partial()) from error

    def _told(
        self, payloads: list[bytes], assembly: Assembly, on_delta: Callable[[Delta], None]
    ) -> Failure | None:
        """Join the events and tell of what they brought; the failure that they are, if they are one."""
        try:
            delta = assembly.take(payloads)
        except StreamedError as error:
            words, status = words_of(error.error)
            partial = assembly.partial()
            if partial.seen:
                return BrokenStreamError(
                    f"{self._url} broke off the reply: {excerpt(words)}", partial=partial
                )
            return classified(status, words, self._url)
        except ChunkError as error:
            why = f"{self._url} sent what is no part of a reply ({excerpt(str(error), 120)})"
            if not assembly.events:
                return NotAModelServerError(f"{why}: {excerpt(payloads[0])}; check the base URL")
            return BrokenStreamError(why, partial=assembly.partial())
        if delta is not None:
            on_delta(delta)
        return None

    def _ended(self, assembly: Assembly, first: bytes, *, done: bool) -> Completion | Failure:
        """The server has ended the stream: what that makes of the reply."""
        if not assembly.events:
            if not first.strip() or done:
                return EmptyReplyError(f"{self._url} answered with nothing at all; try again")
            return NotAModelServerError(
                f"{self._url} answered with no reply: {excerpt(first)}; check the base URL"
            )
        whole = assembly.completion()
        if whole.finish_reason == _OUT_OF_CAPACITY:
            words = f"{self._url} broke off the reply for lack of capacity"
            partial = assembly.partial()
            return BrokenStreamError(words, partial=partial) if partial.seen else ServerError(words)
        if not whole.finish_reason and not done:
            return self._broken(assembly, "the stream ended without an end of the reply")
        if not whole.calls and not whole.text.strip():
            return EmptyReplyError(
                f"{self._url} ended its reply ({whole.finish_reason or 'no reason given'}) with "
                f"{'thinking only' if whole.reasoning else 'neither text nor a call'}; {_advice(whole)}",
                partial=assembly.partial(),
                finish=whole.finish_reason,
            )
        return whole

    def _broken(self, assembly: Assembly, why: str) -> Completion | Failure:
        """The connection is gone: before the reply, within it, or when it was whole already."""
        if assembly.finish_reason:
            return self._ended(assembly, b"", done=True)
        if not assembly.events:
            return unreachable(why, self._url)
        return BrokenStreamError(f"{self._url} broke off the reply: {why}", partial=assembly.partial())

    def _silence(self, assembly: Assembly, events: Events) -> Completion | Failure:
        """The time is up."""
        if assembly.finish_reason:
            return self._ended(assembly, b"", done=True)
        if assembly.events:
            return SilenceError(
                f"{self._url} fell silent within the reply for {seconds(self._endpoint.idle_seconds)}",
                partial=assembly.partial(),
            )
        queued = f" but {events.comments} keep-alive comments" if events.comments else ""
        waited = seconds(self._endpoint.first_event_seconds)
        return SilenceError(f"{self._url} sent nothing{queued} for {waited}; try again later")

    @property
    def _url(self) -> str:
        return self._endpoint.shown_url


async def _head(response: httpx.Response) -> bytes:
    """The beginning of an error's body; what has come by then, where the server dawdles or breaks off."""
    body = bytearray()
    with trio.move_on_after(_ERROR_BODY_SECONDS), suppress(httpx.TransportError):
        async with aclosing(_raw(response)) as reads:
            async for data in reads:
                body += data
                if len(body) > _ERROR_BODY_CAP:
                    break
    return bytes(body)


async def _drain(reads: AsyncGenerator[bytes, None]) -> None:
    """Read to the end of the HTTP body, which comes right behind, so that the connection is kept."""
    with trio.move_on_after(_DRAIN_SECONDS), suppress(httpx.TransportError):
        async for _ in reads:
            pass


def _advice(whole: Completion) -> str:
    match whole.finish_reason:
        case "length":
            return "the output limit was used up: raise max_output_tokens or ask for less at once"
        case "content_filter":
            return "its filter stopped it: say it in other words"
        case _:
            return "say it in other words, or try again"


async def _raw(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    async for data in response.aiter_raw():
        yield data
