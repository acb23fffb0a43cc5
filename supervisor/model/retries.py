"""Which failures are tried again, and after how long: one exhaustive match, pure.

Nothing is tried again once something of the reply was there: the caller has shown it.  Thinking alone does
not count, since nothing has happened by it.
"""

from typing import assert_never

from supervisor.model.errors import (
    AuthError,
    BalanceError,
    BrokenStreamError,
    ConnectError,
    EmptyReplyError,
    Failure,
    NotAModelServerError,
    RateLimitError,
    RefusedError,
    ServerError,
    SilenceError,
)

LONGEST = 10.0
"""Seconds: the most that is waited unless the server asks for more."""
JITTER = 0.25
"""Part of the pause that is left to chance, so that many clients don't come back at once."""


def retry_after(error: Failure, attempt: int, first: float, chance: float = 0.0) -> float | None:
    """Seconds until the next try, or None: give up.  `attempt` counts the tries made, from 1; the first pause
    is `first` seconds, `chance` in 0..1 spreads it.  The number of tries is bounded by the caller."""
    if error.partial.seen:
        return None
    pause = min(first * 2.0 ** (attempt - 1), LONGEST) * (1 + JITTER * chance)
    match error:
        case ConnectError() | BrokenStreamError():
            return pause
        case RateLimitError() | ServerError():
            return pause if error.wait is None else max(error.wait, pause)
        case EmptyReplyError():
            # Once: who has nothing to say twice has nothing to say.  At a limit it would be cut again.
            again = attempt == 1 and error.finish not in ("length", "content_filter")
            return pause if again else None
        case SilenceError():
            # Ten minutes were waited already; twice that needs a person's decision.
            return None
        case AuthError() | BalanceError() | RefusedError() | NotAModelServerError():
            return None
        case _:
            assert_never(error)
