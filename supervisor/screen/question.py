"""How a question to the user looks: what is asked, in a block of lines, and one line of keys.  Pure.

All that a model or a file has written is made visible, character by character, and stands behind a bar, so
that it can't pass for a line of ours.  Not here: which key answers (asking.py).
"""

import unicodedata
from collections.abc import Sequence

from prompt_toolkit.utils import get_cwidth

from protocol.permission import Kind
from supervisor.harmless import harmless_line
from supervisor.permits.asking import Question, Scope
from supervisor.screen.diff import drawn
from supervisor.screen.tones import Terminal, Tone

FOLDED_ROWS = 10
"""Rows of a command that are shown at once: a block with its question fits on a screen of 24."""

HEAD_ROWS, TAIL_ROWS = 6, 3
"""What of a longer one is shown: the end too, since that is where something is hidden."""

EFFECT_ROWS = 40
"""Rows of what a dry run did, and of its diff: enough to judge most, and little to scroll."""

LEAST = 20
"""Cells that a text gets at least, also on a narrow terminal."""

_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs", "Cs", "Co", "Cn")
"""Categories of characters that can't be seen, or look like a blank."""
_BLANK = frozenset(map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164,
                             *range(0xFE00, 0xFE10), 0xFFA0, *range(0xE0100, 0xE01F0))))  # fmt: skip
"""The same in other categories: fillers, and marks that choose how another character looks."""

_MEANING = {
    Kind.READ.value: "may read it, and what is below it",
    Kind.WRITE.value: "may write it, and what is below it",
    Kind.NETWORK.value: "may connect to it",
    Kind.GIT_WRITE.value: "may write .git, but not its configuration and hooks",
    Kind.UNCONFINED.value: "may do all that you may",
}

KEYS = {Scope.ONCE: "[o]nce", Scope.SESSION: "[s]ession", Scope.PROJECT: "[p]roject"}
NO, WHOLE = "[n]o", "[w]hole"


def visible(text: str) -> str:
    """One line with each character that can't be seen as an escape."""
    shown = harmless_line(text)
    return shown if shown.isascii() else "".join(map(_seen, shown))


def _seen(character: str) -> str:
    if character != " " and (unicodedata.category(character) in _UNSEEN or character in _BLANK):
        code = ord(character)
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def wrapped(line: str, width: int) -> list[str]:
    """The line in pieces of at most so many cells; nothing is left out."""
    pieces, piece, used = list[str](), list[str](), 0
    for character in line:
        cells = get_cwidth(character)
        if used + cells > width and piece:
            pieces.append("".join(piece))
            piece, used = [], 0
        piece.append(character)
        used += cells
    return [*pieces, "".join(piece)]


def barred(text: str, width: int) -> list[str]:
    """A text from outside, whole, each row behind a bar."""
    room = max(LEAST, width - 5)
    rows = [piece for line in text.rstrip("\n").split("\n") for piece in wrapped(visible(line), room)]
    return [f"  │ {row}" for row in rows]


def block(question: Question, terminal: Terminal, width: int, waiting: int = 0) -> list[str]:
    """The question without its keys.  `waiting`: how many more come after it."""
    of = f"  (1 of {1 + waiting})" if waiting else ""
    head = (
        f"{visible(question.agent)} asks: {visible(question.tool)}" if not question.own else "Your dry run:"
    )
    lines = [terminal.paint(head, Tone.WARNING) + of]
    rows = barred(question.subject, width)
    if is_folded(question, width):
        left_out = len(rows) - HEAD_ROWS - TAIL_ROWS
        lines += rows[:HEAD_ROWS]
        lines.append(terminal.paint(f"  … {left_out:,} rows are not shown: w shows all …", Tone.WARNING))
        lines += rows[-TAIL_ROWS:]
    else:
        lines += rows
    if question.cwd:
        lines += flowed(f"in {visible(question.cwd)}", width)
    lines += flowed(f"why: {visible(question.reason)}", width)
    for one in question.permissions:
        lines += [terminal.paint(line, Tone.STRONG) for line in flowed(f"  {visible(one)}", width)]
        lines += flowed(f"    {_MEANING.get(one.partition(':')[0], '')}", width)
    if question.why:
        lines += flowed("the model says (its claim):", width)
        lines += barred(question.why, width)
    if question.yes:
        return lines + effects(question, terminal, width, most=EFFECT_ROWS)
    for note in question.notes:
        lines += [terminal.paint(line, Tone.WARNING) for line in flowed(f"! {visible(note)}", width)]
    return lines


def effects(question: Question, terminal: Terminal, width: int, *, most: int | None) -> list[str]:
    """What a dry run did to files: the diff, and a row for each path of which it doesn't say all; of each at
    most so many rows."""
    room = max(LEAST, width - 5)
    notes = question.notes
    if question.beside is not None and (most is None or not is_folded(question, width)):
        notes = question.beside
    rows = [piece for note in notes for piece in wrapped(visible(note), room)]
    shown = rows if most is None or len(rows) <= most + 1 else rows[:most]
    lines = [f"  {row}" for row in shown]
    if len(shown) < len(rows):
        lines.append(terminal.paint(f"  … {len(rows) - len(shown)} more lines", Tone.QUIET))
    seen = "\n".join(piece for line in question.diff.split("\n") for piece in (visible(line),))
    return [*lines, *drawn(seen, terminal, "  ", most)] if question.diff else lines


def is_folded(question: Question, width: int) -> bool:
    """Whether the block shows only a part of it."""
    rows = max(len(question.notes), question.diff.count("\n")) if question.yes else 0
    return len(barred(question.subject, width)) > FOLDED_ROWS or rows > EFFECT_ROWS


def whole(question: Question, terminal: Terminal, width: int) -> list[str]:
    """What the block may have left out."""
    lines = barred(question.subject, width)
    return lines + effects(question, terminal, width, most=None) if question.yes else lines


def flowed(line: str, width: int) -> list[str]:
    """Words of ours, indented, broken between words where that can be."""
    indent = "  " + " " * (len(line) - len(line.lstrip()))
    room = max(LEAST, width - len(indent) - 1)
    rows, row = list[str](), ""
    for word in line.split():
        joined = f"{row} {word}" if row else word
        if sum(map(get_cwidth, joined)) <= room:
            row = joined
            continue
        if row:
            rows.append(row)
        *whole, row = wrapped(word, room)
        rows += whole
    return [indent + one for one in (*rows, row)]


def keys_line(question: Question, width: int, *, folded: bool = False) -> str:
    """`[o]nce  [s]ession  [p]roject  [n]o  (Esc: no)`: what is offered, as far as there is room."""
    words = [KEYS[scope] for scope in question.scopes] + [NO]
    if question.yes:
        words = [f"[{word[0]}]{word[1:]}" for word in (question.yes, question.no)]
    return fitting(words + ([WHOLE] if folded else []), question.no or "no", width)


def fitting(words: Sequence[str], otherwise: str, width: int) -> str:
    """The keys on one line of less than `width` cells; where there is little room, the keys alone."""
    for line in ("  ".join((*words, f"(Esc: {otherwise})")), "  ".join(words), " ".join(words)):
        if len(line) < width:
            return line
    return "/".join(word[1] for word in words) + "?"
