"""The process that forks workers: it has imported all that they need, and adopts what they leave behind.

The supervisor execs it with a clean environment (a fork of the supervisor would keep the provider's key in
its memory and in /proc).  It has one thread for ever and runs no tool.  It ends everything below it when the
supervisor is gone, and everything that a dead worker had started before it reports that worker's end.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import NoReturn

from msgspec.structs import replace

from protocol.control import (
    Birth,
    Exited,
    Forked,
    FromZygote,
    NotForked,
    ZygoteReady,
    decode_birth,
    decode_to_zygote,
    encode_control,
)
from protocol.wire import FrameError
from worker.birth.inside import Newborn, become, enter_namespaces
from worker.birth.line import Line
from worker.birth.rungs import BirthError, Rungs
from worker.birth.wrapped import enter_bubblewrap
from worker.sandbox import prctl, tree
from worker.serve.calls import Registry
from worker.serve.process import LEFT, away_from_streams, nothing

_REQUEST_BYTES = 4096
_DESCRIPTORS = 3
"""With a request: the wire, the second socket, and what its Birth can be read from."""
_SWEEP_SECONDS = 2.0
"""How long one sweep tries; a process that can't be ended now (waiting for a disk) is tried again."""
_AGAIN_MS = 200
_LAST_SECONDS = 10.0
"""How long the last sweep tries before the zygote leaves."""


class Zygote:
    def __init__(
        self, control: socket.socket, run: Registry, measure: "Measure", without: Collection[str]
    ) -> None:
        self._control = control
        self._run = run
        self._measure = measure
        self._rungs = Rungs(without, self._sweep)
        self._workers: dict[int, int] = {}
        """pidfd -> pid."""
        self._clean = True

    def play(self) -> None:
        """Until the supervisor is gone."""
        self._tell(ZygoteReady(os.getpid()))
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            for fd, _events in poll.poll(None if self._clean else _AGAIN_MS):
                if fd != self._control.fileno():
                    poll.unregister(fd)
                    self._bury(fd)
                elif (born := self._answer()) is None:
                    return
                elif born:
                    poll.register(born, select.POLLIN)
            if not self._clean:
                self._sweep()

    def _answer(self) -> int | None:
        """One request.  The new worker's pidfd, 0 where none was forked, None when no more will come."""
        try:
            payload, fds, _, _ = socket.recv_fds(self._control, _REQUEST_BYTES, _DESCRIPTORS)
        except ConnectionError:
            return None
        if not payload:
            return None
        request = decode_to_zygote(payload)
        try:
            pidfd, pid = self._fork(fds)
        except (OSError, BirthError) as error:
            self._tell(NotForked(request.id, str(error)))
            return 0
        finally:
            for fd in fds:
                os.close(fd)
        self._workers[pidfd] = pid
        self._tell(Forked(request.id, pid), pidfd)
        return pidfd

    def _fork(self, fds: list[int]) -> tuple[int, int]:
        if len(fds) != _DESCRIPTORS:
            raise OSError(f"a fork needs {_DESCRIPTORS} descriptors, {len(fds)} came")
        wire, descriptors, content = fds
        with open(content, "rb", buffering=0, closefd=False) as whole:
            birth = decode_birth(whole.read())
        policy = birth.policy
        policy = replace(policy, writable=(*policy.writable, *self._measure.writable))
        birth = Birth(policy, birth.limits)

        def newborn(line: Line) -> Newborn:
            # A copy of these in a worker would hide their ends from the supervisor and from us.
            self._control.close()
            os.close(content)
            for pidfd in self._workers:
                os.close(pidfd)
            mine, second = away_from_streams(wire), away_from_streams(descriptors)
            return Newborn(line, mine, second, birth, self._run, self._measure.begin)

        pid = self._rungs.bear(
            birth,
            lambda line, own: enter_namespaces(newborn(line), own_processes=own),
            lambda line, _: become(newborn(line)),
            lambda line, bwrap, complaints: enter_bubblewrap(newborn(line), bwrap, complaints),
        )
        try:
            return os.pidfd_open(pid), pid
        except OSError:
            # Nobody would know of it.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _bury(self, pidfd: int) -> None:
        pid = self._workers.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        # The kernel has handed us its children before it told us of its end.
        self._sweep()
        self._tell(Exited(pid, os.waitstatus_to_exitcode(status)))

    def _sweep(self) -> None:
        self._clean = tree.end_children(_SWEEP_SECONDS, keep=set(self._workers.values()))

    def _tell(self, message: FromZygote, *fds: int) -> None:
        try:
            socket.send_fds(self._control, [encode_control(message)], fds)
        except OSError:
            return  # the supervisor is gone; the next read says so


class Measure:
    """Coverage of a worker, for tests: `rcfile` is its configuration, empty for none.

    A process that leaves by os._exit and can write nowhere records nothing on its own: the measure begins
    after the fork, and its directory is made writable.
    """

    def __init__(self, rcfile: str) -> None:
        self._rcfile = rcfile
        self.writable = (str(Path(rcfile).parent),) if rcfile else ()

    def begin(self) -> Callable[[], None]:
        """What saves the measure."""
        if not self._rcfile:
            return nothing
        # Not there outside of a test's environment.
        coverage = importlib.import_module("coverage")
        current = coverage.Coverage.current()
        if current is not None:
            current.stop()
        measured = coverage.Coverage(
            config_file=self._rcfile, data_file=str(Path(self._rcfile).parent / ".coverage"), data_suffix=True
        )
        measured.start()

        def save() -> None:
            measured.stop()
            measured.save()

        return save


def main(arguments: list[str]) -> NoReturn:
    """`arguments`: the control socket's number, the registry's module, a measure's rcfile or nothing, the
    means that are not to be tried, with commas between."""
    control_fd, registry, rcfile, without = arguments
    measure = Measure(rcfile)
    save = measure.begin()

    def leave() -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tree.end_children(_LAST_SECONDS)
        save()
        sys.stdout.flush()
        os._exit(LEFT)

    def told(_number: int, _frame: FrameType | None) -> None:
        """The supervisor's main thread is gone, or somebody wants us to end.  It leaves from here: an
        exception could come when the last sweep has begun already, and end it."""
        os.write(2, b"zygote: SIGTERM\n")
        leave()

    try:
        signal.signal(signal.SIGTERM, told)
        prctl.die_with_parent(signal.SIGTERM)
        prctl.adopt_orphans()
        run: Registry = importlib.import_module(registry).run
        control = socket.socket(fileno=away_from_streams(int(control_fd)))
        # What exists now lives for ever; left out of collections it is never copied in a worker.
        gc.collect()
        gc.freeze()
        Zygote(control, run, measure, tuple(filter(None, without.split(",")))).play()
    except FrameError as error:
        os.write(2, f"zygote: {type(error).__name__} {error}\n".encode(errors="replace"))
    leave()
