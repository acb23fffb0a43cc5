"""Patterns of rules: on the words of a command, on URLs, and on paths as in .gitignore.  Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache

from supervisor.permits.wrappers import ANY

_STEPS = 1_000_000
"""Of comparing two globs, some 0.2 s: where it takes more, they may match."""


def text_matches(pattern: str, text: str) -> bool:
    """Whether the pattern is the text, or its beginning up to a space; `*` is any text, `?` a character."""
    return bool(_compiled(pattern).fullmatch(text))


def url_matches(pattern: str, url: str) -> bool:
    """Whether the pattern is the URL, or its beginning up to a part of the path or the query."""
    return bool(_compiled(pattern.rstrip("/"), "[/?]").fullmatch(url))


@lru_cache(maxsize=4096)
def _compiled(pattern: str, end: str = " ") -> re.Pattern[str]:
    first, *more = re.sub(r"\*+", "*", pattern).split("*")
    # What stands between two stars is found at its first place and never looked for again, so that no
    # text takes longer than its length.
    found = "".join(f"(?>.*?{_fixed(piece)})" for piece in more[:-1])
    last = f"(?>.*?{_fixed(more[-1])}(?={end}|\\Z))" if more else ""
    return re.compile(f"{_fixed(first)}{found}{last}({end}.*)?", re.DOTALL)


def _fixed(piece: str) -> str:
    """A part of a pattern without stars."""
    return "".join(f"[^{ANY}]" if one == "?" else re.escape(one) for one in piece)


def text_may_match(pattern: str, text: str) -> bool:
    """The same for a text that holds ANY: whether some text in its place would match."""
    if ANY not in text:
        return text_matches(pattern, text)
    text = re.sub(f" {ANY}+(?= |$)", ANY, text)  # it may also be no word at all
    if len(pattern) * len(text) > _STEPS:
        return True
    return _meet(pattern, text) or _meet(f"{pattern} *", text)


def _meet(pattern: str, text: str) -> bool:
    """Whether two globs have a text in common.  `*` and `?` are wild in the one, ANY in the other."""
    row = [True] + [False] * len(text)
    for at, other in enumerate(text):
        row[at + 1] = row[at] and other == ANY
    for one in pattern:
        before, row = row, [False] * len(row)
        row[0] = before[0] and one == "*"
        for at, other in enumerate(text, 1):
            if one == "*" or other == ANY:
                # What is wild stands for nothing, or for one more of what stands against it.
                row[at] = before[at] or row[at - 1]
            else:
                row[at] = before[at - 1] and (one in ("?", other))
    return row[-1]


def path_matches(pattern: str, path: str, workspace: str, home: str) -> bool:
    """Whether the pattern names this absolute, normal path or a directory above it.

    Without a slash but at its end it is a name at any depth; else it is relative to the workspace, or begins
    with / or ~/.  `*` and `?` stay within a name, `**` doesn't.
    """
    pattern = pattern.removesuffix("/") or "/"
    if "/" not in pattern and pattern not in ("~", "."):
        place, names = "/", ["**", pattern]
    elif pattern.startswith("/"):
        place, names = "/", pattern.split("/")
    elif pattern == "~" or pattern.startswith("~/"):
        place, names = home, pattern.split("/")[1:]
    else:
        place, names = workspace, pattern.split("/")
    place = place.rstrip("/")
    if path != place and not path.startswith(f"{place}/"):
        return False
    below = path[len(place) :].split("/")
    return _leads([name for name in names if name not in ("", ".")], [name for name in below if name])


def _leads(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the patterns name the beginning of this way, or all of it."""
    reached = {0}
    for at, pattern in enumerate(patterns):
        if pattern == "**":
            # At the end it means what lies below, else also nothing.
            first = min(reached) + (at == len(patterns) - 1)
            reached = set(range(first, len(names) + 1))
        else:
            name = _of_name(pattern)
            reached = {one + 1 for one in reached if one < len(names) and name.fullmatch(names[one])}
        if not reached:
            return False
    return True


_PIECE = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)


@lru_cache(maxsize=4096)
def _of_name(pattern: str) -> re.Pattern[str]:
    """A pattern of one name; between two stars as in `_compiled`."""
    parts = [""]
    for piece in _PIECE.findall(pattern):
        if piece.startswith("*"):
            parts.append("")
        elif piece == "?":
            parts[-1] += "."
        elif len(piece) > 1:
            inside = piece[1:-1].removeprefix("!")
            escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside)
            parts[-1] += f"[{'^' if piece[1] == '!' else ''}{escaped}]"
        else:
            parts[-1] += re.escape(piece)
    first, *more = parts
    found = "".join(f"(?>.*?{part})" for part in more[:-1])
    return re.compile(f"{first}{found}{f'.*{more[-1]}' if more else ''}", re.DOTALL)
