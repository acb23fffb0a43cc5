"""One reply on the wire: a step's events with its delays, or the fault that it asks for."""

import time
from collections.abc import Sequence

import msgspec
import trio

from supervisor.rehearsal.connection import Connection
from supervisor.rehearsal.playing import Play
from supervisor.rehearsal.recording import Recorded
from supervisor.rehearsal.refusal import Refusal
from supervisor.rehearsal.script import Close, Html, Raw, Reset, Stall, Status
from supervisor.rehearsal.streaming import KEEP_ALIVE

JSON = "application/json"
STREAM = "text/event-stream"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body>It works.</body></html>\n"


async def refuse_with(connection: Connection, refusal: Refusal, recorded: Recorded | None = None) -> bool:
    """An error reply; True where another request may come."""
    goes_on = await connection.whole(refusal.status, refusal.body(), JSON)
    if recorded is not None:
        recorded.end_ns = time.monotonic_ns()
    return goes_on


async def perform(connection: Connection, play: Play, recorded: Recorded) -> bool:
    """Send the reply; True where another request may come.  Raises ClientLeftError."""
    step = play.step
    if step.delay:
        await trio.sleep(step.delay)
    recorded.status = 200
    match step.fault:
        case None:
            goes_on = await _reply(connection, play, recorded)
        case Status(status=status) as fault:
            recorded.status = status
            body, content_type = _status_body(fault)
            goes_on = await connection.whole(status, body, content_type, *fault.headers.items())
        case Html(status=status):
            recorded.status = status
            goes_on = await connection.whole(status, PAGE, "text/html; charset=utf-8")
        case Raw() as fault:
            goes_on = await _raw(connection, fault)
        case Reset(after=after):
            await _begin(connection, play, after, recorded)
            await connection.reset()
            goes_on = False
        case Stall(after=after, comment_every=every):
            await _begin(connection, play, after, recorded)
            await _stall(connection, every, begun=after is not None)
            goes_on = False
        case Close(after=after, tidy=tidy):
            await _begin(connection, play, after, recorded)
            goes_on = await connection.end() if tidy else False
    recorded.end_ns = time.monotonic_ns()
    return goes_on


async def _reply(connection: Connection, play: Play, recorded: Recorded) -> bool:
    if not play.stream:
        recorded.first_sent_ns = time.monotonic_ns()
        # A busy server sends empty lines before a JSON body, as it sends comments before a stream.
        return await connection.whole(200, b"\n" * play.step.keep_alive + play.whole, JSON)
    await connection.start(200, STREAM, ("cache-control", "no-cache"))
    await _events(connection, play, play.events, recorded)
    return await connection.end()


async def _begin(connection: Connection, play: Play, after: int | None, recorded: Recorded) -> None:
    """The reply up to the fault: nothing at all for None, else the headers and so many events."""
    if after is not None:
        await connection.start(200, STREAM)
        await _events(connection, play, play.events[:after], recorded)


async def _events(connection: Connection, play: Play, events: Sequence[bytes], recorded: Recorded) -> None:
    recorded.first_sent_ns = time.monotonic_ns()
    for _ in range(play.step.keep_alive):
        await connection.write(KEEP_ALIVE)
    for at, event in enumerate(events):
        if at and play.step.pause:
            await trio.sleep(play.step.pause)
        await connection.write(event)


async def _raw(connection: Connection, fault: Raw) -> bool:
    body = fault.text.encode("utf-8", "surrogatepass")
    size = fault.piece or max(len(body), 1)
    await connection.start(200, fault.content_type)
    for at in range(0, len(body), size):
        await connection.write(body[at : at + size])
    if fault.then == "end":
        return await connection.end()
    if fault.then == "reset":
        await connection.reset()
    else:
        await connection.until_client_leaves()
    return False


async def _stall(connection: Connection, every: float | None, *, begun: bool) -> None:
    """Hold the connection until the client leaves; `every`: with a comment each so many seconds."""
    if every is None:
        await connection.until_client_leaves()
        return
    if not begun:
        await connection.start(200, STREAM)
    while True:
        await connection.write(KEEP_ALIVE)
        with trio.move_on_after(every):
            await connection.until_client_leaves()
            return


def _status_body(fault: Status) -> tuple[bytes, str]:
    match fault.body:
        case dict():
            return msgspec.json.encode(fault.body), JSON
        case "":
            return Refusal(fault.message, fault.status).body(), JSON
        case text:
            return text.encode(), "text/html" if text.lstrip().startswith("<") else JSON
