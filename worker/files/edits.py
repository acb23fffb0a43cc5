"""Exact replacement in the bytes of a file.  Pure: bytes in, bytes out; nothing is decoded or normalised.

What an edit doesn't name stays as it is, byte for byte.  The one freedom: a line break in `old` matches
CRLF as well as LF, and each line break in `new` gets the ending of the line that it replaces, so that an
edit written with LF works in a CRLF file.  Whoever writes CR in `old` means it: then every byte counts.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from protocol.tools.edit_file import Edit
from worker.files.encodings import BOM, not_utf8, wide
from worker.files.misses import explain

_LINES_NAMED = 10
_COUNTED = 1000
"""Places above which an ambiguous text's are not counted on."""
_ENDING = re.compile(rb"\r?\n")


class EditError(ValueError):
    """The edits can't be made, and nothing was changed.  The message is for the model."""


@dataclass(frozen=True)
class Edited:
    """The new content, and how many places were replaced."""

    data: bytes
    places: int


def apply(data: bytes, edits: Sequence[Edit]) -> Edited:
    """All edits in order, each on what the one before left.  Raises EditError, naming the edit."""
    marked = data.startswith(BOM)
    body = data[len(BOM) :] if marked else data
    places = 0
    for number, edit in enumerate(edits, 1):
        try:
            body, count = _apply_one(body, edit, marked)
        except EditError as error:
            which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise EditError(f"{which}{error}{_consumed(data, body, edit)}") from None
        places += count
    whole = BOM + body if marked else body
    if whole == data and data:
        raise EditError("the edits together change nothing")
    return Edited(whole, places)


def _consumed(data: bytes, body: bytes, edit: Edit) -> str:
    """Said of a text that an earlier edit of the same call has changed."""
    old = edit.old.encode(errors="replace")
    if not old or next(_places(data, old, overlapping=True), None) is None:
        return ""
    gone = next(_places(body, old, overlapping=True), None) is None
    return "; an edit before it in this call has changed the place where it stood" if gone else ""


def _apply_one(body: bytes, edit: Edit, marked: bool) -> tuple[bytes, int]:
    if edit.old == edit.new:
        raise EditError("`old` and `new` are the same: there is nothing to change")
    old, new = _encoded(edit.old), _encoded(edit.new)
    if marked or old.startswith(BOM):
        old, new = old.removeprefix(BOM), new.removeprefix(BOM)
    if not old:
        if body:
            raise EditError(
                "`old` is empty, but the file is not. To append, give the last lines as `old` and repeat "
                "them in `new`; to replace the whole content, use write_file"
            )
        return new, 1
    wrong = not_utf8(body)
    if wrong is not None and not (old + new).isascii():
        raise EditError(f"{wrong}: only ASCII text can be edited in it, convert it first")
    places = _places(body, old, overlapping=not edit.replace_all)
    found = list(places if edit.replace_all else islice(places, _COUNTED))
    if not found and (name := wide(body)) is not None:
        raise EditError(f"`old` was not found: the file is {name} text; convert it first")
    if not found:
        raise EditError(explain(body.decode("utf-8" if wrong is None else "latin-1"), edit.old))
    if len(found) > 1 and not edit.replace_all:
        least = "at least " if len(found) == _COUNTED else ""
        raise EditError(
            f"`old` occurs {least}{len(found)} times, in lines {_lines(body, found)}: "
            "give more of its surroundings, or set replace_all"
        )
    if b"\r" in old and old in body:
        fit = None
    elif b"\r\n" in body:
        fit = _fit
    else:
        fit = None
        new = new.replace(b"\r\n", b"\n") if b"\r\n" in old else new
    return _replaced(body, found, new, fit), len(found)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        raise EditError(f"the text holds U+{half:04X}, half a character") from error


def _places(body: bytes, old: bytes, *, overlapping: bool) -> Iterator[tuple[int, int]]:
    """Where `old` stands, from and to."""
    exact = b"\r" in old and old in body
    wanted = old if exact else old.replace(b"\r\n", b"\n")
    if not exact and b"\n" in wanted and b"\r\n" in body:
        pattern = re.compile(rb"(?:\r\n|(?<!\r)\n)".join(map(re.escape, wanted.split(b"\n"))))
        found = pattern.search(body)
        while found is not None:
            yield found.span()
            found = pattern.search(body, found.start() + 1 if overlapping else found.end())
        return
    at = body.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = body.find(wanted, at + (1 if overlapping else len(wanted)))


def _replaced(
    body: bytes,
    found: list[tuple[int, int]],
    new: bytes,
    fit: Callable[[bytes, int, int, bytes], bytes] | None,
) -> bytes:
    """The body with `new` at each place, its line breaks fitted to the place where `fit` is given."""
    pieces: list[bytes] = []
    at = 0
    for start, end in found:
        pieces += [body[at:start], new if fit is None else fit(body, start, end, new)]
        at = end
    pieces.append(body[at:])
    return b"".join(pieces)


def _fit(body: bytes, start: int, end: int, new: bytes) -> bytes:
    """`new` with the endings of the lines that it replaces; more of them get the last one's."""
    endings = _ENDING.findall(body, start, end)
    if endings:
        last = endings[-1]
    else:
        nearest = _ENDING.search(body, end) or _ENDING.search(body)
        last = nearest.group() if nearest else b"\n"
    lines = new.replace(b"\r\n", b"\n").split(b"\n")
    fitted = [lines[0]]
    for number, line in enumerate(lines[1:]):
        fitted += [endings[number] if number < len(endings) else last, line]
    return b"".join(fitted)


def _lines(body: bytes, found: list[tuple[int, int]]) -> str:
    numbers = [str(body.count(b"\n", 0, start) + 1) for start, _ in found[:_LINES_NAMED]]
    return ", ".join(numbers) + (", …" if len(found) > _LINES_NAMED else "")
