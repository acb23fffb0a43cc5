"""One request -> deltas -> a completion: the HTTP, the time limits, the tries.

Raw bytes are read (httpx would decode by a charset that servers get wrong, and split lines at U+2028), and
the time limits are trio deadlines: httpx knows none that tells a comment from an event. What the bytes mean
is decided in reading.py, what an error is in refusals.py, what is tried again in retries.py.
"""

import random
from collections.abc import Callable
from contextlib import suppress

import httpx
import trio

from supervisor.model.assembly import Completion, Delta
from supervisor.model.endpoint import Endpoint
from supervisor.model.errors import AuthError, Failure, ModelError, NotAModelServerError, seconds
from supervisor.model.reading import Reading
from supervisor.model.reads import Want, each_read
from supervisor.model.refusals import refused, unreachable
from supervisor.model.retries import retry_after

_ERROR_BODY_CAP = 64 * 1024
"""Bytes that are read of an error's body."""

_ERROR_BODY_SECONDS = 15.0
"""An error's body comes with its headers; who dawdles is judged by what has come."""


class ChatModel:
    """The model behind one endpoint.  Holds no conversation; may be used by several tasks at once."""

    def __init__(self, http: httpx.AsyncClient, endpoint: Endpoint) -> None:
        self._http = http
        self._endpoint = endpoint
        self._headers = endpoint.headers()

    async def complete(
        self, body: bytes, on_delta: Callable[[Delta], None], on_retry: Callable[[str], None]
    ) -> Completion:
        """The reply to this request; it has text or calls, and the calls are unchecked.  Raises a ModelError.

        `on_delta` is told of each network read that brought something.  `on_retry` is told why the request
        is sent again: whatever thinking was shown of the try before is void then.  A cancellation closes the
        connection and leaves nothing behind.
        """
        if not self._endpoint.key_is_sendable:
            raise AuthError("the key has characters that no key has, such as a line break; set it again")
        attempt = 0
        while True:
            attempt += 1
            outcome = await self._attempt(body, on_delta)
            if isinstance(outcome, Completion):
                return outcome
            pause = retry_after(outcome, attempt, self._endpoint.pause_seconds, random.random())
            if pause is None or attempt >= self._endpoint.tries:
                raise outcome
            on_retry(f"{outcome}; trying again in {seconds(pause)} ({attempt + 1} of {self._endpoint.tries})")
            await trio.sleep(pause)

    async def _attempt(self, body: bytes, on_delta: Callable[[Delta], None]) -> Completion | Failure:
        """The reply, or what went wrong, as a value: whether that is the end is decided by the caller."""
        limits = self._endpoint
        url = limits.shown_url
        reading = Reading(url, on_delta)
        outcome: Completion | Failure | None = None
        with trio.CancelScope(deadline=trio.current_time() + limits.first_event_seconds) as scope:
            try:
                async with self._http.stream(
                    "POST", limits.url, content=body, headers=self._headers
                ) as response:
                    if response.status_code == 200:
                        outcome = await self._read(response, reading, scope)
                    else:
                        outcome = await self._refused(response)
            except httpx.ConnectTimeout:
                outcome = unreachable(f"none within {seconds(limits.connect_seconds)}", url)
            except httpx.UnsupportedProtocol as error:
                outcome = NotAModelServerError(f"{url}: {error}; correct the base URL")
            except httpx.TransportError as error:
                outcome = reading.broken(str(error) or type(error).__name__)
            except httpx.InvalidURL as error:
                outcome = NotAModelServerError(f"{url} is no URL: {error}; correct the base URL")
        if outcome is None:
            outcome = reading.silent(limits.first_event_seconds, limits.idle_seconds)
        if isinstance(outcome, ModelError):
            outcome.args = (limits.masked(str(outcome)),)
        return outcome

    async def _read(
        self, response: httpx.Response, reading: Reading, scope: trio.CancelScope
    ) -> Completion | Failure:
        limits = self._endpoint
        events = 0

        def take(data: bytes) -> Want:
            nonlocal events
            want = reading.take(data)
            if reading.events > events:
                events = reading.events
                wait = limits.trailer_seconds if reading.finished else limits.idle_seconds
                scope.deadline = trio.current_time() + wait
            return want

        await each_read(response, take)
        return reading.ended()

    async def _refused(self, response: httpx.Response) -> Failure:
        """The failure that an error reply stands for, by as much of its body as comes."""
        body = bytearray()

        def take(data: bytes) -> Want:
            body.extend(data)
            return Want.MORE if len(body) < _ERROR_BODY_CAP else Want.NOTHING

        with trio.move_on_after(_ERROR_BODY_SECONDS), suppress(httpx.TransportError):
            await each_read(response, take)
        headers = {name.lower(): value for name, value in response.headers.items()}
        # Before it is cut to an excerpt: half a key would not be found any more.
        said = self._endpoint.masked(body.decode("latin-1")).encode("latin-1")
        return refused(response.status_code, said, self._endpoint.shown_url, headers)
