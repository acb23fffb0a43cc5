"""Patterns of rules: on the words of a command, on URLs, and on paths as in .gitignore.  Pure."""

import re
from functools import lru_cache
from itertools import groupby

from supervisor.permits.wrappers import ANY


def text_matches(pattern: str, text: str) -> bool:
    """Whether the pattern is the text, or its beginning up to a space; `*` is any text, `?` a character."""
    return bool(_compiled(pattern).fullmatch(text))


def url_matches(pattern: str, url: str) -> bool:
    """Whether the pattern is the URL, or its beginning up to a part of the path or the query."""
    return bool(_compiled(pattern.rstrip("/"), "[/?]").fullmatch(url))


@lru_cache(maxsize=1000)
def _compiled(pattern: str, end: str = " ") -> re.Pattern[str]:
    wild = {"*": ".*", "?": f"[^{ANY}]"}
    # A run of stars is one: else matching could take for ever.
    runs = ("*" if key == "*" else "".join(group) for key, group in groupby(pattern))
    glob = "".join(wild.get(character, re.escape(character)) for character in "".join(runs))
    return re.compile(f"{glob}({end}.*)?", re.DOTALL)


def text_may_match(pattern: str, text: str) -> bool:
    """The same for a text that holds ANY: whether some text in its place would match."""
    if ANY not in text:
        return text_matches(pattern, text)
    text = re.sub(f" {ANY}+(?= |$)", ANY, text)  # it may also be no word at all
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
    if "/" not in pattern and pattern != "~":
        place = f"(.*/)?{_of_names(pattern)}"
    elif pattern.startswith("/"):
        place = _of_names(pattern)
    elif pattern == "~" or pattern.startswith("~/"):
        place = re.escape(home.rstrip("/")) + _of_names(pattern[1:])
    else:
        pattern = re.sub(r"^(\./)+", "", pattern)
        place = re.escape(workspace.rstrip("/")) + "/" + _of_names(pattern)
    return bool(re.fullmatch(f"{place.rstrip('/')}(/.*)?", path, re.DOTALL))


_PIECE = re.compile(r"\*\*/|/\*\*$|\*+|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def _of_names(pattern: str) -> str:
    made = []
    for piece in _PIECE.findall(pattern):
        match piece:
            case "**/":
                made.append("(?:.*/)?")
            case "/**":
                made.append("/.*")
            case "?":
                made.append("[^/]")
            case _ if piece.startswith("*"):
                made.append("[^/]*")
            case _ if len(piece) > 1:
                inside = piece[1:-1].removeprefix("!")
                escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside)
                made.append(f"(?!/)[{'^' if piece[1] == '!' else ''}{escaped}]")
            case _:
                made.append(re.escape(piece))
    return "".join(made)
