"""How many rows of a terminal a text takes: cells, not code points.  Pure.

Cells come from prompt_toolkit's width table, so that the editor and what stands above it agree.
"""

from prompt_toolkit.utils import get_cwidth

TAB = 8


def rows(line: str, width: int) -> int:
    """Rows that one line (without a line break) takes in a terminal of `width` cells; at least one.

    A wide character that does not fit into the last cell goes to the next row, as terminals do it.
    """
    if line.isascii() and "\t" not in line:
        return max(1, -(-len(line) // width))
    row, column = 1, 0
    for character in line:
        if character == "\t":
            column = min((column // TAB + 1) * TAB, width - 1)
            continue
        cells = get_cwidth(character)
        if column + cells > width:
            row, column = row + 1, 0
        column += cells
    return row


def crop(line: str, width: int) -> str:
    """The line cut to at most `width` cells, `…` in place of what is left out; tabs become blanks."""
    line = line.replace("\t", " ")
    if len(line) <= width and line.isascii():
        return line
    kept, used = [], 0
    for character in line:
        cells = get_cwidth(character)
        if used + cells > width - 1:
            break
        kept.append(character)
        used += cells
    else:
        return line
    whole = used + sum(get_cwidth(character) for character in line[len(kept) :]) <= width
    return line if whole else "".join(kept) + "…"
