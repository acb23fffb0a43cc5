"""Exit codes, and the one exception that ends the program with a clear line."""

ANSWERED = 0
FAILED = 1
USAGE = 2
MODEL = 3
"""A model or provider error, or no model to talk to."""
ROUNDS = 4
"""The round limit ended the turn; its answer is printed all the same."""
TIMEOUT = 124
INTERRUPTED = 130


class StopError(Exception):
    """The command can't go on.  The message says what is wrong and what to do; no traceback is shown."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
