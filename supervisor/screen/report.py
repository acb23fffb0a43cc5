"""What /context prints: the parts of the next request with their tokens, and a bar.  Pure."""

from collections.abc import Callable
from typing import Protocol

from supervisor.screen.cells import crop
from supervisor.screen.prompt import AMBER_FROM, RED_FROM
from supervisor.screen.tones import Terminal, Tone

BAR = 30
"""Cells of the bar."""


class Report(Protocol):
    """What the next request holds; tokens are calibrated, `estimated` while nothing was reported yet."""

    @property
    def parts(self) -> tuple[tuple[str, int], ...]: ...
    @property
    def used(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def estimated(self) -> bool: ...


def drawn(report: Report, terminal: Terminal, width: int, harmless: Callable[[str], str]) -> list[str]:
    """The report as lines."""
    share = report.used / report.budget if report.budget else 1.0
    full = min(BAR, int(share * BAR))
    tone = Tone.BAD if share >= RED_FROM else Tone.WARNING if share >= AMBER_FROM else Tone.QUIET
    guess = " (estimated: the provider has reported nothing yet)" if report.estimated else ""
    lines = [
        terminal.paint("█" * full + "·" * (BAR - full), tone)
        + f" {int(share * 100)}% · {report.used:,} of {report.budget:,} tokens{guess}"
    ]
    room = max(20, width - 14)
    lines += [f"  {tokens:>9,}  {crop(harmless(name), room)}" for name, tokens in report.parts]
    return lines
