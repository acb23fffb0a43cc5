"""What was found, as data, and what follows from it: which dangers the rung stops, and whether all is well.

Pure.  How it is found out is in examine.py, how it is printed in report.py.
"""

from enum import Enum
from typing import assert_never

from msgspec import Struct

from protocol.policy import Limits, Means, Mode, Network, Rung
from protocol.wire import Ready

_ORDER = (Rung.OFF, Rung.LANDLOCK, Rung.FULL)
SIGNALS_NOTE = "commands can signal other processes of this user"
PROCESSES_NOTE = "command lines can be seen"
NO_FILTER_NOTE = "system calls are not filtered"
NO_LANDLOCK_NOTE = "there is no Landlock here"
"""Parts of a worker's notes that change a verdict."""


class Verdict(Enum):
    STOPPED = "stopped"
    PARTLY = "partly"
    OPEN = "not stopped"


class Danger(Struct, frozen=True):
    """Something that a command might do.  `how`: by what it is stopped, or why not."""

    what: str
    verdict: Verdict
    how: str = ""


class Findings(Struct, frozen=True):
    """`command`: why a harmless command did not run, empty where it did.  `left`: what runs of dead runs,
    one line each."""

    ready: Ready
    mode: Mode
    network: Network
    require: Rung
    limits: Limits
    command: str
    left: tuple[str, ...]
    state: str
    settings: str
    version: str
    kernel: str

    @property
    def confined(self) -> bool:
        return self.ready.rung is not Rung.OFF and not self.ready.refuse_commands and not self.command

    @property
    def floor_holds(self) -> bool:
        return _ORDER.index(self.ready.rung) >= _ORDER.index(self.require)

    @property
    def well(self) -> bool:
        """Commands run confined, at least as far as the settings require."""
        return self.confined and self.floor_holds


def dangers(findings: Findings) -> tuple[Danger, ...]:
    """What this very rung stops and what it doesn't."""
    match findings.ready.rung:
        case Rung.FULL:
            return _with_namespaces(findings)
        case Rung.LANDLOCK:
            return _with_landlock_alone(findings)
        case Rung.OFF:
            return tuple(Danger(what, Verdict.OPEN) for what in _ALL)


_WRITE = "write, move or delete files outside the workspace"
_READ = "read your keys, credentials and other files at home"
_KEY = "read the model server's key from Polier's memory or environment"
_TOUCH = "change modes and times of your files elsewhere"
_SEE = "see names and sizes of files elsewhere"
_PROTECTED = "change .git and other files that run later by themselves"
_HIDDEN = "read .env files and keys inside the workspace"
_NETWORK = "connect to the network"
_LOCALHOST = "connect to servers and agents on this machine (docker, ssh-agent, databases)"
_SIGNAL = "signal, stop or trace your other programs"
_PROCESSES = "see your other programs and their command lines"
_SHARED = "leave files in /tmp and /dev/shm for your other programs"
_PRIVILEGES = "gain privileges (setuid programs, mounts, new namespaces)"
_ALL = (
    _WRITE, _READ, _KEY, _TOUCH, _SEE, _PROTECTED, _HIDDEN, _NETWORK, _LOCALHOST, _SIGNAL, _PROCESSES,
    _SHARED, _PRIVILEGES,
)  # fmt: skip


def _with_namespaces(findings: Findings) -> tuple[Danger, ...]:
    seen = _noted(findings, PROCESSES_NOTE)
    return (
        Danger(_WRITE, Verdict.STOPPED, "they are not there, or read-only"),
        Danger(_READ, Verdict.STOPPED, "they are not there"),
        Danger(_KEY, Verdict.STOPPED, "the process is out of reach"),
        Danger(_TOUCH, Verdict.STOPPED, "they are not there, or read-only"),
        Danger(_SEE, Verdict.STOPPED, "only programs and libraries are there"),
        Danger(_PROTECTED, Verdict.STOPPED, "those that exist are read-only"),
        Danger(_HIDDEN, Verdict.STOPPED, "those that exist are shown empty"),
        *_connections(findings),
        Danger(_SIGNAL, Verdict.STOPPED, "they are out of reach"),
        Danger(_PROCESSES, Verdict.OPEN, "/proc is the machine's here")
        if seen
        else Danger(_PROCESSES, Verdict.STOPPED, "a process list of its own"),
        Danger(_SHARED, Verdict.STOPPED, "private ones"),
        _privileges(findings),
    )


def _with_landlock_alone(findings: Findings) -> tuple[Danger, ...]:
    reached = _noted(findings, SIGNALS_NOTE)
    return (
        Danger(_WRITE, Verdict.STOPPED, "Landlock"),
        Danger(_READ, Verdict.STOPPED, "Landlock"),
        Danger(_KEY, Verdict.STOPPED, "Landlock"),
        Danger(_TOUCH, Verdict.OPEN, "Landlock has no rule for it"),
        Danger(_SEE, Verdict.OPEN, "Landlock has no rule for it"),
        Danger(_PROTECTED, Verdict.PARTLY, "changes are undone after the command"),
        Danger(_HIDDEN, Verdict.PARTLY, "the file tools refuse; commands can"),
        *_connections(findings),
        Danger(_SIGNAL, Verdict.PARTLY, "tracing is stopped, signals are not")
        if reached
        else Danger(_SIGNAL, Verdict.STOPPED, "Landlock"),
        Danger(_PROCESSES, Verdict.OPEN, "needs a namespace"),
        Danger(_SHARED, Verdict.PARTLY, "/tmp is closed, /dev/shm is not"),
        _privileges(findings),
    )


def _connections(findings: Findings) -> tuple[Danger, ...]:
    full = findings.ready.rung is Rung.FULL
    match findings.network:
        case Network.ON:
            how = "the network is switched on (sandbox.network)"
            return Danger(_NETWORK, Verdict.OPEN, how), Danger(_LOCALHOST, Verdict.OPEN, how)
        case Network.LISTED if full:
            listed = Danger(_NETWORK, Verdict.PARTLY, "only hosts on your list (sandbox.hosts)")
            return listed, Danger(_LOCALHOST, Verdict.STOPPED, "all but the addresses on your list")
        case Network.LISTED | Network.OFF:
            how = (
                "a network of its own, with nothing in it"
                if full
                else "no sockets at all, not even localhost"
            )
            return Danger(_NETWORK, Verdict.STOPPED, how), Danger(_LOCALHOST, Verdict.STOPPED, how)


def _privileges(findings: Findings) -> Danger:
    if _noted(findings, NO_FILTER_NOTE):
        return Danger(_PRIVILEGES, Verdict.PARTLY, "setuid does nothing; system calls are not filtered here")
    return Danger(_PRIVILEGES, Verdict.STOPPED, "setuid does nothing, and such system calls are refused")


def _noted(findings: Findings, part: str) -> bool:
    return any(part in note for note in findings.ready.notes)


def means_in_words(ready: Ready) -> str:
    """By what the rung is enforced: only what is there."""
    parts: list[str] = []
    match ready.means:
        case Means.NATIVE:
            parts.append("namespaces of its own")
        case Means.BUBBLEWRAP:
            parts.append("namespaces made by bwrap")
        case Means.NONE:
            pass
        case _:
            assert_never(ready.means)
    if not any(NO_LANDLOCK_NOTE in note for note in ready.notes):
        parts.append("Landlock")
    if not any(NO_FILTER_NOTE in note for note in ready.notes):
        parts.append("a filter of system calls")
    *first, last = parts or ["nothing"]
    return f"{', '.join(first)} and {last}" if first else last
