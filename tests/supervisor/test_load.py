"""Reading transcripts: whole, torn, damaged, compacted, foreign and newer ones."""

import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation import (
    Answer,
    Calls,
    Conversation,
    Message,
    Note,
    Pair,
    Text,
    ToolCall,
    ToolResult,
    User,
    flatten,
    parse,
)
from supervisor.store import lines
from supervisor.store.disk import StoreError
from supervisor.store.load import Loaded, NewerError, load
from supervisor.store.tail import mend_tail
from supervisor.store.transcript import Transcript
from tests.protocol import strategies

SCRATCH = Path(tempfile.gettempdir()) / f"polier-test-{os.getpid()}.jsonl"
"""One file for all examples of a property."""

TWO = Calls((ToolCall("c1", "run_command", '{"command":"make"}'), ToolCall("c2", "search", "{}")), "", "hm")
DONE = Answer.by("model", "done")


def wrote(path: Path, *messages: Message, turn: int = 1) -> Path:
    """A transcript with a session line and these messages, one round later after each reply."""
    transcript = Transcript(path)
    transcript.session(workspace="/w", project="key", model="m", resumed=False)
    number = 0
    for message in messages:
        number += isinstance(message, (Calls, Answer))
        transcript.message(message, turn=turn, round=number or None)
        turn += isinstance(message, Answer)
    transcript.close()
    return path


def exchange(number: int, size: int = 10) -> list[Message]:
    call = Calls((ToolCall(f"c{number}", "search", "{}"),))
    return [User.says(f"ask {number}"), call, ToolResult(f"c{number}", "r" * size), DONE]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def test_an_empty_file_is_an_empty_conversation(path: Path) -> None:
    path.touch()
    assert load(path) == Loaded(Conversation())


def test_pairs_come_back_with_their_spans_and_counters(path: Path) -> None:
    found = load(wrote(path, *exchange(1), *exchange(2)))
    assert found.spans == ((2, 5), (6, 9))
    assert (found.turn, found.round, found.seq) == (2, 4, 9)
    assert (found.workspace, found.project) == ("/w", "key")
    assert found.conversation.pairs == parse([*exchange(1), *exchange(2)], [1] * 4 + [2] * 4).pairs
    assert found.notices == ()


@given(st.lists(strategies.pairs, max_size=3))
def test_any_conversation_comes_back_as_it_was(pairs: list[Pair]) -> None:
    wanted = []
    with SCRATCH.open("wb") as file:
        seq = 0
        for number, pair in enumerate(pairs, 1):
            ids = [call.id for done in pair.rounds for call in done.reply.calls]
            if len(set(ids)) < len(ids):
                continue  # ids that come again in a turn are refused by the grammar
            wanted.append(msgspec.structs.replace(pair, turn=number))
            for message in flatten(pair.user, pair.rounds, pair.answer):
                seq += 1
                file.write(lines.encode(lines.of_message(message, seq, "", number, 1)))
    found = load(SCRATCH)
    SCRATCH.unlink()
    assert list(found.conversation.pairs) == wanted
    assert found.notices == ()


def test_results_are_placed_by_call_id_in_call_order(path: Path) -> None:
    found = load(wrote(path, User.says("x"), TWO, ToolResult("c2", "b"), ToolResult("c1", "a"), DONE))
    assert [result.text for result in found.conversation.pairs[0].rounds[0].results] == ["a", "b"]


def test_an_open_turn_is_handed_out_as_it_stands(path: Path) -> None:
    found = load(wrote(path, *exchange(1), User.says("x"), TWO, ToolResult("c2", "b")))
    assert found.open == (User.says("x"), TWO, ToolResult("c2", "b"))
    assert (found.open_turn, found.open_first, found.turn) == (2, 6, 1)


def append_line(path: Path, line: object) -> None:
    with path.open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")


def envelope(kind: str, seq: int, **fields: object) -> dict[str, object]:
    return {"v": 1, "kind": kind, "seq": seq, "time": "t", "turn": None, "round": None, **fields}


def test_a_withdrawn_turn_has_not_happened_and_its_number_is_free(path: Path) -> None:
    wrote(path, *exchange(1), User.says("never mind"))
    append_line(path, {**envelope("withdrawn", 7, first=6, why="interrupted"), "turn": 2})
    found = load(path)
    assert (len(found.conversation.pairs), found.open, found.turn, found.seq) == (1, (), 1, 7)


def test_a_withdrawal_of_another_turn_changes_nothing(path: Path) -> None:
    wrote(path, User.says("stays"))
    append_line(path, {**envelope("withdrawn", 3, first=1, why=""), "turn": 9})
    assert load(path).open == (User.says("stays"),)


def part(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text, "author": "model"}]


def test_a_compaction_replaces_the_pairs_of_its_range(path: Path) -> None:
    wrote(path, *exchange(1), *exchange(2), *exchange(3))
    append_line(path, envelope("compaction", 14, first=2, last=9, user=part("so far"), answer=part("sum")))
    found = load(path)
    summary = Pair(User((Text("so far", "model"),)), (), Answer.by("model", "sum"))
    assert [pair.turn for pair in found.conversation.pairs] == [None, 3]
    assert found.conversation.pairs[0] == summary
    assert found.spans == ((2, 9), (10, 13))
    assert found.turn == 3


def test_the_latest_compaction_wins(path: Path) -> None:
    wrote(path, *exchange(1), *exchange(2), *exchange(3))
    append_line(path, envelope("compaction", 14, first=2, last=5, user=part("u"), answer=part("one")))
    append_line(path, envelope("compaction", 15, first=2, last=13, user=part("u"), answer=part("all")))
    found = load(path)
    assert [pair.answer for pair in found.conversation.pairs] == [Answer.by("model", "all")]
    assert found.spans == ((2, 13),)


def test_a_compaction_that_was_retracted_is_undone(path: Path) -> None:
    wrote(path, *exchange(1), *exchange(2))
    before = load(path)
    append_line(path, envelope("compaction", 10, first=2, last=5, user=part("u"), answer=part("one")))
    append_line(path, envelope("retract", 11, target=10))
    found = load(path)
    assert found.conversation == before.conversation
    assert found.seq == 11


def test_a_stub_stands_in_for_a_result_until_it_is_retracted(path: Path) -> None:
    wrote(path, *exchange(1, size=500))
    append_line(path, envelope("stub", 6, target=4, text="[cut]"))
    assert load(path).conversation.pairs[0].rounds[0].results == (ToolResult("c1", "[cut]"),)
    append_line(path, envelope("retract", 7, target=6))
    assert load(path).conversation.pairs[0].rounds[0].results == (ToolResult("c1", "r" * 500),)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            envelope("compaction", 6, first=90, last=99, user=part("u"), answer=part("a")),
            "no pairs from seq 90",
        ),
        (
            envelope("compaction", 6, first=1, last=9, user=part("u"), answer=part("")),
            "seq 6 is no compaction",
        ),
        (envelope("message", 6, role="assistant", content=" "), "seq 6 is no message (an answer needs"),
        (envelope("message", 6, role="assistant", content="x"), "seq 6 (assistant) stands outside a turn"),
        (envelope("message", 6, role="tool", content="x"), "seq 6 (tool) stands outside a turn"),
        (envelope("message", 6, role="system", content="x"), "line 6 (message) lacks what such a line needs"),
        (envelope("stub", 6), "line 6 (stub) lacks what such a line needs"),
        (envelope("mood", 6, how="good"), "1 lines of an unknown kind (mood) are left out"),
        ({"seq": 6, "text": "foreign"}, "1 lines of an unknown kind (without a kind) are left out"),
        (["no", "object"], "line 6 can't be read and is left out"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_the_rest_is_kept(
    path: Path, line: object, words: str
) -> None:
    wrote(path, *exchange(1))
    append_line(path, line)
    with path.open("ab") as file:
        for seq, message in enumerate(exchange(2), 7):
            file.write(lines.encode(lines.of_message(message, seq, "t", 2, 1)))
    found = load(path)
    assert len(found.notices) == 1
    assert words in found.notices[0]
    assert [pair.turn for pair in found.conversation.pairs] == ([None] if "so" in words else [1, 2])


def test_a_field_of_a_newer_program_is_passed_over(path: Path) -> None:
    wrote(path)
    append_line(path, envelope("message", 2, role="user", content="x", author="user", mood="good"))
    assert load(path).open == (User.says("x"),)


@pytest.mark.parametrize(
    "line", [envelope("message", 2, role="user", content="x"), envelope("dream", 2), {"kind": "message"}]
)
def test_a_transcript_of_a_newer_form_is_refused_with_words(path: Path, line: dict[str, object]) -> None:
    wrote(path)
    append_line(path, {**line, "v": 2})
    before = path.read_bytes()
    with pytest.raises(NewerError, match="newer version \\(form 2, this program reads 1\\); update"):
        load(path)
    assert path.read_bytes() == before


def test_a_broken_line_in_the_middle_is_named_with_its_number(path: Path) -> None:
    wrote(path, *exchange(1), *exchange(2))
    told = path.read_bytes().split(b"\n")
    told.insert(5, b'{"v":1,"kind":"mess')
    told.insert(6, b"\0\0\0")
    told.insert(7, b'{"v":1,"kind":"\xff"}')
    told.insert(8, b"[" * 5000)
    path.write_bytes(b"\n".join(told))
    found = load(path)
    assert found.notices == (
        "t.jsonl: line 6 can't be read and is left out",
        "t.jsonl: line 8 can't be read and is left out",
        "t.jsonl: line 9 can't be read and is left out",
    )
    assert len(found.conversation.pairs) == 2


def test_lines_that_stand_there_twice_count_once_and_others_of_the_same_number_are_kept(path: Path) -> None:
    wrote(path, *exchange(1), *exchange(2))
    whole = load(path)
    single = path.read_bytes()
    path.write_bytes(single + single.splitlines(keepends=True)[-1] + single)
    again = load(path)
    assert again.conversation == whole.conversation
    assert again.notices == ("t.jsonl: 10 lines that stand there twice are left out",)
    other = Transcript(path.with_name("other.jsonl"))
    other.message(User.says("beside"), turn=3, round=None)
    other.message(DONE, turn=3, round=9)
    other.close()
    path.write_bytes(single + other.path.read_bytes())
    beside = load(path)
    assert [pair.user for pair in beside.conversation.pairs][-1] == User.says("beside")
    assert beside.notices == ()


def test_many_broken_lines_are_counted(path: Path) -> None:
    path.write_bytes(b"broken\n" * 50)
    found = load(path)
    assert len(found.notices) == 21
    assert found.notices[-1] == "t.jsonl: 30 more lines are left out"


def test_a_missing_transcript_is_named(path: Path) -> None:
    with pytest.raises(StoreError, match=r"t\.jsonl: No such file"):
        load(path)


def legal(found: Loaded) -> bool:
    """Whether a request made of this conversation would be legal."""
    told: list[Message] = []
    for pair in found.conversation.pairs:
        told += flatten(pair.user, pair.rounds, pair.answer)
    return parse(told).open == () and (not found.open or parse(found.open).pairs == ())


def test_an_unanswered_call_before_a_users_line_is_answered_as_interrupted(path: Path) -> None:
    wrote(
        path, User.says("build it"), TWO, ToolResult("c1", "ok"), User.says("stop, do it differently"), turn=1
    )
    found = load(path)
    (pair,) = found.conversation.pairs
    assert pair.rounds[0].results[1] == ToolResult(
        "c2", "interrupted; effect unknown, check before repeating", failed=True
    )
    assert found.open == (User.says("stop, do it differently"),)
    assert found.spans == ((2, 4),)
    assert "the turn before seq 5 had no end" in found.notices[0]
    assert legal(found)


def test_a_result_without_its_call_is_left_out_with_a_notice(path: Path) -> None:
    wrote(path, User.says("build it"), ToolResult("call_gone", "late"), User.says("go on"), turn=1)
    found = load(path)
    assert found.conversation.pairs[0].rounds == ()
    assert found.open == (User.says("go on"),)
    assert "seq 3 is left out: ToolResult can't come while awaiting model" in found.notices[0]
    assert legal(found)


@given(st.lists(strategies.messages, max_size=12))
def test_any_messages_load_into_a_legal_conversation(messages: list[Message]) -> None:
    name = SCRATCH
    name.write_bytes(
        b"".join(lines.encode(lines.of_message(m, seq, "t", seq, 1)) for seq, m in enumerate(messages, 1))
    )
    found = load(name)
    name.unlink()
    assert legal(found)
    if any(not isinstance(m, Note) for m in messages):
        assert found.notices or found.conversation.pairs or found.open


# Tears as crashes leave them: in the middle of JSON, in the middle of a character, before blanks.
TEARS: dict[str, Callable[[bytes], bytes]] = {
    "in the middle of json": lambda line: line[: len(line) // 2],
    "in the middle of a character": lambda line: line[: line.index("é".encode()) + 1],
    "before blank lines": lambda line: line[:9] + b"\n\n",
    "before NULs": lambda line: line[:9] + b"\0" * 4096,
    "after one byte": lambda line: line[:1],
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_last_line_is_set_aside_and_the_next_one_stands_alone(path: Path, tear: str) -> None:
    wrote(path, User.says("first"), Answer.by("model", "second"), User.says("café"))
    *whole, last = path.read_bytes().splitlines(keepends=True)
    fragment = TEARS[tear](last)
    path.write_bytes(b"".join(whole) + fragment)
    text = fragment.rstrip(b"\0\n")

    notice = mend_tail(path)

    assert notice == f"the last line of t.jsonl was torn; its {len(text)} bytes are kept in t.jsonl.torn"
    aside = path.with_name("t.jsonl.torn")
    assert aside.read_bytes() == text + b"\n"
    assert aside.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b"".join(whole)
    found = load(path)
    assert (found.notices, found.seq, len(found.conversation.pairs)) == ((), 3, 1)
    transcript = Transcript(path, found.seq)
    transcript.message(User.says("new"), turn=2, round=None)
    transcript.close()
    assert load(path).open == (User.says("new"),)


def test_a_whole_line_without_its_break_is_kept(path: Path) -> None:
    wrote(path, User.says("first"), Answer.by("model", "second"))
    whole = path.read_bytes()
    for damage in (whole[:-1], whole[:-1] + b"\0\0\0", whole + b"\n \n"):
        path.write_bytes(damage)
        assert mend_tail(path) is None
        assert path.read_bytes().startswith(whole)
        assert load(path).notices == ()
        assert len(load(path).conversation.pairs) == 1


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\0" * 70_000])
def test_a_file_without_any_line_becomes_empty(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert mend_tail(path) is None
    assert path.read_bytes() == b""
    assert not path.with_name("t.jsonl.torn").exists()


def test_the_first_line_may_be_the_torn_one(path: Path) -> None:
    path.write_bytes(b'{"v":1,"kind":' + b'"x' * 100_000)
    assert mend_tail(path) is not None
    assert path.read_bytes() == b""


def test_a_transcript_that_cannot_be_mended_is_named(path: Path) -> None:
    with pytest.raises(StoreError, match=r"t\.jsonl"):
        mend_tail(path)


@given(st.integers(0, 2000), st.sampled_from([b"", b"\0" * 10, b"\n", b'{"half']))
def test_a_cut_at_any_byte_keeps_every_whole_line(cut: int, after: bytes) -> None:
    name = SCRATCH
    name.unlink(missing_ok=True)
    wrote(name, *exchange(1), *exchange(2), User.says("naïve 漢字"))
    data = name.read_bytes()
    cut = min(cut, len(data))
    name.write_bytes(data[:cut] + after)
    mend_tail(name)
    mended = name.read_bytes()
    found = load(name)
    name.unlink()
    name.with_name(name.name + ".torn").unlink(missing_ok=True)
    whole = data[: data.rfind(b"\n", 0, cut) + 1]
    assert mended.startswith(whole)
    assert mended == b"" or mended.endswith(b"\n")
    assert found.notices == ()


def test_a_line_longer_than_a_block_is_read_whole(path: Path) -> None:
    wrote(path, *exchange(1, size=3_000_000), *exchange(2))
    with path.open("ab") as file:
        file.write(b'{"torn":' + b" " * 2_000_000)
    found = load(path)
    assert len(found.conversation.pairs[0].rounds[0].results[0].text) == 3_000_000
    assert len(found.notices) == 1


def test_memory_follows_what_is_still_sent_and_not_the_file(path: Path) -> None:
    transcript = Transcript(path)
    for number in range(1, 41):
        for message in exchange(number, size=250_000):
            transcript.message(message, turn=number, round=None)
        if number % 4 == 0:
            summary = Pair(User.says("so far"), (), Answer.by("model", "sum"))
            transcript.compaction(summary, 1, transcript.seq)
    transcript.close()
    tracemalloc.start()
    found = load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.conversation.pairs) == 1
    assert path.stat().st_size > 10_000_000
    # Four exchanges are alive at a time, and two blocks with the values decoded from one.
    assert peak < 6_000_000
