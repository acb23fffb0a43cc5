"""A unified diff as a person reads it: line numbers, colours, folded.  Pure; its input is harmless already.

What the worker made of an edit is taken as it is; a text that is no unified diff is shown line by line.
"""

import re
from collections.abc import Iterator

from supervisor.screen.tones import Terminal, Tone

HEADING = "= "
"""How a line begins that names the file of what follows, where a diff has several."""

HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def numbered(diff: str) -> Iterator[tuple[int | None, str, str]]:
    """Line number (the new file's, for a removed line the old one's), mark (`+`, `-`, ` `, `@`), text.

    File headers are left out: the line above the diff names the file.
    """
    old = new = 0
    in_hunk = False
    for line in diff.splitlines():
        begins = HUNK.match(line)
        if line.startswith(HEADING):  # a line of a hunk has a mark of its own before it
            in_hunk = False
            yield None, "@", line.removeprefix(HEADING)
        elif begins:
            old, new = int(begins[1]), int(begins[2])
            if in_hunk:
                yield None, "@", "…"
            in_hunk = True
        elif not in_hunk:
            if not line.startswith(("---", "+++", "diff ", "index ")):
                yield None, " ", line
        elif line.startswith("+"):
            yield new, "+", line[1:]
            new += 1
        elif line.startswith("-"):
            yield old, "-", line[1:]
            old += 1
        elif line.startswith("\\"):
            yield None, "@", line[1:].strip()
        else:
            yield new, " ", line[1:]
            old, new = old + 1, new + 1


def drawn(diff: str, terminal: Terminal, indent: str, most: int | None) -> list[str]:
    """The diff as lines for the terminal; at most `most` of them, and a last one that names the rest."""
    rows = list(numbered(diff))
    width = max((len(str(number)) for number, _, _ in rows if number is not None), default=1)
    shown = rows if most is None or len(rows) <= most + 1 else rows[:most]
    lines = []
    for number, mark, text in shown:
        gutter = f"{number if number is not None else '':>{width}} "
        if mark == "@":
            lines.append(indent + terminal.paint(f"{'':>{width}} {text}", Tone.QUIET))
            continue
        tone = {"+": Tone.ADDED, "-": Tone.REMOVED}.get(mark, Tone.QUIET)
        lines.append(indent + terminal.paint(gutter, Tone.QUIET) + terminal.paint(f"{mark} {text}", tone))
    if len(shown) < len(rows):
        lines.append(indent + terminal.paint(f"… {len(rows) - len(shown)} more lines", Tone.QUIET))
    return lines
