"""What may be asked for beyond the policy, in the words that the model, `--allow`, rules and the screen use.

read:PATH  write:PATH  network:HOST:PORT  git-write  unconfined
"""

from enum import Enum
from typing import assert_never

from msgspec import Struct

from protocol.host import HostError, is_address, joined, parted


class Kind(Enum):
    READ = "read"
    """Commands and file tools may read a file, or a directory and what is below it."""
    WRITE = "write"
    """They may write it too."""
    NETWORK = "network"
    """Commands may connect to a host and a port; `*.HOST` is any name below HOST."""
    GIT_WRITE = "git-write"
    """Commands may write the workspace's `.git`, but not its configuration and its hooks."""
    UNCONFINED = "unconfined"
    """The command may do what the user may."""


class Permission(Struct, frozen=True, order=True):
    """`target`: an absolute or workspace-relative path, HOST:PORT in small letters, or nothing, by kind."""

    kind: Kind
    target: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.target}" if self.target else self.kind.value


class PermissionWordError(ValueError):
    """These are no words for a permission; the message says what is wanted."""


WORDS = "read:PATH, write:PATH, network:HOST:PORT, git-write, unconfined"


def parse(word: str) -> Permission:
    """`read:src` -> Permission(READ, "src").  Raises PermissionWordError."""
    name, colon, target = word.strip().partition(":")
    try:
        kind = Kind(name)
    except ValueError:
        raise PermissionWordError(f"{word!r} is no permission; there are: {WORDS}") from None
    match kind:
        case Kind.GIT_WRITE | Kind.UNCONFINED:
            if colon:
                raise PermissionWordError(f"{word!r}: {name} stands alone")
        case Kind.READ | Kind.WRITE:
            if not target or "\0" in target:
                raise PermissionWordError(f"{word!r}: a path is wanted, as in {name}:PATH")
        case Kind.NETWORK:
            target = _host_and_port(word, target)
        case _:
            assert_never(kind)
    return Permission(kind, target)


def _host_and_port(word: str, target: str) -> str:
    below = "*." if target.startswith("*.") else ""
    try:
        host, port = parted(target.removeprefix(below))
    except HostError as error:
        raise PermissionWordError(f"{word!r}: {error}") from error
    if below and is_address(host):
        raise PermissionWordError(f"{word!r}: an address has no names below it")
    return below + joined(host, port)
