"""How a command ended, in words.  Pure."""

import signal

from msgspec import Struct

_PLAIN = frozenset({signal.SIGPIPE})
"""A shell reports these signals of a pipeline's members in the course of things."""


class Verdict(Struct, frozen=True):
    """`words` for the model, `brief` for the screen; `killed`: a signal ended it, its output may be cut."""

    words: str
    brief: str
    killed: bool


def verdict(code: int) -> Verdict:
    """Of an exit code, or minus the number of the signal that killed the shell itself."""
    if code < 0:
        name = _name(-code)
        return Verdict(f"killed by {name} ({128 - code})", f"killed by {name}", True)
    name = _name(code - 128)
    if code > 128 and name and signal.Signals(code - 128) not in _PLAIN:
        return Verdict(
            f"exit code {code}: a command in it was killed by {name} ({code})", f"exit {code}", True
        )
    return Verdict(f"exit code {code}", f"exit {code}", False)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if number > 0 else ""
