"""The budget: arithmetic, told in numbers."""

import pytest

from supervisor.context.budget import Budget, estimate


def test_without_a_report_the_estimate_alone_counts() -> None:
    assert Budget(1000).used(1000) == estimate(1000) == 301


def test_a_report_anchors_what_it_counted_exactly() -> None:
    assert Budget(100_000).settled(10_000, 4_321).used(10_000) == 4_321


def test_what_is_added_after_a_report_is_guessed_with_the_conversations_own_ratio() -> None:
    budget = Budget(100_000).settled(10_000, 6_000)
    assert budget.ratio == pytest.approx(6_000 / estimate(10_000))
    assert budget.used(11_000) == 6_000 + round(1_000 * 0.3 * budget.ratio)


def test_the_ratio_is_smoothed_over_reports() -> None:
    once = Budget(100_000).settled(10_000, estimate(10_000) * 2)
    twice = once.settled(10_000, estimate(10_000) * 4)
    assert (once.ratio, twice.ratio) == (2.0, 3.0)


def test_a_server_without_usage_leaves_the_budget_as_it_was() -> None:
    budget = Budget(100_000).settled(10_000, 6_000)
    assert budget.settled(12_000, 0) is budget


def test_a_rewritten_history_drops_the_anchor_and_keeps_the_ratio() -> None:
    budget = Budget(100_000).settled(10_000, 6_000)
    assert budget.rewritten() == Budget(100_000, budget.ratio)


def test_the_share_is_of_the_whole_budget() -> None:
    assert Budget(10_000).settled(10_000, 4_400).share(10_000) == pytest.approx(0.44)


def test_a_smaller_history_than_the_anchors_never_counts_below_nothing() -> None:
    assert Budget(10_000).settled(10_000, 10).used(0) >= 0
