"""The splitter of event streams."""

import collections
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.sse import Events, OversizedEventError


def events_of(stream: bytes, cuts: list[int] | None = None) -> tuple[list[bytes], bool, int]:
    """The events of a stream that arrives in pieces cut at these places; `[DONE]` seen; comments."""
    events = Events()
    found: list[bytes] = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts or []), len(stream)]
    for begin, end in pairwise(edges):
        found += events.feed(stream[begin:end])
    found += events.close()
    return found, events.done, events.comments


@pytest.mark.parametrize(
    ("stream", "wanted"),
    [
        (b'data: {"a":1}\n\ndata: {"b":2}\n\n', [b'{"a":1}', b'{"b":2}']),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data:a\n\ndata:  b\n\ndata:   \n\n", [b"a", b" b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"event: chunk\nid: 7\ndata: a\nretry: 3\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data\n\ndata:\n\ndata: a\n\n", [b"a"]),
        (b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\ndata: last", [b"a", b"last"]),
        (b'error: {"code":400}\n\ndata: [DONE]\n\n', [b'{"code":400}']),
        ("data: a\u2028b\u0085c\x0bd\n\n".encode(), ["a\u2028b\u0085c\x0bd".encode()]),
        (b"", []),
    ],
)
def test_each_legal_form_of_an_event_is_read(stream: bytes, wanted: list[bytes]) -> None:
    assert events_of(stream)[0] == wanted


def test_comments_are_counted_and_carry_nothing() -> None:
    assert events_of(b": keep-alive\n\n:\n\ndata: a\n: ping\n\n") == ([b"a"], False, 3)


def test_what_follows_done_is_dropped() -> None:
    assert events_of(b"data: a\n\ndata: [DONE]\n\ndata: b\n\n") == ([b"a"], True, 0)
    assert events_of(b"data: a\n\ndata: [DONE]") == ([b"a"], True, 0)


def test_an_event_comes_as_soon_as_its_blank_line_does() -> None:
    events = Events()
    assert events.feed(b"data: a\n") == []
    assert events.feed(b"\nda") == [b"a"]
    assert events.feed(b"ta: b\r") == []
    assert events.feed(b"\n\r") == [b"b"]
    assert events.feed(b"\n") == []
    assert events.close() == []


@pytest.mark.parametrize("piece", [7, 10_000])
def test_an_event_above_the_cap_breaks_the_stream(piece: int) -> None:
    stream = b"data: " + b"x" * 200 + b"\n\n"
    events = Events(cap=100)
    parts = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    with pytest.raises(OversizedEventError):
        collections.deque(map(events.feed, parts))


def test_many_small_events_in_one_read_may_exceed_the_cap_together() -> None:
    assert len(Events(cap=100).feed(b"data: abc\n\n" * 50)) == 50


FORMS = (
    b"data: ",
    b"data:",
    b"x",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b": c\n",
    b"event: e\n",
    b"error: ",
    b"[DONE]",
)
pieces = st.sampled_from([*FORMS, b"\xef\xbb\xbf", "é\u2028".encode(), b"data: y\n\n"])


@given(st.lists(pieces, max_size=30).map(b"".join), st.lists(st.integers(0, 500), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    assert events_of(stream, cuts)[:2] == events_of(stream)[:2]
    assert events_of(stream, list(range(len(stream)))) == events_of(stream)
