"""Why a text was not found in a file: the nearest cause, in words that let the next try succeed.

Each cause is a way to look again with one difference ignored.  Nothing found so is ever applied: the words
name the line and the difference, and the file stays untouched.  Pure.
"""

import difflib
import re
import unicodedata
from collections.abc import Callable
from itertools import islice

_SIZE_MAX = 4_000_000
"""Characters of a file that are looked through again; above it only the miss itself is told."""
_NEAR_LINES = 3000
_NEAR_LENGTH = 300
_QUOTED = 120
_LINES_NAMED = 5

_FOLDED = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\u3000", " "),
    }
)
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)


def explain(text: str, old: str) -> str:
    """One or two sentences on why `old` is not in `text`.  CRLF counts as LF in both."""
    text, old = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    if len(text) > _SIZE_MAX:
        return "`old` was not found; the file is too large to say what comes near"
    if not text:
        return "`old` was not found: the file is empty"
    causes: tuple[Callable[[str, str], str | None], ...] = (
        _around, _line_numbers, _escapes, _blanks, _typography, _normal_forms, _case, _line_breaks, _nearest,
    )  # fmt: skip
    for cause in causes:
        words = cause(text, old)
        if words:
            return f"`old` was not found: {words}"
    return "`old` was not found, and no line comes near it; read the file again"


def _around(text: str, old: str) -> str | None:
    """The text itself is there, but not the line breaks around it."""
    bare = old.strip("\n")
    at = text.find(bare) if bare else -1
    if at < 0:
        return None
    if old.endswith("\n") and text.endswith(bare):
        return "it ends in a line break, but the file ends without one"
    rest = text[at + len(bare) :].partition("\n")[0]
    if old.endswith("\n") and rest:
        line = _line(text, at + len(bare))
        if not rest.strip():
            return f"line {line} ends in blanks ({rest!r}), which `old` lacks before its line break"
        return f"it ends in a line break where line {line} goes on with {_quote(rest)}"
    return f"the blank lines around it are not in the file; without them it stands in {_at(text, bare)}"


def _line_numbers(text: str, old: str) -> str | None:
    bare = _NUMBERED.sub("", old)
    if bare == old or bare not in text:
        return None
    return f"leave out the line numbers of read_file; without them it stands in {_at(text, bare)}"


def _escapes(text: str, old: str) -> str | None:
    plain = old.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    if plain == old or plain not in text:
        return None
    return f"it holds backslash escapes where the file has the characters themselves ({_at(text, plain)})"


def _blanks(text: str, old: str) -> str | None:
    """The same lines, but for blanks at their start, their end, or in between."""
    wanted = [_words(line) for line in old.strip("\n").split("\n")]
    if not any(wanted):
        return None
    lines = text.split("\n")
    words = [_words(line) for line in lines]
    size = len(wanted)
    first = wanted[0]
    found = [i for i in range(len(lines) - size + 1) if words[i] == first and words[i : i + size] == wanted]
    if not found:
        return None
    given = old.strip("\n").split("\n")
    there = lines[found[0] : found[0] + size]
    differing = next(i for i in range(size) if there[i] != given[i])  # `_around` took what is the same.
    many = "" if len(found) == 1 else f"; {len(found)} places would match, in lines {_numbers(found)}"
    return (
        f"{_blank_difference(there[differing], given[differing])}. "
        f"Line {found[0] + differing + 1} is {_quote(there[differing])}{many}"
    )


def _blank_difference(there: str, given: str) -> str:
    indent, asked = _indent(there), _indent(given)
    if indent != asked:
        if "\t" in indent and "\t" not in asked:
            return "the file indents with tabs, `old` with spaces" if asked else "`old` lacks the file's tabs"
        if "\t" in asked and "\t" not in indent:
            return "the file indents with spaces, `old` with tabs"
        return f"the file indents by {len(indent)} characters, `old` by {len(asked)}"
    if there.rstrip() == given.rstrip():
        return "blanks at the end of the line differ"
    return "tabs or the number of spaces within the line differ"


def _typography(text: str, old: str) -> str | None:
    """Quotes, dashes and blanks of another kind; one character for one, so that places stay the same."""
    at = text.translate(_FOLDED).find(old.translate(_FOLDED))
    if at < 0:
        return None
    there = text[at : at + len(old)]
    pairs = dict.fromkeys((mine, yours) for mine, yours in zip(there, old, strict=True) if mine != yours)
    told = ", ".join(f"{_point(mine)} where `old` has {_point(yours)}" for mine, yours in islice(pairs, 4))
    return f"line {_line(text, at)} has {told}"


def _normal_forms(text: str, old: str) -> str | None:
    composed, wanted = unicodedata.normalize("NFC", text), unicodedata.normalize("NFC", old)
    at = composed.find(wanted)
    if at < 0:
        return None
    here = "decomposed (NFD)" if unicodedata.is_normalized("NFC", old) else "composed (NFC)"
    line = _line(composed, at)
    odd = [c for c in text.split("\n")[line - 1] if not c.isascii()]
    points = ", ".join(_point(c) for c in dict.fromkeys(odd[:4]))
    return (
        f"the same letters stand in line {line} in another Unicode form; the file has them {here}: {points}"
    )


def _case(text: str, old: str) -> str | None:
    found = re.search(re.escape(old), text, re.IGNORECASE)
    if found is None:
        return None
    line = _line(text, found.start())
    there = text.split("\n")[line - 1]
    return f"it differs in upper and lower case. Line {line} is {_quote(there)}"


def _line_breaks(text: str, old: str) -> str | None:
    words = old.split()
    if len(words) < 2:
        return None
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return (
        None
        if found is None
        else f"its lines are broken at other places in the file, from line {_line(text, found.start())}"
    )


def _nearest(text: str, old: str) -> str | None:
    given = [line for line in old.split("\n") if line.strip()]
    if not given:
        return None
    lines = text.split("\n")
    if len(given) > 1 and (words := _first_difference(lines, old.split("\n"))):
        return words
    short = [line for line in islice(lines, _NEAR_LINES) if line.strip() and len(line) < _NEAR_LENGTH]
    close = difflib.get_close_matches(given[0][:_NEAR_LENGTH], short, 1, 0.6)
    if not close:
        return None
    return f"the nearest is line {lines.index(close[0]) + 1}: {_quote(close[0])}"


def _first_difference(lines: list[str], given: list[str]) -> str | None:
    """Where the first lines stand as they were given, and which of the later ones differs."""
    best, length = -1, 0
    for start, line in enumerate(lines):
        if line != given[0]:
            continue
        same = 0
        while same < len(given) and start + same < len(lines) and lines[start + same] == given[same]:
            same += 1
        if same > length:
            best, length = start, same
    if length == 0:
        return None
    if best + length == len(lines):
        return f"its first {length} lines stand from line {best + 1} on, but the file ends there"
    there = lines[best + length]
    return (
        f"it matches from line {best + 1} on, but line {best + length + 1} is {_quote(there)} "
        f"where `old` has {_quote(given[length])}"
    )


def _words(line: str) -> list[str]:
    """What stands between tabs and plain spaces; other blanks are typography."""
    return [word for word in line.replace("\t", " ").split(" ") if word]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _at(text: str, part: str) -> str:
    return f"line {_line(text, text.find(part))}"


def _numbers(starts: list[int]) -> str:
    told = ", ".join(str(start + 1) for start in starts[:_LINES_NAMED])
    return told + (", …" if len(starts) > _LINES_NAMED else "")


def _point(char: str) -> str:
    return f"U+{ord(char):04X} {char!r}" if char.isprintable() else f"U+{ord(char):04X}"


def _quote(line: str) -> str:
    return repr(line if len(line) <= _QUOTED else line[:_QUOTED] + "…")
