"""How a command ended, in words.  Pure."""

import signal

from msgspec import Struct

_FATAL = {int(number): number.name for number in signal.Signals if number < 32 and number != signal.SIGPIPE}
"""By number.  Of SIGPIPE a shell reports in the course of things: `yes | head`."""


class Verdict(Struct, frozen=True):
    """`words` for the model, `brief` for the screen; `killed`: a signal ended it, its output may be cut."""

    words: str
    brief: str
    killed: bool


def verdict(code: int) -> Verdict:
    """Of an exit code, or minus the number of the signal that killed the shell itself."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Verdict(f"killed by {name} ({128 - code})", f"killed by {name}", True)
    name = _FATAL.get(code - 128, "")
    if name:
        return Verdict(
            f"exit code {code}: a command in it was killed by {name} ({code})", f"exit {code}", True
        )
    return Verdict(f"exit code {code}", f"exit {code}", False)
