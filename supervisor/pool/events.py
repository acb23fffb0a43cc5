"""What the pool tells the session besides results; the end of a background job as its worker told it."""

from msgspec import Struct

from protocol.wire import JobEnded, Ready


class WorkerReady(Struct, frozen=True):
    """Calls can run, or are refused for the reason in `ready.refuse_commands`."""

    ready: Ready


class WorkerDied(Struct, frozen=True):
    """`how`: a sentence for the user.  The next worker starts in the workspace and knows no jobs.
    Without `will_restart` calls are refused for a while; `how` says so."""

    how: str
    will_restart: bool


PoolEvent = WorkerReady | WorkerDied | JobEnded
