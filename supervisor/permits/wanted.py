"""What a call needs, from the model's words to permissions: paths are looked up before anybody is asked.

A relative path is the workspace's, `~` is the user's home.  What the user is shown is the real place, so
that a link can't name one place and mean another.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from protocol.permission import Kind, Permission, PermissionWordError, parse
from protocol.policy import Mode, Network, SandboxPolicy
from supervisor.network.hosts import Hosts

LONGEST = 4096
"""Characters of a path; the kernel knows no longer one."""


class Place(Struct, frozen=True):
    """What words are read against: real paths, but for `home`."""

    workspace: Path
    home: Path
    """The user's own."""
    state: Path
    """Our own state directory: no permission opens it."""
    settings: Path
    """The directory of the user's settings: no permission lets anybody write it."""


class Wanted(Struct, frozen=True):
    """`shown`: the words for the user, which say where a link leads."""

    permission: Permission
    shown: str


def wanted(words: Sequence[str], place: Place) -> tuple[Wanted, ...]:
    """Each permission once, in order.  Raises PermissionWordError, whose message is for the model."""
    found: dict[Permission, Wanted] = {}
    for word in words:
        one = _one(word, place)
        found.setdefault(one.permission, one)
    return tuple(found.values())


def _one(word: str, place: Place) -> Wanted:
    permission = parse(word)
    match permission.kind:
        case Kind.READ | Kind.WRITE:
            return _at_place(permission, word, place)
        case Kind.NETWORK | Kind.GIT_WRITE | Kind.UNCONFINED:
            return Wanted(permission, str(permission))


def _at_place(permission: Permission, word: str, place: Place) -> Wanted:
    if len(permission.target) > LONGEST:
        raise PermissionWordError(f"{word[:80]!r}… is longer than any path")
    named = named_path(permission.target, place)
    real = Path(os.path.realpath(named))
    kind = permission.kind.value
    if not os.path.lexists(real):
        # One that can't be looked into counts as not there, for whoever runs this can't see it either.
        above = next(parent for parent in real.parents if os.path.lexists(parent))
        raise PermissionWordError(
            f"{word!r}: {real} does not exist; ask for the directory in which it is to be made, "
            f"as in {kind}:{above}"
        )
    own = (place.state, place.settings) if permission.kind is Kind.WRITE else (place.state,)
    if any(real.is_relative_to(one) for one in own):
        raise PermissionWordError(f"{word!r}: no command gets at this program's own files")
    try:
        str(real).encode()
    except UnicodeEncodeError:
        raise PermissionWordError(f"{word!r}: the path is not UTF-8") from None
    permission = Permission(permission.kind, str(real))
    leads = Path(os.path.normpath(named)) != real
    return Wanted(
        permission, f"{permission} ({permission_words(word)} leads there)" if leads else str(permission)
    )


def permission_words(word: str) -> str:
    """The path as it was named."""
    return word.strip().partition(":")[2]


def named_path(target: str, place: Place) -> Path:
    """The absolute path that is named; links in it are not followed.  Raises PermissionWordError."""
    if target == "~" or target.startswith("~/"):
        return place.home / target[2:]
    if target.startswith("~"):
        raise PermissionWordError(f"{target!r}: only ~ and ~/PATH stand for a home directory, the user's own")
    return place.workspace / target


def has(policy: SandboxPolicy, permission: Permission, *, listed: bool) -> bool:
    """Whether such a worker may do that anyway.  `listed`: a list of hosts can be held to."""
    if policy.mode is Mode.UNCONFINED:
        return True
    path = permission.target
    writable = () if policy.mode is Mode.READ_ONLY else (policy.workspace, policy.tmp, *policy.writable)
    match permission.kind:
        case Kind.READ:
            readable = (policy.workspace, policy.tmp, policy.output, *policy.readable, *policy.writable)
            return _below(path, readable) and not _below(path, policy.hidden)
        case Kind.WRITE:
            return _below(path, writable) and not _below(path, (*policy.hidden, *policy.protected))
        case Kind.NETWORK:
            host, _, port = path.rpartition(":")
            return policy.network is Network.ON or (listed and Hosts(policy.hosts).allows(host, int(port)))
        case Kind.GIT_WRITE | Kind.UNCONFINED:
            return False


def _below(path: str, places: Iterable[str]) -> bool:
    return any(place and (path == place or path.startswith(place.rstrip("/") + "/")) for place in places)
