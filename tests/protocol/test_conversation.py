"""`flatten` and `parse` against the oracle of spelling.py, and the shapes that can't be written.

The comparison has caught these planted faults (`test_the_comparison_catches_a_planted_fault`): a result of
another round is taken, a missing result is passed over, the wrong message is blamed, a user line joins the
open pair, the last round is lost, a note before all results is taken.
"""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import conversation
from protocol.conversation import (
    Answer,
    Calls,
    Conversation,
    GrammarError,
    Image,
    Message,
    Note,
    Pair,
    Parsed,
    Round,
    Text,
    ToolCall,
    ToolResult,
    User,
    flatten,
    parse,
    plain,
)
from tests.protocol import strategies
from tests.protocol.spelling import ANSWER, NOTE, ONE, RESULTS, TWO, first_fault, in_call_order

LINE = User.says("do it")
Parse = Callable[[Sequence[Message]], Parsed]


def disagreement(candidate: Parse, messages: Sequence[Message]) -> str:
    """How this parse and the oracle differ; empty where they don't."""
    fault = first_fault(messages)
    try:
        found = candidate(messages)
    except GrammarError as error:
        return "" if error.index == fault else f"blames {error.index}, the fault is at {fault}"
    if fault is not None:
        return f"takes it; the fault is at {fault}"
    told = [m for pair in found.pairs for m in flatten(pair.user, pair.rounds, pair.answer)]
    if told + list(found.open) != in_call_order(messages)[: len(told)] + list(messages[len(told) :]):
        return "the messages have changed"
    return "" if sum(isinstance(m, Answer) for m in messages) == len(found.pairs) else "a pair is missing"


def short_histories(length: int) -> list[tuple[Message, ...]]:
    """Every sequence of this length whose messages but the last are legal."""
    alphabet: tuple[Message, ...] = (LINE, ONE, TWO, *RESULTS, NOTE, ANSWER)
    legal: list[tuple[Message, ...]] = [()]
    found: list[tuple[Message, ...]] = []
    for _ in range(length):
        longer = [(*start, message) for start in legal for message in alphabet]
        legal = [messages for messages in longer if first_fault(messages) is None]
        found += longer
    return found


SHORT = short_histories(6)


def test_parse_agrees_with_the_regular_expression_on_every_short_history() -> None:
    assert [found for found in (disagreement(parse, messages) for messages in SHORT) if found] == []


@given(st.lists(strategies.messages, max_size=12))
@example([LINE, NOTE, LINE])
@example([ONE, LINE])
def test_parse_agrees_with_the_regular_expression_on_any_messages(messages: list[Message]) -> None:
    assert disagreement(parse, messages) == ""


def takes_stray_results(messages: Sequence[Message]) -> Parsed:
    return parse([m for m in messages if not (isinstance(m, ToolResult) and m.call_id == "unknown")])


def passes_over_missing_results(messages: Sequence[Message]) -> Parsed:
    try:
        return parse(messages)
    except GrammarError as error:
        if "without a result" in str(error):
            return Parsed(())
        raise


def blames_the_next(messages: Sequence[Message]) -> Parsed:
    try:
        return parse(messages)
    except GrammarError as error:
        raise GrammarError(error.index + 1, "late") from error


def joins_user_lines(messages: Sequence[Message]) -> Parsed:
    return parse([m for i, m in enumerate(messages) if not (isinstance(m, User) and m in messages[:i])])


def loses_the_last_round(messages: Sequence[Message]) -> Parsed:
    found = parse(messages)
    return Parsed(tuple(Pair(pair.user, pair.rounds[:-1], pair.answer) for pair in found.pairs), found.open)


def takes_early_notes(messages: Sequence[Message]) -> Parsed:
    return parse([m for i, m in enumerate(messages) if not (isinstance(m, Note) and messages[i - 1] == ONE)])


@pytest.mark.parametrize(
    "fault",
    [
        takes_stray_results,
        passes_over_missing_results,
        blames_the_next,
        joins_user_lines,
        loses_the_last_round,
        takes_early_notes,
    ],
)
def test_the_comparison_catches_a_planted_fault(fault: Parse) -> None:
    assert any(disagreement(fault, messages) for messages in SHORT)


@given(st.lists(strategies.pairs, max_size=3))
def test_what_was_flattened_parses_to_the_same_pairs(pairs: list[Pair]) -> None:
    messages: list[Message] = []
    turns: list[int | None] = []
    for pair in pairs:
        messages += flatten(pair.user, pair.rounds, pair.answer)
        turns += [pair.turn] * (len(messages) - len(turns))
    assert parse(messages, turns) == Parsed(tuple(pairs))


def test_an_open_exchange_is_flattened_without_an_answer() -> None:
    done = Round(ONE, (RESULTS[0],), (NOTE,))
    assert flatten(LINE, [done]) == [LINE, ONE, RESULTS[0], NOTE]


def test_the_open_remainder_is_kept_as_it_arrived() -> None:
    messages: list[Message] = [LINE, ANSWER, LINE, TWO, RESULTS[2]]
    assert parse(messages).open == (LINE, TWO, RESULTS[2])


@pytest.mark.parametrize("ids", [[], ["a", "a"]])
def test_a_reply_with_calls_has_distinct_ids_at_least_one(ids: list[str]) -> None:
    with pytest.raises(ValueError, match="distinct ids"):
        Calls(tuple(ToolCall(id_, "search", "{}") for id_ in ids))


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_answer_is_never_empty(text: str) -> None:
    with pytest.raises(ValueError, match="needs some text"):
        Answer.by("model", text)


def test_a_picture_alone_is_an_answer_and_is_named() -> None:
    answer = Answer((Image("image/png", "chart.png", "model"),))
    assert plain(answer.parts) == "[picture chart.png]"


def test_parts_are_joined_by_a_blank_line() -> None:
    assert plain([Text("one", "user"), Text("two", "program")]) == "one\n\ntwo"


def test_a_round_has_one_result_per_call_in_call_order() -> None:
    with pytest.raises(ValueError, match=r"asked for \['b', 'c'\], got results for \['c', 'b'\]"):
        Round(TWO, (RESULTS[2], RESULTS[1]))


@given(st.lists(strategies.pairs, max_size=2))
def test_a_conversation_survives_being_written(pairs: list[Pair]) -> None:
    told = Conversation(tuple(pairs))
    assert msgspec.json.decode(msgspec.json.encode(told), type=Conversation) == told


def test_the_authors_have_three_names() -> None:
    assert (conversation.USER, conversation.PROGRAM, conversation.MODEL) == ("user", "program", "model")
