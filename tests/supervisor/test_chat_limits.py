"""Replies that are larger than anything honest."""

import json

import pytest

from supervisor.model.assembly import Delta
from supervisor.model.errors import BrokenStreamError, NotAModelServerError
from supervisor.model.reading import Reading
from supervisor.model.reads import Want
from supervisor.model.sse import CAP

CHUNK = b'data: {"choices": [{"delta": {"content": "begun"}}]}\n\n'


def deaf(_: Delta) -> None:
    """Told, and does nothing."""


def test_an_event_without_end_breaks_the_reply_and_keeps_what_was_there() -> None:
    reading = Reading("http://host", deaf)
    assert reading.take(CHUNK) is Want.MORE
    assert reading.take(b"data: " + b"x" * CAP) is Want.NOTHING
    assert reading.take(b"more") is Want.NOTHING
    outcome = reading.ended()
    assert isinstance(outcome, BrokenStreamError)
    assert outcome.partial.text == "begun"
    assert reading.broken("reset") is outcome


def test_one_json_object_without_end_breaks_too() -> None:
    reading = Reading("http://host", deaf)
    assert reading.take(b"{") is Want.MORE
    assert reading.take(b" " * CAP) is Want.NOTHING
    assert isinstance(reading.ended(), BrokenStreamError)


@pytest.mark.parametrize("depth", [100_000])
def test_nesting_without_end_is_no_reply(depth: int) -> None:
    reading = Reading("http://host", deaf)
    nested = b"data: " + b'{"choices":' + b"[" * depth + b"\n\n"
    reading.take(nested)
    assert isinstance(reading.ended(), NotAModelServerError)


def test_a_reading_says_when_only_the_end_is_missing() -> None:
    reading = Reading("http://host", deaf)
    finish = json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}).encode()
    assert reading.take(CHUNK) is Want.MORE
    assert not reading.finished
    assert reading.take(b"data: " + finish + b"\n\n") is Want.MORE
    assert reading.finished
    assert reading.take(b"data: [DONE]\n\n") is Want.END
