"""Globs over relative paths, as ripgrep and `.gitignore` read them.  Pure.

`*` and `?` stop at a slash, `**` doesn't; `[...]` is a set, `{a,b}` a choice.  A glob without a slash looks
at the name alone, at any depth; one with a slash (`./*.md` too) at the whole path from the top.
"""

import re
from collections.abc import Callable

from worker.files.names import decoded

_SET = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")


_IN_NAME, _ANYTHING, _DIRECTORIES = "[^/]*", ".*", "(?:.*/)?"
_WILD = (_IN_NAME, _ANYTHING, _DIRECTORIES)
"""What `*`, `**` and `**/` become."""

_GLOB_MAX = 1000
"""Characters; a longer one is no glob that somebody wrote."""


class GlobError(ValueError):
    """This is no glob; the message says why."""


def matcher(glob: str) -> Callable[[bytes], bool]:
    """A test for paths relative to the top.  Raises GlobError."""
    if len(glob) > _GLOB_MAX:
        raise GlobError(f"the glob has {len(glob):,} characters; at most {_GLOB_MAX:,} are allowed")
    anchored = "/" in glob.rstrip("/")
    plain = glob.removeprefix("./").lstrip("/").rstrip("/")
    if not plain:
        raise GlobError(f"the glob {glob!r} is empty")
    if ".." in plain.split("/"):
        raise GlobError(f"the glob {glob!r} leads upwards; name that directory as `path`")
    try:
        pattern = re.compile(_translated(plain), re.DOTALL)
    except re.error as error:
        raise GlobError(f"the glob {glob!r} is malformed: {error}") from error

    def matches(path: bytes) -> bool:
        text = decoded(path)
        return pattern.fullmatch(text if anchored else text.rpartition("/")[2]) is not None

    return matches


def _translated(glob: str) -> str:
    out: list[str] = []
    braces = False
    at = depth = 0
    while at < len(glob):
        char = glob[at]
        piece, step = re.escape(char), 1
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            piece, step = _DIRECTORIES, 3
        elif glob.startswith("**", at):
            piece, step = _ANYTHING, 2
        elif char == "*":
            piece = _IN_NAME
        elif char == "?":
            piece = "[^/]"
        elif char == "\\" and at + 1 < len(glob):
            piece, step = re.escape(glob[at + 1]), 2
        elif char == "[" and (found := _SET.match(glob, at)):
            negated, members = found.groups()
            inner = members.replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
            piece, step = f"(?!/)[{'^' if negated else ''}{inner}]", len(found.group())
        elif char == "{":
            piece, depth, braces = "(?:", depth + 1, True
        elif char == "}" and depth:
            piece, depth = ")", depth - 1
        elif char == "," and depth:
            piece = "|"
        out.append(piece)
        at += step
    if depth:
        raise re.error("a { without its }")
    return "".join(out if braces else _decided(out))


def misled(glob: str | None) -> list[str]:
    """What to say where nothing matched a glob that begins at the root of the file system."""
    absolute = glob is not None and glob.startswith("/") and "/" in glob[1:]
    return [f"the glob {glob!r} begins at `path`, not at /"] if absolute else []


def _decided(pieces: list[str]) -> list[str]:
    """The pieces, with each wildcard and the text behind it decided at the first place where they fit.

    That finds what trying all places would, if the next wildcard can take whatever this one leaves; and a
    glob of many stars costs no more than one of few.  Trying all takes hours, which nobody could cancel.
    """
    out: list[str] = []
    places = [at for at, piece in enumerate(pieces) if piece in _WILD]
    out += pieces[: places[0]] if places else pieces
    for at, following in zip(places, [*places, None][1:], strict=True):
        wild, text = pieces[at], pieces[at + 1 : following]
        then = None if following is None else pieces[following]
        if (wild == _IN_NAME and then) or (wild == _ANYTHING and then in (_ANYTHING, _DIRECTORIES)):
            out += ["(?>", wild, "?", *text, ")"]
        else:
            out += [wild, *text]
    return out
