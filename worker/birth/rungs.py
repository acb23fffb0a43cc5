"""Which way a worker is confined here: the means from the strongest down, each refused one tried only once.

The zygote's side of a birth.  It waits for each step, with a bound: a worker is answered for when all its
walls stand.  What the steps do is in inside.py.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterator
from typing import NoReturn

from protocol.control import Birth
from protocol.policy import Means, Mode, SandboxPolicy
from protocol.wire import Probe
from worker.birth.line import Confined, EndedError, Forked, Go, Line, Refused, UsersMapped, WantsUsers
from worker.birth.wrapped import complaint
from worker.sandbox import bubblewrap, namespaces
from worker.serve.process import LEFT

NATIVE, PROCESSES, BUBBLEWRAP, LANDLOCK = "native", "processes", "bubblewrap", "landlock"
"""Names of means, for `without` and for probes.  PROCESSES: a PID namespace within NATIVE."""

_STEP_SECONDS = 3.0
"""A step needs milliseconds; a disk that doesn't answer must not stop the births of others for long."""
_EXEC_SECONDS = 8.0
"""Of the step in which bwrap starts an interpreter."""
_PLACE_SECONDS = 0.05
"""More of it for each place that is closed: bwrap reads the list of all mounts again for each one."""

Child = Callable[[Line, bool], NoReturn]
"""What a process does once it is forked: with its line to the zygote, with a PID namespace or without."""

Wrapped = Callable[[Line, str, int], NoReturn]
"""The same by way of bwrap: the program, and a descriptor for what it prints."""

_GIVES = {
    NATIVE: "namespaces of its own, made by the worker itself",
    BUBBLEWRAP: "namespaces of its own, made by bwrap",
}
_NO_BWRAP = f"there is no bwrap that root alone can change at {', '.join(bubblewrap.PLACES)}"

_REMEDIES = (
    ("new namespaces: Operation not permitted", "in a container: start it with a seccomp profile that allows "
     "unshare; else allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)"),
    (_NO_BWRAP, "install the package bubblewrap"),
    ("new namespaces: No space left", "raise /proc/sys/user/max_user_namespaces"),
    ("_map: ", "an AppArmor profile keeps user namespaces without rights (sysctl "
     "kernel.apparmor_restrict_unprivileged_userns): install bubblewrap with its profile"),
)  # fmt: skip


class BirthError(Exception):
    """No worker could be had by this way; `lasting`: nor will another one."""

    def __init__(self, why: str, *, lasting: bool) -> None:
        super().__init__(why)
        self.lasting = lasting


class Rungs:
    """`without`: names of means that are not tried.  `sweep` ends children that are no workers."""

    def __init__(self, without: Collection[str], sweep: Callable[[], object]) -> None:
        self._refused = {name: Probe(name, False, "switched off for a test") for name in without}
        self._sweep = sweep
        self._had: set[str] = set()
        """The means that could be had.  Then no worker is born with less: what fails now may be the work of a
        command, which would gain by it."""

    def bear(self, birth: Birth, middle: Child, worker: Child, wrapped: Wrapped) -> int:
        """The pid of a new worker that is confined, our child.  Raises OSError where none can be had."""
        if birth.policy.mode is Mode.UNCONFINED:
            return self._plain(worker, ())
        tried: list[Probe] = []
        if NATIVE in self._refused:
            tried.append(self._refused[NATIVE])
        elif (pid := self._native(middle, tried)) is not None:
            self._had.add(NATIVE)
            return pid
        if birth.policy.layer:
            raise OSError(f"no layer can be laid over the workspace: {tried[-1].why}")
        if BUBBLEWRAP in self._refused:
            tried.append(self._refused[BUBBLEWRAP])
        elif (pid := self._bubblewrap(wrapped, tried, birth.policy)) is not None:
            self._had.add(BUBBLEWRAP)
            return pid
        if birth.policy.needs_mounts:
            raise OSError(f"no copy can be shown in the workspace's place: {tried[-1].why}")
        if self._had:
            raise OSError("; ".join(f"{probe.name}: {probe.why}" for probe in tried))
        if LANDLOCK in self._refused:
            tried.append(self._refused[LANDLOCK])
        try:
            return self._plain(worker, tuple(tried))
        except BirthError as error:
            # Landlock is there and does not hold what it promises: without it nothing is confined, and
            # commands are refused but where the user allows one.
            self._note(LANDLOCK, error, tried)
            return self._plain(worker, tuple(tried))

    def _native(self, middle: Child, tried: list[Probe]) -> int | None:
        """With a PID namespace; else without one, since a container may forbid a new /proc; else None."""
        first: BirthError | None = None
        if PROCESSES not in self._refused:
            try:
                pid = self._between(middle, True, (*tried, _works(NATIVE)))
            except BirthError as error:
                first = error
            else:
                self._had.add(PROCESSES)
                return pid
        if first is not None and PROCESSES in self._had:
            self._note(NATIVE, first, tried)
            return None
        why = self._refused.get(PROCESSES) or Probe(PROCESSES, False, str(first))
        try:
            pid = self._between(middle, False, (*tried, _works(NATIVE), why))
        except BirthError as error:
            self._note(NATIVE, first or error, tried)
            return None
        if first is not None and first.lasting:
            self._refused[PROCESSES] = why
        return pid

    def _bubblewrap(self, wrapped: Wrapped, tried: list[Probe], policy: SandboxPolicy) -> int | None:
        """A worker below bwrap, which is its pid for us; None where that can't be had."""
        bwrap = bubblewrap.find()
        if bwrap is None:
            self._note(BUBBLEWRAP, BirthError(_NO_BWRAP, lasting=True), tried)
            return None
        seconds = _EXEC_SECONDS + _PLACE_SECONDS * (len(policy.hidden) + len(policy.protected))
        complaints = os.memfd_create("bwrap", os.MFD_CLOEXEC)
        try:
            with self._forked(lambda line, _: wrapped(line, bwrap, complaints), True) as (line, pid):
                go = Go(Means.BUBBLEWRAP, (*tried, _works(BUBBLEWRAP)), self._landlock, True)
                return self._let_go(line, pid, go, seconds)
        except BirthError as error:
            said = complaint(complaints)
            self._note(BUBBLEWRAP, BirthError(said, lasting=True) if said else error, tried)
            return None
        finally:
            os.close(complaints)

    def _note(self, name: str, error: BirthError, tried: list[Probe]) -> None:
        probe = Probe(name, False, str(error), _remedy(str(error)))
        tried.append(probe)
        if error.lasting and not self._had:
            self._refused[name] = probe

    def _between(self, middle: Child, own_processes: bool, probes: tuple[Probe, ...]) -> int:
        """A worker by way of a middle process that makes its namespaces and leaves."""
        with self._forked(middle, own_processes) as (line, between):
            word = line.hear(_STEP_SECONDS)
            if isinstance(word, WantsUsers):
                line.say(UsersMapped(_mapped(between)))
                word = line.hear(_STEP_SECONDS)
            match word:
                case Forked(pid=pid):
                    os.waitpid(between, 0)
                case other:
                    raise _unexpected(other)
            return self._let_go(line, pid, Go(Means.NATIVE, probes, self._landlock, own_processes))

    def _plain(self, worker: Child, probes: tuple[Probe, ...]) -> int:
        """A worker without namespaces."""
        with self._forked(worker, False) as (line, pid):
            return self._let_go(line, pid, Go(Means.NONE, probes, self._landlock, False))

    @property
    def _landlock(self) -> bool:
        return LANDLOCK not in self._refused

    def _let_go(self, line: Line, pid: int, go: Go, seconds: float = _STEP_SECONDS) -> int:
        line.say(go)
        match line.hear(seconds):
            case Confined():
                return pid
            case other:
                raise _unexpected(other)

    @contextlib.contextmanager
    def _forked(self, play: Child, own_processes: bool) -> Iterator[tuple[Line, int]]:
        """A fork that plays this; nothing of it is left where the block fails.  Raises BirthError."""
        ours, theirs = Line.pair()
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    ours.close()
                    play(theirs, own_processes)
                finally:
                    os._exit(LEFT)
            theirs.close()
            yield ours, pid
        except EndedError as error:
            self._sweep()
            # A slow disk, or somebody has killed it: the next one may have more luck.
            raise BirthError(f"a process that becomes a worker: {error}", lasting=False) from error
        except BirthError:
            self._sweep()
            raise
        finally:
            ours.close()
            theirs.close()


def _unexpected(word: object) -> BirthError:
    if isinstance(word, Refused):
        return BirthError(word.why, lasting=word.lasting)
    return BirthError(f"it said {type(word).__name__}", lasting=False)


def _works(name: str) -> Probe:
    return Probe(name, True, _GIVES[name])


def _mapped(pid: int) -> bool:
    try:
        namespaces.map_all_users(pid)
    except OSError:
        return False
    return True


def _remedy(why: str) -> str:
    """What whoever owns the machine can do about a refusal."""
    for words, remedy in _REMEDIES:
        if words in why:
            return remedy
    return bubblewrap.remedy(why)
