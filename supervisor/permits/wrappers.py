"""Commands that run another command, which then counts as well: `sudo`, `env`, `xargs`, `sh -c` and so on.

Only options that are known are read past: with any other, the command inside is not clear.  No list can name
every program that runs others; what is written here is what people and models write.  Pure.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

ANY = "\0"
"""Stands in a word for text that is known only when the command runs; no command can hold it itself."""


class Words(Struct, frozen=True):
    """The command inside, as words."""

    words: tuple[str, ...]


class Script(Struct, frozen=True):
    """The command inside, as text for a shell."""

    text: str


class Unclear(Struct, frozen=True):
    why: str


Inner = Words | Script | Unclear | None


class _Options(Struct, frozen=True):
    """What may stand before the command inside.  `taking`: options with a value; `operands`: words between
    the options and the command, as a timeout's seconds."""

    plain: frozenset[str] = frozenset()
    taking: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    """Whether NAME=VALUE may stand there."""


def _options(plain: str = "", taking: str = "", *, operands: int = 0, assigns: bool = False) -> _Options:
    return _Options(frozenset(plain.split()), frozenset(taking.split()), operands, assigns)


_WRAPPERS = {
    "builtin": _options(),
    "busybox": _options(),
    "command": _options("-p"),
    "doas": _options("-n", "-u -C"),
    "env": _options("- -i -0 --ignore-environment --null", "-u -C --unset --chdir", assigns=True),
    "exec": _options("-c -l", "-a"),
    "ionice": _options("-t", "-c -n -p"),
    "nice": _options("", "-n --adjustment"),
    "nohup": _options(),
    "setsid": _options("-c -f -w --ctty --fork --wait"),
    "stdbuf": _options("", "-i -o -e --input --output --error"),
    "sudo": _options("-n -E -H -S -b -A -P -k", "-u -g -h -p -C -r -t -D -R -T -U", assigns=True),
    "time": _options("-p -v -a --portability --verbose --append", "-f -o --format --output"),
    "timeout": _options(
        "-v --verbose --foreground --preserve-status", "-s -k --signal --kill-after", operands=1
    ),
    "xargs": _options(
        "-0 -r -t -p -x -o --null --no-run-if-empty --verbose --exit --open-tty",
        "-n -P -L -s -d -E -a --max-args --max-procs --max-lines --max-chars --delimiter --arg-file",
    ),
}
_SHELLS = frozenset(("ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"))
_OPAQUE = frozenset(
    ("alias", "arch", "bind", "chroot", "chrt", "compgen", "complete", "coproc", "enable", "fakeroot",
     "flock", "hash", "ld.so", "let", "linux32", "linux64", "ltrace", "nsenter", "parallel", "pkexec",
     "prlimit", "rbash", "runuser", "script", "setarch", "setpriv", "shopt", "strace", "su", "systemd-run",
     "taskset", "unbuffer", "unshare", "watch")
)  # fmt: skip
"""They run others, or change what a name means, in more ways than are read here."""
_ASSIGNING = frozenset(("getopts", "mapfile", "read", "readarray"))
_FIND_EXECUTES = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)


def inner(words: Sequence[str]) -> tuple[Inner, ...]:
    """What the command with these words runs beside itself."""
    name = words[0].rpartition("/")[2]
    if name in _OPAQUE:
        return (Unclear(f"what {name} does is not clear from its words"),)
    if name in _WRAPPERS:
        return (_wrapped(name, _WRAPPERS[name], words[1:]),)
    if name in _SHELLS:
        return (_shell(name, words[1:]),)
    if name == "eval":
        return (Script(" ".join(words[1:])),) if len(words) > 1 else ()
    if name == "trap":
        return _trapped(words[1:])
    if name == "find":
        return tuple(_executed_by_find(words[1:]))
    if name in _ASSIGNING and any(not re.fullmatch(r"[a-z0-9_.,-]+", word, re.ASCII) for word in words[1:]):
        return (Unclear(f"which variables {name} sets may matter"),)
    if name == "printf" and len(words) > 1 and words[1].startswith(("-v", ANY)):
        return (Unclear("which variable printf sets may matter"),)
    return ()


def _wrapped(name: str, options: _Options, words: Sequence[str]) -> Inner:
    waiting = list(words)
    if name == "command" and waiting and waiting[0] in ("-v", "-V"):
        return None
    left = options.operands
    while waiting:
        word = waiting.pop(0)
        if ANY in word:
            return Unclear(f"what {name} runs is known only when it runs")
        if options.assigns and _ASSIGNMENT.match(word):
            return Unclear(f"{name} sets {word.partition('=')[0]} for a command")
        if word == "--":
            continue
        if word.startswith("-") and word not in options.plain:
            flag, equals, _ = word.partition("=")
            if flag not in options.taking:
                return Unclear(f"{name} has an option that is not known here: {word}")
            if not equals and waiting:
                waiting.pop(0)
        elif not word.startswith("-"):
            if left == 0:
                more = (ANY,) if name == "xargs" else ()
                return Words((word, *waiting, *more))
            left -= 1
    return None


def _shell(name: str, words: Sequence[str]) -> Inner:
    """`sh -c TEXT`; `sh FILE` and `sh` alone run what nobody sees here, and are just themselves."""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if ANY in word:
            return Unclear(f"what {name} runs is known only when it runs")
        if re.fullmatch(r"-[a-z]*c[a-z]*", word):
            if "o" in word or not waiting:
                return Unclear(f"what {name} runs is not clear")
            text = waiting.pop(0)
            if text.startswith("-"):
                return Unclear(f"what {name} runs is not clear")
            return Script(text)
        if word in ("--norc", "--noprofile", "--posix", "--login") or re.fullmatch(r"-[eilnuvx]+", word):
            continue
        if word.startswith(("-", "+")):
            return Unclear(f"{name} has an option that is not known here: {word}")
        return None
    return None


def _trapped(words: Sequence[str]) -> tuple[Inner, ...]:
    if not words or words[0] in ("-l", "-p"):
        return ()
    text = words[1] if words[0] == "--" and len(words) > 1 else words[0]
    return () if text in ("", "-") else (Script(text),)


def _executed_by_find(words: Sequence[str]) -> list[Inner]:
    found: list[Inner] = []
    for at, word in enumerate(words):
        if word in _FIND_EXECUTES:
            ends = [end for end in range(at + 1, len(words)) if words[end] in (";", "+")]
            command = words[at + 1 : ends[0]] if ends else words[at + 1 :]
            replaced = tuple(ANY if "{}" in one else one for one in command)
            found.append(Words(replaced) if replaced else Unclear("find runs no command that can be read"))
        elif ANY in word and word.strip(ANY) in ("", "-", "-e", "-ex", "-exe"):
            found.append(Unclear("what find does is known only when it runs"))
    return found
