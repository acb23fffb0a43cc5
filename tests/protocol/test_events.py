"""Events as lines of JSON: the envelope that every one has, and text that is no UTF-8."""

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import events
from protocol.display import Display
from protocol.events import AnyEvent, StopReason, Usage, encode

EXAMPLES: list[AnyEvent] = [
    events.SessionStarted(conversation="abc", workspace="/w", model="m"),
    events.SandboxReady(rung="landlock", notes=("no network rules",)),
    events.TurnStarted(turn=1, text="do it"),
    events.RoundStarted(turn=1, round=2, share=0.25),
    events.TextDelta(text="a\nb\u2028c"),
    events.ReasoningDelta(text="hm"),
    events.ReplyRetried(why="reset"),
    events.ReplyFinished(kind="answer", text="done", round=2, usage=Usage(1, 2)),
    events.ToolStarted(call_id="c", name="search", arguments="{}"),
    events.ToolOutputDelta(call_id="c", text="x"),
    events.PermissionAsked(
        question=1,
        call_id="c",
        name="run_command",
        subject="make",
        permissions=("write:/x",),
        reason="it needs more",
        choices=("once",),
    ),
    events.PermissionAnswered(
        question=None,
        call_id="c",
        name="run_command",
        subject="make",
        permissions=(),
        allowed=False,
        by="rule",
    ),
    events.ToolFinished(
        call_id="c", name="search", status="done", failed=False, seconds=0.1, bytes=3, display=Display("read")
    ),
    events.Notice(text="note"),
    events.Compacted(pairs=3, before=900, after=90),
    events.TurnFinished(
        turn=1, reason=StopReason.ANSWERED, text="done", rounds=2, usage=Usage(), seconds=1.0
    ),
    events.SessionClosed(exit_code=0, conversation="abc", turns=1, rounds=2, usage=Usage()),
]


def test_there_is_an_example_of_every_event() -> None:
    assert {type(event) for event in EXAMPLES} == set(get_args(AnyEvent))


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_is_one_line_with_the_common_envelope(event: AnyEvent) -> None:
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    told = json.loads(line)
    assert {"type", "v", "seq", "agent"} <= told.keys()
    assert (told["v"], told["agent"]) == (events.SCHEMA, "main")
    assert msgspec.json.decode(line, type=AnyEvent) == event


def test_no_two_events_share_a_type() -> None:
    assert len({json.loads(encode(event))["type"] for event in EXAMPLES}) == len(EXAMPLES)


def test_a_lone_surrogate_does_not_stop_the_stream_of_events() -> None:
    told = json.loads(encode(events.TextDelta(text="caf\udce9 \u00e9", seq=4)))
    assert (told["text"], told["seq"], told["type"]) == ("caf? \u00e9", 4, "text")


counts = st.builds(Usage, *[st.integers(0, 10**9)] * 4)


@given(counts, counts)
def test_usages_add_up_field_by_field(one: Usage, two: Usage) -> None:
    total = one + two
    for field in Usage.__struct_fields__:
        assert getattr(total, field) == getattr(one, field) + getattr(two, field)
