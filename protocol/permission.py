"""What may be asked for beyond the policy, in the words that the model, `--allow`, rules and the screen use.

read:PATH  write:PATH  network:HOST:PORT  git-write  unconfined
"""

import re
from enum import Enum

from msgspec import Struct

_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\]")


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
    return Permission(kind, target)


def _host_and_port(word: str, target: str) -> str:
    host, _, port = target.rpartition(":")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 0
    if not _HOST.fullmatch(host) or not 0 < number < 65536:
        raise PermissionWordError(f"{word!r}: a host and a port are wanted, as in network:example.org:443")
    return f"{host.lower().rstrip('.')}:{number}"
