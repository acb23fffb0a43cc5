"""What the summariser reads, and the pair that its summary becomes."""

from protocol.conversation import (
    MODEL,
    PROGRAM,
    USER,
    Answer,
    Calls,
    Note,
    Pair,
    Round,
    Text,
    ToolCall,
    ToolResult,
    User,
)
from supervisor.context.compaction import INPUT_CAP, WORDS_CAP, request_text, summary_pair


def exchange(line: str = "fix it", result: str = "done") -> Pair:
    calls = Calls((ToolCall("c1", "run_command", '{"command":"make"}'),), text="I build.")
    done = Round(calls, (ToolResult("c1", result),), (Note((Text("[hurry]", PROGRAM),)),))
    return Pair(User.says(line), (done,), Answer.by(MODEL, "It works."), 1)


def test_the_summariser_reads_each_message_of_each_pair_in_order() -> None:
    text = request_text([exchange()], "")
    places = [text.index(piece) for piece in ("fix it", "I build.", "make", "done", "[hurry]", "It works.")]
    assert places == sorted(places)


def test_a_wish_for_a_focus_is_passed_on() -> None:
    assert "keep above all: the parser" in request_text([exchange()], "the parser")


def test_a_long_result_is_read_by_its_head_and_tail() -> None:
    text = request_text([exchange(result="HEAD" + "x" * 9_000 + "TAIL")], "")
    assert "HEAD" in text
    assert "TAIL" in text
    assert "characters left out" in text
    assert len(text) < 4_000


def test_what_the_summariser_reads_is_bounded_and_the_newest_is_whole() -> None:
    pairs = [exchange("x" * 100_000) for _ in range(6)] + [exchange("the newest line")]
    text = request_text(pairs, "")
    assert len(text) < INPUT_CAP + 500
    assert "the newest line" in text
    assert "of the oldest are left out" in text


def test_the_summary_stands_as_a_pair_without_a_turn_with_the_users_own_words() -> None:
    pair = summary_pair([exchange("first"), exchange("second")], "S")
    assert pair.turn is None
    assert pair.rounds == ()
    assert pair.answer == Answer((Text("S", MODEL),))
    head, *words = pair.user.parts
    assert isinstance(head, Text)
    assert head.author == PROGRAM
    assert words == [Text("first", USER), Text("second", USER)]


def test_of_very_many_words_the_newest_are_kept_and_the_rest_is_owned_up_to() -> None:
    pair = summary_pair([exchange("a" * WORDS_CAP), exchange("new")], "S")
    assert pair.user.parts[1:] == (Text("new", USER),)
    assert isinstance(pair.user.parts[0], Text)
    assert "but for the 1 oldest" in pair.user.parts[0].text
