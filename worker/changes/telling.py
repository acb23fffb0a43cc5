"""Changes in words and as a diff: counts, one line for each path, and what is different in files of text.

All of it is cut: of thousands of changes the first are told, and how many there are.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from protocol.policy import RUN_LATER
from worker.changes.finding import View
from worker.changes.states import Change, Kind, State
from worker.files.diffs import unified
from worker.files.names import encoded, shown

_LINES = 60
"""Paths that are named one by one."""
_DIFF_BYTES = 12_000
_COMPARED_BYTES = 256 * 1024
"""A file that is larger is told by its size."""
_LATER = frozenset(encoded(name) for name in RUN_LATER)


@dataclass(frozen=True)
class Told:
    counts: str
    lines: tuple[str, ...]
    diff: str
    """Sections that begin with `= PATH`, each with the hunks of one file."""
    beside: tuple[str, ...] = ()
    """The lines that say something which the diff doesn't."""


def told(changes: list[Change], view: View) -> Told:
    sections = [(change, section) for change in changes if (section := _section(change, view))]
    kept = _bounded([section for _, section in sections])
    said = {id(change) for change, _ in sections[: len(kept)] if not _says_more(change)}
    if len(kept) < len(sections):
        rest = len(sections) - len(kept)
        kept.append(f"= {rest:,} more file{'' if rest == 1 else 's'} not shown")
    beside = [change for change in changes if id(change) not in said]
    return Told(counts(changes), tuple(named(changes, line)), "\n".join(kept), tuple(named(beside, line)))


def counts(changes: Iterable[Change]) -> str:
    """ "3 created, 1 deleted"."""
    found = Counter(_word(change) for change in changes)
    words = ("created", "changed", "replaced", "mode changed", "deleted")
    return ", ".join(f"{found[word]:,} {word}" for word in words if found[word]) or "no changes"


def named(changes: list[Change], say: Callable[[Change], str]) -> Iterator[str]:
    """One line for each of the first, and how many more there are."""
    # What other programs act on must not drown in a long list.
    first = sorted(changes, key=lambda change: not _acts_later(change)) if len(changes) > _LINES else changes
    yield from map(say, first[:_LINES])
    if len(changes) > _LINES:
        yield f"… and {len(changes) - _LINES:,} more"


def line(change: Change) -> str:
    words = f"{_word(change)}: {shown(change.path)}{_what(change)}"
    return f"{words} (other programs act on it later, unseen)" if _acts_later(change) else words


def _word(change: Change) -> str:
    match change:
        case Change(before=None):
            return "created"
        case Change(after=None):
            return "deleted"
        case Change(before=State(kind=one), after=State(kind=other)) if one is not other:
            return "replaced"
        case Change(after=State(kind=Kind.DIRECTORY | Kind.PIPE)) | Change(same=True):
            return "mode changed"
        case _:
            return "changed"


def _what(change: Change) -> str:
    before, after = change.before, change.after
    state = after or before
    assert state is not None
    words = {
        Kind.DIRECTORY: "/",
        Kind.LINK: f" -> {shown(state.target)}",
        Kind.FILE: f", {state.size:,} bytes",
    }
    what = words.get(state.kind, f", a {state.kind.value}")
    if before is not None and after is not None and before.mode != after.mode and after.kind is not Kind.LINK:
        what += f", mode {before.mode:04o} -> {after.mode:04o}"
    elif before is None and after is not None and after.kind is Kind.FILE and after.mode & 0o111:
        what += ", executable"
    return what


def _says_more(change: Change) -> bool:
    """Whether the line holds something that the head of a section doesn't."""
    state = change.after or change.before
    assert state is not None
    return _acts_later(change) or state.kind is not Kind.FILE or _what(change) != f", {state.size:,} bytes"


def _acts_later(change: Change) -> bool:
    return change.after is not None and change.path.split(b"/", 1)[0] in _LATER


def _section(change: Change, view: View) -> str:
    """One file's part of the diff; empty where the line says it all."""
    if change.same:
        return ""
    old = _content(view.before(change.path), change.before)
    new = _content(view.after(change.path), change.after)
    if old is None or new is None or old == new:
        return ""
    head = f"= {shown(change.path)}  {_word(change)}"
    if b"\0" in old or b"\0" in new:
        return f"{head}, binary: {len(old):,} -> {len(new):,} bytes"
    diff = unified(old, new)
    return f"{head} {diff.counts}\n{diff.text}"


def _content(path: bytes, state: State | None) -> bytes | None:
    """What the diff compares: nothing where there is no file, None where it can't be shown."""
    if state is None or state.kind is not Kind.FILE:
        return b""
    if state.size > _COMPARED_BYTES:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(_COMPARED_BYTES)


def _bounded(sections: list[str]) -> list[str]:
    """The first ones, as far as there is room."""
    room = _DIFF_BYTES
    for number, section in enumerate(sections):
        if len(section) > room:
            return sections[:number]
        room -= len(section) + 1
    return list(sections)
