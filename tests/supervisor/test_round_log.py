"""The round log: its rows, and what is read from its end after a kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.events import Usage
from supervisor.store.disk import StoreError
from supervisor.store.round_log import Last, Partial, RoundLog, Sent, Settled, last, rows


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RoundLog]:
    opened = RoundLog(tmp_path / "rounds.jsonl")
    yield opened
    opened.close()


def sent(number: int, turn: int | None = 1) -> Sent:
    return Sent(round=number, turn=turn, body_sha256="ab" * 32, bytes=1000, head="h", estimate=250)


def test_rows_come_back_in_order(log: RoundLog) -> None:
    log.sent(sent(1))
    log.partial(1, "half é")
    log.settled(Settled(round=1, usage=Usage(10, 5), finish_reason="stop", seconds=0.5))
    first, second, third = rows(log.path)
    assert first == sent(1) or isinstance(first, Sent)
    assert isinstance(second, Partial)
    assert (second.turn, second.text) == (1, "half é")
    assert isinstance(third, Settled)
    assert (third.usage, third.finish_reason, third.error) == (Usage(10, 5), "stop", "")
    assert all(row.time.endswith("Z") for row in (first, second, third))


def test_nothing_was_sent_before_the_first_row(log: RoundLog, tmp_path: Path) -> None:
    assert last(log.path) == Last()
    assert last(tmp_path / "missing") == Last()


def test_the_last_partial_row_is_what_had_been_shown(log: RoundLog) -> None:
    log.sent(sent(1))
    log.partial(1, "old")
    log.settled(Settled(round=1))
    log.sent(sent(2, turn=3))
    log.partial(2, "a")
    log.partial(2, "a b")
    found = last(log.path)
    assert found.round == 2
    assert found.partial is not None
    assert (found.partial.round, found.partial.turn, found.partial.text) == (2, 3, "a b")


def test_a_reply_of_an_earlier_round_is_not_the_last(log: RoundLog) -> None:
    log.sent(sent(1))
    log.partial(1, "old")
    log.sent(sent(2))
    assert last(log.path) == Last(2)


def test_a_partial_row_of_an_unknown_round_is_not_trusted(log: RoundLog) -> None:
    log.sent(sent(1))
    log.partial(7, "of another")
    assert last(log.path) == Last(1)


def test_torn_rows_are_passed_over_and_the_next_row_stands_alone(log: RoundLog) -> None:
    log.sent(sent(1))
    log.partial(1, "kept")
    with log.path.open("ab") as file:
        file.write(b'{"row":"partial","round":1,"text":"caf\xc3')
    again = RoundLog(log.path)
    again.settled(Settled(round=1, error="cut \udce9"))
    again.close()
    again.close()
    found = last(log.path)
    assert found.partial is not None
    assert found.partial.text == "kept"
    assert [type(row).__name__ for row in rows(log.path)] == ["Sent", "Partial", "Settled"]


def test_only_the_end_of_a_long_log_is_looked_at_and_rows_may_be_longer_than_a_block(log: RoundLog) -> None:
    log.sent(sent(1))
    log.partial(1, "x" * 300_000)
    log.partial(1, "y" * 300_000)
    found = last(log.path)
    assert found.partial is not None
    assert found.partial.text == "y" * 300_000


def test_a_log_that_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Is a directory"):
        last(tmp_path)
    with pytest.raises(StoreError, match="Is a directory"):
        list(rows(tmp_path))
    with pytest.raises(StoreError, match="Is a directory"):
        RoundLog(tmp_path)
