"""A unified diff for the screen, with a bound on its size and on the time it takes.  Pure."""

import difflib
from dataclasses import dataclass

_DIFF_BYTES = 4000
_COMPARED = 2000
"""Lines of the part that differs, before and after, that are compared line by line.  Above it the whole
part counts as replaced: difflib's time grows with the square."""
_CONTEXT = 3


@dataclass(frozen=True)
class Diff:
    """The diff, how many lines it adds and removes in all, and whether its text was cut."""

    text: str
    added: int
    removed: int
    cut: bool

    @property
    def counts(self) -> str:
        return f"+{self.added} -{self.removed}" + (", diff cut" if self.cut else "")


def unified(before: bytes, after: bytes) -> Diff:
    """What changed, as hunks without file headers.  Bytes that are no UTF-8 are shown as U+FFFD."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = _same(old, new, min(len(old), len(new)))
    tail = _same(old[::-1], new[::-1], min(len(old), len(new)) - head)
    start, old_end, new_end = max(head - _CONTEXT, 0), len(old) - tail, len(new) - tail
    removed_lines, added_lines = old[head:old_end], new[head:new_end]
    if max(len(removed_lines), len(added_lines)) > _COMPARED:
        after_context = old[old_end : old_end + _CONTEXT]
        rows = [f"@@ -{head + 1},{len(removed_lines)} +{head + 1},{len(added_lines)} @@"]
        rows += [_row(" ", line) for line in old[start:head]]
        rows += [_row("-", line) for line in removed_lines[:200]] + [
            _row("+", line) for line in added_lines[:200]
        ]
        rows += [_row(" ", line) for line in after_context]
        return _bounded(rows, len(added_lines), len(removed_lines), cut=True)
    rows, added, removed = _hunks(old[start : old_end + _CONTEXT], new[start : new_end + _CONTEXT], start)
    return _bounded(rows, added, removed, cut=False)


def _hunks(old: list[bytes], new: list[bytes], start: int) -> tuple[list[str], int, int]:
    rows: list[str] = []
    added = removed = 0
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        rows.append(f"@@ -{_range(start, first[1], last[2])} +{_range(start, first[3], last[4])} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [_row(" ", line) for line in old[i1:i2]]
                continue
            rows += [_row("-", line) for line in old[i1:i2]] + [_row("+", line) for line in new[j1:j2]]
            removed += i2 - i1
            added += j2 - j1
    return rows, added, removed


def _range(start: int, begin: int, end: int) -> str:
    """Lines of a hunk as diff -u counts them: an empty range names the line before it."""
    size = end - begin
    first = start + begin + (1 if size else 0)
    return str(first) if size == 1 else f"{first},{size}"


def _row(mark: str, line: bytes) -> str:
    return mark + line.decode("utf-8", "replace").rstrip("\r\n")


def _bounded(rows: list[str], added: int, removed: int, *, cut: bool) -> Diff:
    kept: list[str] = []
    room = _DIFF_BYTES
    for row in rows:
        room -= len(row) + 1
        if room < 0:
            cut = True
            if not kept or len(kept) == 1:
                kept.append(row[:200] + "…")
            break
        kept.append(row)
    return Diff("\n".join(kept), added, removed, cut)


def _same(old: list[bytes], new: list[bytes], limit: int) -> int:
    """How many lines at the start are the same, at most `limit`."""
    for number in range(limit):
        if old[number] != new[number]:
            return number
    return limit
