"""What `agent sessions` prints: a table of conversations, this project's first.  Pure.

The standard library only, since the command needs no editor: cells are those of unicodedata.
"""

import time
import unicodedata
from collections.abc import Sequence

from supervisor.harmless import harmless_line
from supervisor.store.listing import Listed

HEAD = ("ID", "LAST WRITTEN", "TURNS", "TITLE")
TITLE_CELLS = 60
"""Of a title at most; titles are first lines of users and can be long."""
LEAST_CELLS = 12
"""Of a title at least, however narrow the terminal is."""


def drawn(found: Sequence[Listed], *, everything: bool, columns: int | None) -> list[str]:
    """The table, and lines on what it leaves out.  `columns` of the terminal; None: whole titles."""
    shown = [listed for listed in found if listed.here or everything]
    lines = _table(shown, columns)
    if not any(listed.here for listed in found):
        lines.append("no conversation of this project yet; start one with: agent")
    others = sum(not listed.here for listed in found)
    if others and not everything:
        lines.append(f"{others} of other projects: agent sessions --all")
    return lines


def _table(shown: Sequence[Listed], columns: int | None) -> list[str]:
    if not shown:
        return []
    elsewhere = any(not listed.here for listed in shown)
    rows = [(*HEAD, "WORKSPACE" if elsewhere else "")] + [_row(listed) for listed in shown]
    ids, times, turns = (max(len(row[at]) for row in rows) for at in range(3))
    titles = max(cells(row[3]) for row in rows)
    if columns is not None:
        titles = min(titles, TITLE_CELLS, max(columns - ids - times - turns - 7, LEAST_CELLS))
    return [
        f"{row[0]:<{ids}}  {row[1]:<{times}}  {row[2]:>{turns}}  {_fitted(row[3], titles)}  {row[4]}".rstrip()
        for row in rows
    ]


def _row(listed: Listed) -> tuple[str, str, str, str, str]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(listed.time))
    turns = "?" if listed.turns is None else str(listed.turns)
    where = "" if listed.here else harmless_line(listed.workspace)
    return harmless_line(listed.id), when, turns, harmless_line(listed.title), where


def cells(text: str) -> int:
    """Cells of a terminal that the text takes."""
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _fitted(text: str, width: int) -> str:
    """The text in exactly so many cells, `…` in place of what is left out."""
    if cells(text) > width:
        kept, used = 0, 0
        while used + _cells(text[kept]) < width:
            used += _cells(text[kept])
            kept += 1
        text = text[:kept] + "…"
    return text + " " * (width - cells(text))
