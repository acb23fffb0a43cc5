"""How a pool is opened and closed: with a block, at the end of which nothing of it runs."""

from collections.abc import Callable, Mapping
from types import TracebackType

import trio

from protocol.policy import Limits, SandboxPolicy
from protocol.wire import Ready
from supervisor import machine
from supervisor.pool.events import PoolEvent
from supervisor.pool.one_shot import enough
from supervisor.pool.worker import OpenOutput
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch


def open_pool(
    policy: SandboxPolicy,
    limits: Limits,
    open_output: OpenOutput,
    tell: Callable[[PoolEvent], None],
    *,
    environ: Mapping[str, str] | None = None,
    launch: Launch | None = None,
    unmet: Callable[[Ready], str] = enough,
) -> "PoolOpening":
    """`async with open_pool(...) as pool`, on the main thread; at the end of the block nothing of it runs.

    `open_output(call_id)` gives a new file in the output directory: (name, descriptor), the descriptor is
    closed by the pool; OSError or StopError where there is none.  `tell` and `open_output` must not block.
    `environ`: where PATH for starting workers is taken from; nothing else of it reaches them.  `unmet` says
    why a worker that enforces so little gets no call, or nothing.
    """
    pool = Pool(
        policy,
        limits,
        open_output,
        tell,
        environ=environ or {},
        launch=launch or Launch.told_by(environ or {}),
        unmet=unmet,
    )
    return PoolOpening(pool)


class PoolOpening:
    """What `open_pool` returns.  A class, since a generator would wrap the block's exceptions in a group."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._nursery = trio.open_nursery()

    async def __aenter__(self) -> Pool:
        machine.adopt_orphans()
        nursery = await self._nursery.__aenter__()
        self._cancel = nursery.cancel_scope.cancel
        nursery.start_soon(self._pool.keep)
        return self._pool

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel()
        await self._nursery.__aexit__(None, None, None)
