"""What `.gitignore` files leave out: the rules of a directory and of those above it, up to the workspace."""

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.files.names import decoded

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_NAME = b".gitignore"
_SIZE_MAX = 1_000_000


@dataclass(frozen=True)
class Rules:
    """One `.gitignore`: its patterns, the path of its directory (`` or `a/b/`), and the rules above it."""

    spec: "GitIgnoreSpec"
    base: str
    above: "Rules | None"


def ignored(rules: Rules | None, path: bytes, *, directory: bool) -> bool:
    """Whether the path, relative to where the rules' bases are, is left out.  The innermost word counts.

    Parents are not looked at: whoever walks doesn't go into what is ignored.
    """
    if rules is None:
        return False
    text = decoded(path) + ("/" if directory else "")
    current: Rules | None = rules
    while current is not None:
        verdict = current.spec.check_file(text[len(current.base) :]).include
        if verdict is not None:
            return verdict
        current = current.above
    return False


def with_rules_of(above: Rules | None, fd: int, base: bytes) -> Rules | None:
    """The rules in force in a directory: those above, and its own `.gitignore` where it has one."""
    text = _text(fd)
    if not text:
        return above
    from pathspec import GitIgnoreSpec  # Late: 40 ms that most workers never need.

    lines = text.splitlines()
    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except ValueError:
        spec = GitIgnoreSpec.from_lines(line for line in lines if _sound(line))
    return Rules(spec, decoded(base), above)


def _sound(line: str) -> bool:
    """Whether this line is a pattern; git passes over one that isn't."""
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _text(fd: int) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        rules = os.open(_NAME, flags, dir_fd=fd)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(rules).st_mode):
            return ""
        return os.read(rules, _SIZE_MAX).decode("utf-8", "surrogateescape")
    finally:
        os.close(rules)
