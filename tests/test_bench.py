"""The frame of the bench, and the bound that most rows are measured against.  Nothing is measured here."""

import subprocess
import sys

import pytest

from bench import __main__ as frame
from bench.row import Measured, judged, table
from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.thread import ServerThread
from tests.product import ROOT, SECONDS


def runs(goal: str, *pairs: tuple[float, float]) -> list[Measured]:
    return [("P1 x", bound, subject, "ms", goal) for bound, subject in pairs]


def test_the_median_of_the_ratios_counts_not_the_ratio_of_medians() -> None:
    result = judged(runs("<= 1.3", (10, 11), (100, 120), (10, 30)))
    assert (result.bound, result.subject, result.runs) == (10, 30, 3)
    assert result.ratio == pytest.approx(1.2)
    assert result.met is True


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        ("<= 1.3", False),
        (">= 1.3", True),
        ("<= 30 ms", True),
        ("<= 19 ms", False),
        ("= 2", True),
        ("small", None),
    ],
)
def test_a_goal_is_on_the_ratio_or_on_the_subject_in_its_unit(goal: str, met: bool | None) -> None:
    assert judged(runs(goal, (10, 20))).met is met


def test_nothing_out_of_nothing_is_a_ratio_of_one() -> None:
    assert judged(runs("<= 1", (0, 0))).met is True
    assert judged(runs("<= 1", (0, 1))).met is False


def test_the_table_stands_in_the_order_of_the_goals() -> None:
    rows = [judged([(name, 1, 2, "s", "<= 1")]) for name in ("P10 b", "other", "P9 a")]
    lines = table(rows).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["P9 a", "P10 b", "other"]
    assert all(line.endswith("MISSED") for line in lines[1:])


def test_every_module_of_the_bench_brings_rows() -> None:
    found = [row.__module__ for row, repeats in frame.rows() if repeats >= 1]
    assert {"bench.startup", "bench.rounds", "bench.output", "bench.size"} <= set(found)


def test_the_bare_loop_is_an_agent() -> None:
    call = ScriptedCall("run_command", {"command": "echo $((6 * 7))"})
    steps = (
        Step(thinking="Count.", text="I count.", calls=(call, call)),
        Step(text="It is 42.", expect="42"),
    )
    with ServerThread({"main": Script(steps=steps)}) as server:
        done = subprocess.run(
            [sys.executable, str(ROOT / "bench" / "bare_loop.py"), server.url(), "Count"],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    assert (done.returncode, done.stdout) == (0, "It is 42.\n"), done.stderr
