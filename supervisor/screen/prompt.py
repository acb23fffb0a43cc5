"""The prompt ` You 3 ❯ 44% `: a measuring instrument.  Pure; how it is drawn is the editor's business.

The digits are the calibrated share of the budget: grey, amber from where compaction begins, red from where
history is dropped rather than summarised.
"""

from typing import Protocol

AMBER_FROM = 0.85
RED_FROM = 0.97
"""Shares of the budget, 0..1."""

GREY = "#8a8a8a"
AMBER = "#ffaf00"
RED = "#ff5f5f"

Fragments = list[tuple[str, str]]
"""Style and text, as prompt_toolkit takes them."""


class Measured(Protocol):
    """What the prompt measures: a session."""

    @property
    def turn(self) -> int: ...
    @property
    def share(self) -> float: ...


class Shown:
    """What the prompt shows now.  Set by the loop, read by the editor's thread; `source` is None while no
    conversation is open."""

    def __init__(self) -> None:
        self.source: Measured | None = None
        self.alarm = ""
        """What may never be forgotten: that nothing confines commands."""

    def drawn(self, *, coloured: bool, glyph: str) -> Fragments:
        source = self.source
        if source is None:
            return prompt(None, None, coloured=coloured, glyph=glyph, alarm=self.alarm)
        return prompt(source.turn, source.share, coloured=coloured, glyph=glyph, alarm=self.alarm)


def tone(share: float) -> str:
    """The colour of a share of the budget."""
    if share >= RED_FROM:
        return RED
    return AMBER if share >= AMBER_FROM else GREY


def prompt(
    turn: int | None, share: float | None, *, coloured: bool = True, glyph: str = "❯", alarm: str = ""
) -> Fragments:
    """The prompt of the next turn.  None: not known yet, since the conversation is still being opened."""
    number = "" if turn is None else f" {turn}"
    head: Fragments = [("bold" if coloured else "", f" You{number} {glyph} ")]
    if alarm:
        head.insert(0, (f"bold fg:{RED}" if coloured else "", f" {alarm}"))
    if share is None:
        return head
    percent = int(share * 100)  # never rounded up: 97 % is red and means 97 %
    return [*head, (f"fg:{tone(share)}" if coloured else "", f"{percent}% ")]
