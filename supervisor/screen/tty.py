"""The terminal as a device: its modes, which are always given back, and the one place that writes to it."""

import errno
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from supervisor.harmless import for_stream

LOCAL_FLAGS = 3
CONTROL_CHARACTERS = 6
"""Places in what tcgetattr returns."""

OFF = b"\x00"
"""A control character that is switched off (_POSIX_VDISABLE on Linux)."""

GONE = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)
"""What a terminal that went away answers."""

LEAVING = (signal.SIGTERM, signal.SIGHUP)


class Output:
    """Writes text to a descriptor at once and whole.  What the encoding lacks is degraded, never raised.

    A terminal that is gone takes no more text: `gone` says so, and what is written is dropped.
    """

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self.gone = False

    def write(self, text: str) -> None:
        left = memoryview(for_stream(text, self._encoding).encode(self._encoding, "replace"))
        while left and not self.gone:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Somebody who shares the terminal set it non-blocking.
                select.select([], [self._descriptor], [])
            except OSError as error:
                if error.errno not in GONE:
                    raise
                self.gone = True

    def size(self) -> tuple[int, int]:
        """Columns and rows; 80 x 24 where nobody knows."""
        with suppress(OSError):
            columns, rows = os.get_terminal_size(self._descriptor)
            if columns and rows:
                return columns, rows
        return 80, 24


def read_waiting(descriptor: int) -> bytes | None:
    """What waits to be read, at most 4 KiB; None where nothing does, nothing where the terminal is gone."""
    try:
        if not select.select([descriptor], [], [], 0)[0]:
            return None
        return os.read(descriptor, 4096)
    except OSError:
        return b""


def drop_what_nobody_takes() -> None:
    """What Python still holds for a terminal that went away must not change the exit code."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in GONE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def given_back(descriptor: int) -> Iterator[None]:
    """The modes of the terminal are restored on every way out, a SIGTERM before the REPL listens included;
    after that the handler that was there before is called, if there was one.

    Only for the main thread.  Where `descriptor` is no terminal nothing is done.
    """
    if not os.isatty(descriptor):
        yield
        return
    saved = termios.tcgetattr(descriptor)
    before = {number: signal.getsignal(number) for number in LEAVING}

    def restore() -> None:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)

    def leave(number: int, frame: FrameType | None) -> None:
        restore()
        if callable(earlier := before[signal.Signals(number)]):
            earlier(number, frame)  # whoever started us takes something down as well
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in LEAVING:
        signal.signal(number, leave)
    try:
        yield
    finally:
        restore()
        for number, action in before.items():
            signal.signal(number, action)


def hush(descriptor: int) -> None:
    """Between two prompts: no echo and no line editing, so that what is typed ahead disturbs nothing and
    is read key by key; Ctrl-C stays a signal, Ctrl-Z and Ctrl-\\ do nothing."""
    if not os.isatty(descriptor):
        return
    modes = termios.tcgetattr(descriptor)
    modes[LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    modes[LOCAL_FLAGS] |= termios.ISIG | termios.NOFLSH  # Ctrl-C must not drop what was typed before it
    for which in (termios.VSUSP, termios.VQUIT):
        modes[CONTROL_CHARACTERS][which] = OFF
    modes[CONTROL_CHARACTERS][termios.VMIN] = 1
    modes[CONTROL_CHARACTERS][termios.VTIME] = 0
    termios.tcsetattr(descriptor, termios.TCSANOW, modes)
