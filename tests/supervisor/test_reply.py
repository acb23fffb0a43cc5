"""From a completion to a reply of the conversation."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation import Answer, Calls, Text
from supervisor.model.assembly import Completion, RawCall
from supervisor.model.reply import ID_MAX, KEPT_MAX, to_reply

MADE = re.compile(r"call_[a-zA-Z0-9]{24}")


def completion(*calls: RawCall, text: str = "", reasoning: str | None = None, finish: str = "") -> Completion:
    return Completion(text, reasoning, calls, finish or ("tool_calls" if calls else "stop"))


def calls_of(*calls: RawCall, used: tuple[str, ...] = (), finish: str = "") -> Calls:
    reply = to_reply(completion(*calls, finish=finish), used)
    assert isinstance(reply, Calls)
    return reply


def test_text_without_calls_is_an_answer() -> None:
    assert to_reply(completion(text="4", reasoning=""), ()) == Answer((Text("4", "model"),), "")


@pytest.mark.parametrize("reasoning", [None, "", "Let me see."])
def test_a_reply_without_text_and_calls_is_none(reasoning: str | None) -> None:
    assert to_reply(completion(text=" \n", reasoning=reasoning), ()) is None


def test_valid_arguments_and_ids_are_kept_byte_for_byte() -> None:
    raw = RawCall("call_7", "read_file", ' {"path" : "a\\u00e9"}')
    (call,) = calls_of(raw).calls
    assert (call.id, call.name, call.arguments, call.problem) == (raw.id, raw.name, raw.arguments, "")


@pytest.mark.parametrize("given_id", ["", "seen", "é", "x" * (ID_MAX + 1), "a\nb"])
def test_an_id_that_is_missing_seen_or_odd_is_made_anew(given_id: str) -> None:
    (call,) = calls_of(RawCall(given_id, "t", "{}"), used=("seen",)).calls
    assert MADE.fullmatch(call.id)


def test_two_calls_with_one_id_get_two() -> None:
    first, second = calls_of(RawCall("a", "t", '{"n":1}'), RawCall("a", "t", '{"n":2}')).calls
    assert first.id == "a"
    assert MADE.fullmatch(second.id)
    assert (first.arguments, second.arguments) == ('{"n":1}', '{"n":2}')


@pytest.mark.parametrize("arguments", ["", "  ", "null"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    (call,) = calls_of(RawCall("a", "t", arguments)).calls
    assert (call.arguments, call.problem) == ("{}", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            '{"command": "ls", timeout": 5}',
            "character 18 (Expecting property name enclosed in double quotes), near",
        ),
        ('{"a": 1', "not valid JSON at character 7"),
        ('{"a": NaN}', "not valid JSON"),
        ('{"a": "\\ud83d"}', "not valid JSON"),
        ('{"a": "\ud83d"}', "not valid JSON"),
        ("[1]", "not a JSON object but `[1]`"),
        ('"text"', "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_arguments_that_are_no_object_are_kept_as_data_with_the_place_in_words(
    arguments: str, words: str
) -> None:
    (call,) = calls_of(RawCall("a", "t", arguments)).calls
    assert words in call.problem
    assert "was not run" in call.problem
    kept = json.loads(call.arguments)
    assert list(kept) == ["invalid_arguments"]
    assert kept["invalid_arguments"][:5] == arguments[:5]


def test_a_huge_broken_text_is_kept_in_part() -> None:
    (call,) = calls_of(RawCall("a", "t", '{"content": "' + "x" * 100_000)).calls
    assert len(call.arguments) < KEPT_MAX + 200
    assert "100013 characters" in call.arguments


def test_a_call_that_the_output_limit_cut_says_so_and_the_whole_one_before_it_does_not() -> None:
    whole, cut = calls_of(RawCall("a", "t", "{}"), RawCall("b", "t", '{"path": "x'), finish="length").calls
    assert whole.problem == ""
    assert "cut off at the output limit" in cut.problem


def test_a_name_that_servers_refuse_is_mended_and_never_run() -> None:
    bad, missing = calls_of(RawCall("a", "read file!", "{}"), RawCall("b", "", "{}")).calls
    assert (bad.name, missing.name) == ("read_file_", "unnamed")
    assert "read file!" in bad.problem
    assert missing.problem


@given(
    st.lists(st.builds(RawCall, st.sampled_from(["", "a", "b"]) | st.text(max_size=4), st.text(), st.text()))
)
def test_whatever_came_what_is_stored_is_legal(calls: list[RawCall]) -> None:
    reply = to_reply(completion(*calls), ("a",))
    if not calls:
        assert reply is None
        return
    assert isinstance(reply, Calls)
    assert "a" not in {call.id for call in reply.calls}
    for call in reply.calls:
        assert isinstance(json.loads(call.arguments), dict)
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call.name)
