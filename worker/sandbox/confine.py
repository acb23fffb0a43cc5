"""All walls of one worker, in the order that they need; and what the user is told of them.

Called once, by a process with a single thread that is already in its namespaces, if it has some.  What is
made here holds for all that the worker starts.  Not here: namespaces and mounts, what each wall consists of
(landlock.py, seccomp.py), what is tried afterwards (canaries.py).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from protocol.policy import Limits, Means, Mode, Network, Rung, SandboxPolicy
from protocol.wire import Probe, Ready
from worker.sandbox import canaries, landlock, prctl, rlimits, seccomp
from worker.sandbox.canaries import LeakError, Walls
from worker.sandbox.domain import Domain

_OF_NAMESPACES = (
    prctl.CHOWN, prctl.DAC_OVERRIDE, prctl.FOWNER, prctl.FSETID, prctl.KILL, prctl.SETGID, prctl.SETUID,
    prctl.NET_BIND_SERVICE,
)  # fmt: skip
"""What root keeps where all that they reach is the sandbox's own: enough for package managers and for a
workspace that belongs to somebody else."""
_WITHOUT_NAMESPACES = (prctl.DAC_OVERRIDE,)
"""What root keeps where files elsewhere are in view: only what a workspace of another owner needs.  With
CHOWN or FOWNER the owners and modes of others' files could be changed, which Landlock lets through."""
_UNGUARDED = (
    prctl.CHOWN, prctl.DAC_OVERRIDE, prctl.FOWNER, prctl.FSETID, prctl.KILL, prctl.SETGID, prctl.SETUID,
    prctl.NET_BIND_SERVICE, prctl.NET_RAW, prctl.SYS_CHROOT,
)  # fmt: skip
"""What root keeps where nothing is enforced: about what a container has."""

NO_LANDLOCK = (
    "This kernel offers no Landlock (it needs Linux 5.13 or newer with Landlock enabled), so a command could "
    "not be confined to the workspace."
)

NOT_USED = (
    "Landlock is not used here (see what was tried), so a command could not be confined to the workspace."
)
_TO_HAVE_LANDLOCK = "use Linux 5.13 or newer, with landlock in the kernel's list of security modules (lsm=)"

_GAINED = (
    (2, Rung.LANDLOCK, "files can't be moved or linked from one directory to another"),
    (6, Rung.LANDLOCK, "commands can signal other processes of this user"),
    (6, Rung.FULL, "commands can signal those of other calls"),
)
"""What Landlock's versions before the given one lack on a rung."""


@dataclass(frozen=True)
class Confined:
    ready: Ready
    enter: Callable[[], None]
    """What a fresh thread calls before it starts a command: the command's own domain.  Raises OSError; then
    nothing must be started."""
    environment: tuple[tuple[str, str], ...] = ()
    """What commands find in their environment on this rung, beside the policy's."""


def confine(
    policy: SandboxPolicy,
    limits: Limits,
    means: Means,
    probes: tuple[Probe, ...] = (),
    *,
    abi: int | None = None,
    listener: int = 0,
) -> Confined:
    """Put the policy into force for this process and all that it starts from now on.

    `means`: who made the namespaces that we are in.  `abi`: the Landlock version to use, the kernel's own
    by default, 0 for none.  `listener`: see canaries.Walls.  Raises OSError where the kernel refuses what it
    has, and LeakError where something forbidden succeeds though there are namespaces: then nothing must be
    run, and a lower rung may be tried by another process.
    """
    rlimits.apply(limits, namespaced=means is not Means.NONE)
    if policy.mode is Mode.UNCONFINED:
        return _open(Ready(Rung.OFF, (_NOTHING,), probes=probes))
    abi = landlock.version() if abi is None else abi
    rung = Rung.FULL if means is not Means.NONE else Rung.LANDLOCK if abi >= 1 else Rung.OFF
    if rung is Rung.OFF:
        _give_up(_UNGUARDED)
        why = NOT_USED if landlock.version() else NO_LANDLOCK
        return _open(Ready(rung, (why,), why, probes=(*probes, *_tried(abi))))
    outsiders = canaries.outsiders()
    filtered = _restrict(policy, rung, abi)
    probes = (*probes, *_tried(abi, filtered.worked))
    ready = Ready(rung, tuple(_notes(policy, rung, abi, filtered.worked)), means=means, probes=probes)
    found = canaries.leaks(Walls(policy, rung, abi, filtered.worked, outsiders, listener))
    if found and rung is Rung.FULL:
        raise LeakError("; ".join(found))
    if found:
        why = f"The sandbox was tried and does not hold here: {'; '.join(found)}."
        return Confined(Ready(Rung.OFF, (why,), why, probes=probes), filtered.domain.enter)
    # Root's tar would give files to the owners that an archive names, and fail without the capability.
    environment = (("TAR_OPTIONS", "--no-same-owner"),) if rung is not Rung.FULL else ()
    return Confined(ready, filtered.domain.enter, environment if os.geteuid() == 0 else ())


_NOTHING = "nothing is confined: commands may do what you may do"


def _open(ready: Ready) -> Confined:
    return Confined(ready, rlimits.step_back)


def _give_up(kept: tuple[int, ...]) -> None:
    prctl.keep_capabilities(kept if os.geteuid() == 0 else ())
    prctl.gain_no_privileges()


@dataclass(frozen=True)
class _Restricted:
    domain: Domain
    worked: bool
    """Whether system calls are filtered."""


def _restrict(policy: SandboxPolicy, rung: Rung, abi: int) -> _Restricted:
    # What is made now can't be made once we are restricted.
    processor = seccomp.processor()
    main = command = ruleset = None
    if processor is not None:
        main = seccomp.Filter(seccomp.program(processor, seccomp.rules(rung, policy.network, abi)))
        if rules := seccomp.command_rules(rung):
            command = seccomp.Filter(seccomp.program(processor, rules))
    if abi >= 1:
        rights = landlock.handled(abi)
        ruleset = landlock.Ruleset(
            rights,
            landlock.rules(policy, rung, rights),
            abi=abi,
            ports=landlock.ports(policy, rung, abi),
            scopes=landlock.SCOPE_ABSTRACT | landlock.SCOPE_SIGNAL,
        )
    domain = Domain(abi, command)
    _give_up(_OF_NAMESPACES if rung is Rung.FULL else _WITHOUT_NAMESPACES)
    if ruleset is not None:
        ruleset.enter()
        ruleset.close()
    if main is not None:
        main.install()
    return _Restricted(domain, main is not None)


def _notes(policy: SandboxPolicy, rung: Rung, abi: int, filtered: bool) -> list[str]:
    """What is not enforced here, one line each."""
    found: list[str] = []
    if policy.network is Network.ON:
        found.append("commands share the machine's network, its localhost included")
    if rung is Rung.LANDLOCK:
        found += _WITHOUT_NAMESPACES_NOTES
        if policy.network is Network.LISTED:
            found.append("the list of hosts can't be enforced here, so the network is off")
        if policy.network is not Network.ON and filtered:
            found.append("commands get no sockets at all, so that servers on localhost don't work either")
        if policy.network is Network.ON and filtered:
            found.append("commands get no UNIX sockets, as other programs' would be among them")
    if abi < 1:
        found.append(
            "there is no Landlock here: commands can signal those of other calls and read their memory, and "
            "debuggers don't work"
        )
    found += [lacks for since, where, lacks in _GAINED if 1 <= abi < since and where is rung]
    if not filtered:
        found.append(f"system calls are not filtered on this processor ({os.uname().machine})")
        if rung is Rung.LANDLOCK and abi < 3:
            found.append("files outside the workspace can be cut short (truncate)")
    return found


def _tried(abi: int, filtered: bool | None = None) -> list[Probe]:
    """The walls that every rung may have.  `filtered`: None where a filter was not wanted."""
    found = []
    if abi:
        found.append(Probe("landlock", True, f"version {abi} of the kernel's Landlock"))
    elif not landlock.version():
        found.append(Probe("landlock", False, "this kernel offers no Landlock", _TO_HAVE_LANDLOCK))
    if filtered is not None:
        machine = os.uname().machine
        why = "system calls are filtered" if filtered else f"there is no filter for {machine}"
        found.append(Probe("seccomp", filtered, why))
    return found


_WITHOUT_NAMESPACES_NOTES = (
    "names, sizes and modes of files elsewhere can be seen",
    "modes, times and extended attributes of your own files elsewhere can be changed",
    "other processes and their command lines can be seen, and on which processors yours run can be changed",
    "files in /dev/shm are shared with other programs",
    "hidden files inside the workspace can be read by commands",
    "changes to protected files inside the workspace are undone after a command, not prevented; what is "
    "committed stays",
    "commands can write to your terminals by their names below /dev/pts, and read what is typed there",
)
