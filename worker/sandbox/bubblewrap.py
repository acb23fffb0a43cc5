"""The mount plan as arguments of `bwrap`, for machines that let it make namespaces and not us.

Only a program at a fixed place that nobody but root can change is taken, never one that PATH names.  What is
started by it confines itself further (confine.py).  Not here: the plan (plan.py), who executes the command
and waits for it (worker/birth).
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from protocol.policy import Network, SandboxPolicy
from worker.sandbox.plan import SHM_BYTES, Bind, Devices, Empty, Link, Overlay, Pin, Proc, Step, Tmpfs

PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")

_ALWAYS = (
    "--unshare-user", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    # Started by root it would leave all capabilities to what it starts: read-only mounts could be undone.
    "--cap-drop", "ALL",
    "--die-with-parent", "--new-session",
)  # fmt: skip

_APPARMOR = (
    "an AppArmor profile keeps user namespaces without rights: load the profile bwrap-userns-restrict "
    "(package apparmor-profiles), or set sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)
_CONTAINER = (
    "a container's seccomp profile or a sysctl forbids namespaces: start the container with a profile that "
    "allows unshare and mount, or set sysctl kernel.unprivileged_userns_clone=1"
)
_REMEDIES = (
    ("setting up uid map: Permission denied", _APPARMOR),
    ("Failed RTM_NEWADDR: Operation not permitted", _APPARMOR),
    ("No permissions to create", _CONTAINER),
    ("Creating new namespace failed: Operation not permitted", _CONTAINER),
    ("ENOSPC", "raise the limits in /proc/sys/user/max_*_namespaces"),
    ("Can't mount proc", "a container masks /proc: start it with an unmasked one"),
    ("Failed to make / slave", "the container forbids mounts; Landlock alone is used instead"),
)
"""Words of bwrap's complaint, and what whoever owns the machine can do."""


class UnsuitableError(Exception):
    """This plan can't be executed by bwrap; the message says why."""


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    fds: tuple[int, ...]
    """They must be inherited, and closed by whoever made the command."""


def find(places: Sequence[str] = PLACES) -> str | None:
    """The program, where there is one that nobody but root can change."""
    for place in places:
        try:
            there = os.stat(place)  # noqa: PTH116 - its owner and its mode in one look
            around = os.stat(os.path.dirname(os.path.realpath(place)))  # noqa: PTH116, PTH120 - likewise
        except OSError:
            continue
        writable = (there.st_mode | around.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISREG(there.st_mode) and there.st_uid == around.st_uid == 0 and not writable:
            return place
    return None


def command(
    bwrap: str,
    steps: Sequence[Step],
    policy: SandboxPolicy,
    program: Sequence[str],
    *,
    own_processes: bool = True,
) -> Command:
    """What runs the program in namespaces with these mounts.  Raises UnsuitableError.

    `own_processes`: whether it is the first of a PID namespace; else /proc is the machine's.
    """
    fds: list[int] = []
    words = [bwrap, *_ALWAYS]
    words += ["--unshare-pid", "--as-pid-1"] if own_processes else []
    words += [] if policy.network is Network.ON else ["--unshare-net"]
    masks: list[str] = []
    try:
        for step in steps:
            words += _words(step, fds, masks, own_processes=own_processes)
    except UnsuitableError:
        close(fds)
        raise
    # Last, since what is below a mask needs a place made in it.
    for mask in masks:
        words += ["--remount-ro", mask]
    words += ["--remount-ro", "/", "--chdir", policy.workspace, "--", *program]
    return Command(tuple(words), tuple(fds))


def close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def remedy(complaint: str) -> str:
    """What can be done about bwrap's complaint; empty where that isn't known."""
    return next((remedy for words, remedy in _REMEDIES if words in complaint), "")


def _words(step: Step, fds: list[int], masks: list[str], *, own_processes: bool) -> Iterator[str]:
    match step:
        case Bind(source=source, target=target, writable=writable, needed=needed):
            yield from (f"--{'' if writable else 'ro-'}bind{'' if needed else '-try'}", source, target)
        case Pin(target=target, writable=writable):
            # Plans pin only what is bound at its own place, so it is the machine's path too.
            yield from (f"--{'' if writable else 'ro-'}bind-try", target, target)
        case Empty(target=target, directory=True):
            masks.append(target)
            yield from ("--perms", "0755", "--tmpfs", target)
        case Empty(target=target):
            # One for each: bwrap reads it to its end and closes it.
            fds.append(os.open(os.devnull, os.O_RDONLY))
            os.set_inheritable(fds[-1], True)
            yield from ("--perms", "0444", "--ro-bind-data", str(fds[-1]), target)
        case Tmpfs(target=target, size=size):
            yield from ("--perms", "1777", "--size", str(size), "--tmpfs", target)
        case Proc(target=target) if own_processes:
            # Its files about the machine ask only for root's number to be written, not for a capability.
            yield from ("--proc", target, "--ro-bind", "/proc/sys", f"{target}/sys")
        case Proc(target=target):
            yield from ("--ro-bind", "/proc", target)
        case Devices(target=target):
            yield from ("--dev", target, "--perms", "1777", "--size", str(SHM_BYTES))
            yield from ("--tmpfs", f"{target}/shm")
        case Link(target=target, to=to):
            yield from ("--symlink", to, target)
        case Overlay():
            raise UnsuitableError("bwrap is not asked for a layer over the workspace")
        case _:
            assert_never(step)
