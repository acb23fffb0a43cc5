"""What a process does, from its first instruction on, to become a worker: namespaces, mounts, walls.

`enter_namespaces` runs in a middle process that only makes them and leaves its child in them; `become` is
the life of the worker itself.  Neither returns.  Which way is taken is the zygote's to say (rungs.py).
"""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from msgspec.structs import replace

from protocol.control import Birth
from protocol.policy import Limits, Means, SandboxPolicy
from worker.birth.line import Confined, EndedError, Forked, Go, Line, Refused, UsersMapped, WantsUsers
from worker.sandbox import confine, mounts, namespaces, prctl
from worker.sandbox.canaries import LeakError
from worker.sandbox.plan import Step, plan
from worker.serve.calls import Registry
from worker.serve.process import LEFT, leave_streams, serve, settle

SEEN = "other processes and their command lines can be seen in /proc"


@dataclass(frozen=True)
class Newborn:
    """What a process that becomes a worker holds."""

    line: Line
    wire: int
    descriptors: int
    birth: Birth
    run: Registry
    measure: Callable[[], Callable[[], None]]
    """Begins a test's measure and returns what saves it."""


def steps_of(policy: SandboxPolicy) -> tuple[Step, ...]:
    """The plan on this machine, as it is now."""
    return plan(policy, namespaces.look, namespaces.links_of_the_root(), namespaces.listening())


def enter_namespaces(newborn: Newborn, *, own_processes: bool) -> NoReturn:
    """The middle process: it alone stays outside of the PID namespace that it makes."""
    line, policy = newborn.line, newborn.birth.policy
    save = newborn.measure()
    try:
        steps = steps_of(policy)
        outside = namespaces.listener_outside()
        user, group = os.geteuid(), os.getegid()
        namespaces.unshare(policy, pids=own_processes)
        if user == 0:
            line.say(WantsUsers())
        if user != 0 or line.hear() != UsersMapped(True):
            namespaces.map_user(user, group)
        pid = os.fork()
    except OSError as error:
        line.say(Refused(_words(error)))
    except EndedError:
        pass
    else:
        if pid == 0:
            become(newborn, steps, outside)
        line.say(Forked(pid))
    save()
    os._exit(LEFT)


def become(
    newborn: Newborn, steps: tuple[Step, ...] | None = None, outside: socket.socket | None = None
) -> NoReturn:
    """The worker.  `steps`: the mounts to make; None where somebody has made them, or nobody does.
    `outside`: a listener on the machine's localhost, from before the namespaces; closed here."""
    line, birth = newborn.line, newborn.birth
    try:
        go = line.hear()
    except EndedError:
        os._exit(LEFT)
    assert isinstance(go, Go)
    # The first of a PID namespace needs no handler: with it the kernel ends all that it started.
    prctl.die_with_parent(signal.SIGKILL if go.own_processes else signal.SIGTERM)
    if line.is_over():
        os._exit(LEFT)
    settle()
    save = newborn.measure()
    try:
        if steps is not None:
            _mount(steps, go, birth.policy, birth.limits)
        leave_streams()
        confined = confine.confine(
            birth.policy,
            birth.limits,
            go.means,
            go.probes,
            abi=None if go.landlock else 0,
            listener=outside.getsockname()[1] if outside is not None else 0,
        )
    except mounts.PlaceError as error:
        refuse(newborn, Refused(_words(error), lasting=False), save)
    except (OSError, LeakError) as error:
        refuse(newborn, Refused(_words(error)), save)
    if go.means is not Means.NONE and not go.own_processes:
        ready = replace(confined.ready, notes=(*confined.ready.notes, SEEN))
        confined = confine.Confined(ready, confined.enter, confined.environment)
    if outside is not None:
        outside.close()
    line.say(Confined())
    line.close()
    serve(newborn.wire, newborn.descriptors, newborn.run, save, confined)


def _words(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def refuse(newborn: Newborn, why: Refused, save: Callable[[], None]) -> NoReturn:
    newborn.line.say(why)
    save()
    os._exit(LEFT)


def _mount(steps: tuple[Step, ...], go: Go, policy: SandboxPolicy, limits: Limits) -> None:
    namespaces.raise_loopback(policy)
    mounts.enter(steps, processes=limits.processes if go.own_processes else None)
