"""How reading and walking end when the call is cancelled: by an exception that tools catch."""

import threading


class CancelledError(Exception):
    """The call was cancelled."""


def go_on(cancelled: threading.Event) -> None:
    """Raises CancelledError once the call is cancelled."""
    if cancelled.is_set():
        raise CancelledError
