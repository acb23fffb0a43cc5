"""Exit codes, and the one exception that ends the program with a clear line."""

ANSWERED = 0
FAILED = 1
USAGE = 2
MODEL = 3
"""A model or provider error, or no model to talk to."""
ROUNDS = 4
"""The round limit ended the turn; its answer is printed all the same."""
TIMEOUT = 124
HUNG_UP = 129
"""The terminal went away (SIGHUP)."""
INTERRUPTED = 130
READER_GONE = 141
"""Whoever read stdout closed it, so the rest had nowhere to go."""
TERMINATED = 143
"""SIGTERM; like 129 and 130 it is 128 + the signal's number."""


class StopError(Exception):
    """The command can't go on.  The message says what is wrong and what to do; no traceback is shown."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def causes(error: BaseException) -> list[BaseException]:
    """The errors that a group holds at any depth, in order; of any other error just itself."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for inner in error.exceptions for cause in causes(inner)]
    return [error]


def first_stop(error: BaseException) -> StopError | None:
    """The first StopError among the causes, if there is one."""
    return next((cause for cause in causes(error) if isinstance(cause, StopError)), None)
