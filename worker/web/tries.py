"""How a try to read something from outside ends early."""


class TryError(Exception):
    """It can't be had.  The message says why, in words for the model."""


class CancelledError(Exception):
    """The call was cancelled."""
