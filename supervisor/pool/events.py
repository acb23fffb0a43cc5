"""What the pool tells the session besides results."""

from msgspec import Struct

from protocol.wire import Ready


class WorkerReady(Struct, frozen=True, tag="worker-ready"):
    """Calls can run, or are refused for the reason in `ready.refuse_commands`."""

    ready: Ready


class WorkerDied(Struct, frozen=True, tag="worker-died"):
    """`how`: a sentence for the user.  The next worker starts in the workspace and knows no jobs.
    Without `will_restart` calls are refused for a while; `how` says so."""

    how: str
    will_restart: bool


class JobEnded(Struct, frozen=True, tag="job-ended"):
    """A background job is over.  `line`: its id, command and how it ended."""

    id: str
    line: str


PoolEvent = WorkerReady | WorkerDied | JobEnded
