"""How a foreground command ended, for its result.  Pure.  The words are verdict.py's."""

from msgspec import Struct

from protocol.policy import Limit, Limits
from protocol.wire import Status
from worker.processes.verdict import Struck, advice, kernel_limit, limit_said, verdict


class Ended(Struct, frozen=True):
    """`words` for the model, `brief` for the screen."""

    status: Status
    words: str
    brief: str
    limit: Limit | None = None


def exited(code: int, text: str, limits: Limits) -> Ended:
    """By itself, or by a signal.  `text`: what it printed, which may tell of a limit."""
    said = verdict(code)
    status = Status.FAILED if said.killed else Status.DONE
    limit = said.limit or (limit_said(text) if code else None)
    if limit is None:
        return Ended(status, said.words, said.brief)
    why = kernel_limit(limit, limits, sure=said.limit is not None)
    return Ended(status, f"{said.words}\n{why}", said.brief, limit)


def made_to_end(struck: Struck | None, *, timed_out: bool, seconds: float) -> Ended:
    """By us, whatever its exit code was then."""
    if struck is not None:
        return Ended(Status.FAILED, f"ended: {struck.words}", f"limit of {struck.limit.value}", struck.limit)
    after = f"after {seconds:.1f} s; it and all that it started were ended"
    if timed_out:
        words = f"timed out {after}; {advice(Limit.WALL)}"
        return Ended(Status.TIMED_OUT, words, "timed out", Limit.WALL)
    return Ended(Status.CANCELLED, f"cancelled {after}", "cancelled")
