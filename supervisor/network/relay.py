"""Bytes both ways between two connections, until both are at their end.  It looks at none of them."""

import trio

IDLE_SECONDS = 600.0
"""A pair of connections on which nothing moves for so long is closed."""


async def relay(
    one: trio.SocketStream, other: trio.SocketStream, most: int, seconds: float = IDLE_SECONDS
) -> None:
    """An end of one direction is passed on, and the other goes on.  An error, more than `most` bytes in all,
    or `seconds` without any end both.  The caller closes the connections."""
    moved = 0

    async def pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        nonlocal moved
        try:
            async for data in source:
                scope.deadline = trio.current_time() + seconds
                moved += len(data)
                if moved > most:
                    scope.cancel()
                await sink.send_all(data)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()

    with trio.move_on_after(seconds) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump, one, other)
            nursery.start_soon(pump, other, one)
