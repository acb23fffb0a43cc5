"""What a row of the table is, and how its runs are judged.  No measuring here.

A row's callable returns (name, bound, subject, unit, goal), or a list of such for one run that gives several.
`goal` is a condition on subject / bound such as "<= 1.3"; one that ends in the unit ("<= 15 MB") is on the
subject alone, with a bound that is shown for comparison.
"""

import re
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, Protocol

Measured = tuple[str, float, float, str, str]


class Row(Protocol):
    __name__: str
    __module__: str

    def __call__(self) -> Measured | list[Measured]: ...


class Result(NamedTuple):
    """The medians of a row's runs.  `met` is None where the goal is no condition on a number."""

    name: str
    bound: float
    subject: float
    unit: str
    ratio: float
    goal: str
    met: bool | None
    runs: int


_GOAL = re.compile(r"^(<=|>=|=|<|>)\s*([0-9.]+)\s*(\S*)")
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda value, limit: value <= limit,
    ">=": lambda value, limit: value >= limit,
    "=": lambda value, limit: value == limit,
    "<": lambda value, limit: value < limit,
    ">": lambda value, limit: value > limit,
}


def judged(runs: Sequence[Measured]) -> Result:
    """One row from its runs: medians, the median of the ratios, and whether the goal is met."""
    name, _, _, unit, goal = runs[0]
    bound = median(run[1] for run in runs)
    subject = median(run[2] for run in runs)
    ratio = median(run[2] / run[1] if run[1] else float("inf") if run[2] else 1.0 for run in runs)
    found = _GOAL.match(str(goal))
    met = None
    if found is not None:
        value = subject if found[3] == unit else ratio
        met = _HOLDS[found[1]](value, float(found[2]))
    return Result(name, bound, subject, unit, ratio, str(goal), met, len(runs))


def table(results: Sequence[Result]) -> str:
    """The rows in columns, those that miss their goal marked."""
    head = ("row", "bound", "us", "unit", "ratio", "goal", "")
    lines = [head]
    marks = {True: "met", False: "MISSED", None: "-"}
    for each in sorted(results, key=lambda result: _order(result.name)):
        numbers = (f"{each.bound:.4g}", f"{each.subject:.4g}", each.unit, f"{each.ratio:.2f}")
        lines.append((each.name, *numbers, each.goal, marks[each.met]))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in (0, 3, 5) else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _order(name: str) -> tuple[int, str]:
    number = re.match(r"P(\d+)", name)
    return (int(number[1]) if number else 999, name)
