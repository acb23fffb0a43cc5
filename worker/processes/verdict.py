"""How a command ended, in words; which limit struck, and what can be done about it.  Pure."""

import re
import signal
from typing import assert_never

from msgspec import Struct

from protocol.policy import Limit, Limits

_FATAL = {int(number): number.name for number in signal.Signals if number < 32 and number != signal.SIGPIPE}
"""By number.  Of SIGPIPE a shell reports in the course of things: `yes | head`."""

_OF_SIGNAL = {signal.SIGXCPU.name: Limit.CPU, signal.SIGXFSZ.name: Limit.FILE_SIZE}
"""What the kernel sends at a limit and at nothing else."""

_SAID = (
    (Limit.FILE_SIZE, re.compile(r"\bFile (size limit exceeded|too large)\b")),
    (Limit.CPU, re.compile(r"\bCPU time limit exceeded\b")),
    (Limit.FILES, re.compile(r"\bToo many open files\b")),
    (
        Limit.PROCESSES,
        re.compile(r"\bfork: (retry: )?Resource temporarily unavailable|can't start new thread\b"),
    ),
)
"""How programs complain of a limit that the kernel holds them to: the C library's words."""

TAIL = 4000
"""Characters at the end of a command's text in which such words are looked for."""


class Verdict(Struct, frozen=True):
    """`words` for the model, `brief` for the screen; `killed`: a signal ended it, its output may be cut."""

    words: str
    brief: str
    killed: bool
    limit: Limit | None = None


class Struck(Struct, frozen=True):
    """A limit that was reached, so that the command was ended.  `used`: how much, in words."""

    limit: Limit
    used: str

    @property
    def words(self) -> str:
        return f"the limit of {self.limit.value} was reached ({self.used}); {advice(self.limit)}"


def verdict(code: int) -> Verdict:
    """Of an exit code, or minus the number of the signal that killed the shell itself."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Verdict(f"killed by {name} ({128 - code})", f"killed by {name}", True, _OF_SIGNAL.get(name))
    name = _FATAL.get(code - 128, "")
    if name:
        words = f"exit code {code}: a command in it was killed by {name} ({code})"
        return Verdict(words, f"exit {code}", True, _OF_SIGNAL.get(name))
    return Verdict(f"exit code {code}", f"exit {code}", False)


def limit_said(text: str) -> Limit | None:
    """The limit of which a program complains at the end of what it printed.  A guess: any program can
    print these words."""
    tail = text[-TAIL:]
    return next((limit for limit, words in _SAID if words.search(tail)), None)


def kernel_limit(limit: Limit, limits: Limits, *, sure: bool) -> str:
    """A line on a limit that the kernel holds a process to, so that nobody has measured what was used."""
    each = allowed_each(limit, limits)
    how = "the limit" if sure else "probably the limit"
    return f"[{how} of {limit.value} was reached{f' ({each})' if each else ''}; {advice(limit)}]"


def allowed_each(limit: Limit, limits: Limits) -> str:
    """What one process may have; empty where the limit is not one of a process."""
    match limit:
        case Limit.CPU:
            return f"{limits.cpu_seconds:,} s for one process"
        case Limit.FILES:
            return f"{limits.open_files:,} for one process"
        case Limit.FILE_SIZE:
            return f"{size(limits.file_bytes)} for one file"
        case _:
            return ""


def advice(limit: Limit) -> str:
    """What can be done about it."""
    match limit:
        case Limit.WALL:
            return "ask for more with `timeout`, or run it with `background`"
        case Limit.CPU:
            return "do less at once, or split the work over several commands"
        case Limit.MEMORY:
            return "process the data in parts, or run fewer processes at a time"
        case Limit.PROCESSES:
            return "run fewer processes and threads at a time"
        case Limit.FILES:
            return "close files when they are done with, or open fewer at a time"
        case Limit.FILE_SIZE:
            return "write several smaller files"
        case Limit.OUTPUT:
            return "print less, or print into a file"
        case Limit.DISK:
            return "remove what is not needed, and write less"
        case _:
            assert_never(limit)


def size(count: int) -> str:
    """1536 -> `1.5 KiB`."""
    if count < 1024:
        return f"{count} bytes"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"
