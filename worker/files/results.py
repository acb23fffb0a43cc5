"""The text of a result while it grows: lines up to a number of bytes, and what the user sees of it.  Pure."""

_PREVIEW_LINES = 12
_PREVIEW_BYTES = 2000
_CLOSING = 1000
"""Bytes of a result's cap that are kept back for the notes at its end; a quarter of a small cap."""


def room(cap: int) -> int:
    """Bytes of a result for what was asked for; the rest is for the notes."""
    return cap - _kept_back(cap)


def _kept_back(cap: int) -> int:
    return min(_CLOSING, cap // 4)


class Lines:
    """Lines that are taken while they fit.  `room` is what is left, in bytes."""

    def __init__(self, cap: int) -> None:
        self.room = room(cap)
        self.lines: list[str] = []

    def take(self, line: str) -> bool:
        """Add the line if it fits whole; the answer is whether it did."""
        size = len(line.encode("utf-8", "replace")) + 1
        if size > self.room:
            return False
        self.room -= size
        self.lines.append(line)
        return True


def closed(lines: list[str], notes: list[str], cap: int) -> str:
    """The lines, and below them the notes in brackets, cut where they outgrow what is kept for them."""
    told = "; ".join(notes)
    most = _kept_back(cap) - 8
    if len(told.encode("utf-8", "replace")) > most:
        told = told.encode("utf-8", "replace")[:most].decode("utf-8", "ignore") + "…"
    return "\n".join([*lines, f"[{told}]"] if told else lines)


def preview(text: str) -> str:
    """The first lines of a result, for the screen."""
    head = text[:_PREVIEW_BYTES].split("\n")[:_PREVIEW_LINES]
    return "\n".join(head)


def counted(number: int, one: str) -> str:
    """ "1 line", "2 lines"."""
    return f"{number} {one if number == 1 else one + 's'}"
