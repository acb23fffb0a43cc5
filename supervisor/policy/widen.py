"""What a grant adds to a policy: exactly what was asked for, and never more.

Beside looking at what lies where (a place is taken out of a closed one by closing its neighbours instead)
nothing is done here: a wider policy takes force in another worker.
"""

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import assert_never

from msgspec.structs import replace

from protocol.permission import Kind, Permission
from protocol.policy import Mode, Network, Rung, SandboxPolicy, of_the_machine
from supervisor.policy.environment import with_network
from supervisor.policy.repository import repository_of, run_later

_ENTRIES = 2000
"""Of a closed directory out of which something is taken; with more it stays closed."""


def widened(
    policy: SandboxPolicy,
    permissions: Collection[Permission],
    *,
    rung: Rung = Rung.FULL,
    home: str = "",
) -> SandboxPolicy:
    """The policy with these permissions.  Their paths are absolute and real, or relative to the workspace.

    `rung`: without namespaces no list of hosts can be held to, so one host means the whole network there.
    `home`: the user's own, $HOME of a command that nothing confines.
    """
    for permission in permissions:
        policy = _with(policy, permission, rung, home)
    return policy


def reaching(policy: SandboxPolicy, permission: Permission) -> SandboxPolicy:
    """The policy with one host more that the supervisor connects to; commands' own network stays as it is."""
    return replace(policy, hosts=_and(policy.hosts, permission.target))


def impossible(policy: SandboxPolicy, permission: Permission) -> str:
    """Why no worker could have this permission under this policy, in words; empty where one can."""
    match permission.kind:
        case Kind.WRITE | Kind.GIT_WRITE if policy.mode is Mode.READ_ONLY:
            return "the sandbox is read-only; the user can change that with /sandbox workspace-write"
        case Kind.GIT_WRITE if repository_of(Path(policy.workspace)) is None:
            return "the workspace has no git repository of its own"
        case Kind.READ | Kind.WRITE:
            path = _absolute(policy, permission.target)
            if permission.kind is Kind.WRITE and of_the_machine(path):
                return f"{path} reaches devices or switches of the machine; that takes `unconfined`"
            if not os.path.lexists(path):
                return f"{path} does not exist; ask for the directory in which it is to be made"
            real = os.path.realpath(path)
            # A link that appeared after the question must not lead further than what was agreed to.
            return "" if real == path else f"{path} leads to {real}; ask for that"
        case _:
            return ""


def _with(policy: SandboxPolicy, permission: Permission, rung: Rung, home: str) -> SandboxPolicy:
    if policy.mode is Mode.UNCONFINED or impossible(policy, permission):
        return policy
    match permission.kind:
        case Kind.READ:
            return _read(policy, _absolute(policy, permission.target))
        case Kind.WRITE:
            return _written(policy, _absolute(policy, permission.target))
        case Kind.NETWORK:
            wanted = Network.LISTED if rung is Rung.FULL else Network.ON
            if policy.network is Network.ON:
                return policy
            policy = reaching(policy, permission)
            return replace(policy, network=wanted, environment=_environment(policy, wanted))
        case Kind.GIT_WRITE:
            return _git_written(policy)
        case Kind.UNCONFINED:
            return _unconfined(policy, home)
        case _:
            assert_never(permission.kind)


def _read(policy: SandboxPolicy, path: str) -> SandboxPolicy:
    policy = replace(policy, hidden=_without(policy.hidden, path))
    if _within(path, policy.workspace):
        return policy
    return replace(policy, readable=_and(policy.readable, path), opened=_and(policy.opened, path))


def _written(policy: SandboxPolicy, path: str) -> SandboxPolicy:
    policy = replace(policy, hidden=_without(policy.hidden, path), protected=_without(policy.protected, path))
    return (
        policy if _within(path, policy.workspace) else replace(policy, writable=_and(policy.writable, path))
    )


def _git_written(policy: SandboxPolicy) -> SandboxPolicy:
    repository = repository_of(Path(policy.workspace))
    if repository is None:
        return policy
    kept = [path for path in policy.protected if path != str(repository.common)]
    pinned = _and(policy.pinned, str(repository.common))
    writable = policy.writable
    if not _within(str(repository.common), policy.workspace):
        writable = _and(writable, str(repository.common))
    closed = dict.fromkeys((*kept, *map(str, run_later(repository))))
    return replace(policy, protected=tuple(closed), pinned=pinned, writable=writable)


def _unconfined(policy: SandboxPolicy, home: str) -> SandboxPolicy:
    environment = dict(_environment(policy, Network.ON))
    if home:
        environment["HOME"] = home
    return replace(
        policy,
        mode=Mode.UNCONFINED,
        environment=tuple(environment.items()),
        network=Network.ON,
        hidden=(),
        protected=(),
        pinned=(),
    )


def _environment(policy: SandboxPolicy, network: Network) -> tuple[tuple[str, str], ...]:
    return tuple(with_network(dict(policy.environment), network).items())


def _without(closed: Iterable[str], path: str) -> tuple[str, ...]:
    """The closed places with this one taken out: of a closed directory above it, all else stays closed."""
    kept: dict[str, None] = {}
    for place in closed:
        if place == path:
            continue
        for part in _around(place, path) if _within(path, place) else (place,):
            kept[part] = None
    return tuple(kept)


def _around(place: str, path: str) -> tuple[str, ...]:
    """Everything in the directory but what lies on the way to the path, and that path."""
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return (place,)
    if len(names) > _ENTRIES:
        return (place,)
    found: list[str] = []
    for name in names:
        entry = f"{place}/{name}"
        if entry == path:
            continue
        found += _around(entry, path) if _within(path, entry) else (entry,)
    return tuple(found)


def _absolute(policy: SandboxPolicy, target: str) -> str:
    return os.path.normpath(os.path.join(policy.workspace, target))  # noqa: PTH118 - a policy's paths are texts


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _and(places: tuple[str, ...], path: str) -> tuple[str, ...]:
    return places if path in places else (*places, path)
