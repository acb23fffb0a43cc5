"""The transcript as it is written: what its lines say, and what a disk that refuses leaves of them."""

import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import given

from protocol.conversation import (
    Answer,
    Calls,
    Message,
    Note,
    Pair,
    Text,
    ToolCall,
    ToolResult,
    User,
)
from supervisor.store import lines
from supervisor.store.disk import StoreError, append
from supervisor.store.load import load
from supervisor.store.transcript import Transcript
from tests.protocol import strategies


@pytest.fixture
def transcript(tmp_path: Path) -> Iterator[Transcript]:
    opened = Transcript(tmp_path / "t.jsonl")
    yield opened
    opened.close()


def written(transcript: Transcript) -> list[dict[str, object]]:
    return [json.loads(line) for line in transcript.path.read_bytes().splitlines()]


def last_line(transcript: Transcript) -> dict[str, object]:
    line = written(transcript)[-1]
    assert str(line.pop("time")).endswith("Z")
    assert (line.pop("kind"), line.pop("v")) == ("message", 1)
    return line


def test_a_line_of_the_user_has_its_author_and_what_the_api_needs(transcript: Transcript) -> None:
    assert transcript.message(User.says("fix it"), turn=1, round=None) == 1
    assert last_line(transcript) == {
        "seq": 1,
        "turn": 1,
        "round": None,
        "role": "user",
        "author": "user",
        "content": "fix it",
    }


def test_parts_of_several_authors_are_kept_apart(transcript: Transcript) -> None:
    transcript.message(User((Text("see", "user"), Text("$ ls", "program"))), turn=1, round=None)
    line = last_line(transcript)
    assert line["parts"] == [
        {"type": "text", "text": "see", "author": "user"},
        {"type": "text", "text": "$ ls", "author": "program"},
    ]
    assert "content" not in line


def test_a_reply_with_calls_is_kept_in_the_form_of_the_api(transcript: Transcript) -> None:
    call = ToolCall("c1", "search", '{"pattern":"x"}', "not run: no JSON")
    transcript.message(Calls((call,), "looking", "thought"), turn=1, round=4)
    line = last_line(transcript)
    assert line == {
        "seq": 1,
        "turn": 1,
        "round": 4,
        "role": "assistant",
        "author": "model",
        "content": "looking",
        "reasoning_content": "thought",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "search", "arguments": '{"pattern":"x"}'},
                "problem": "not run: no JSON",
            }
        ],
    }


def test_a_result_and_a_note_say_what_they_are(transcript: Transcript) -> None:
    transcript.message(ToolResult("c1", "no such file", failed=True), turn=1, round=4)
    line = last_line(transcript)
    assert (line["role"], line["tool_call_id"], line["failed"]) == ("tool", "c1", True)
    transcript.message(Note(User.says("faster").parts), turn=1, round=4)
    line = last_line(transcript)
    assert (line["role"], line["note"], line["content"]) == ("user", True, "faster")


def test_the_other_kinds_have_their_fields(transcript: Transcript) -> None:
    transcript.session(workspace="/w", project="p", model="m", resumed=True)
    transcript.withdrawn(3, 1, "interrupted before a reply")
    transcript.compaction(Pair(User.says("so far"), (), Answer.by("model", "all")), 1, 2)
    transcript.stub(5, "[cut]")
    transcript.retract(3)
    told = written(transcript)
    assert [line["kind"] for line in told] == ["session", "withdrawn", "compaction", "stub", "retract"]
    assert [line["seq"] for line in told] == [1, 2, 3, 4, 5]
    assert told[0].items() >= {"workspace": "/w", "project": "p", "model": "m", "resumed": True}.items()
    assert told[1].items() >= {"turn": 3, "first": 1, "why": "interrupted before a reply"}.items()
    assert told[2].items() >= {"first": 1, "last": 2}.items()
    assert (told[3]["target"], told[4]["target"]) == (5, 3)


@given(strategies.messages)
def test_a_message_comes_back_as_it_was_written(message: Message) -> None:
    line = lines.of_message(message, 7, "2026-01-01T00:00:00.000Z", 2, 3)
    encoded = lines.encode(line)
    assert encoded.count(b"\n") == 1
    assert lines.to_message(line) == message
    assert msgspec.json.decode(encoded, type=lines.AnyLine) == line


def test_a_call_with_parts_from_another_hand_is_read_as_text() -> None:
    call = lines.StoredCall("c", lines.StoredFunction("search", "{}"))
    line = lines.MessageLine(
        v=1,
        seq=1,
        time="",
        turn=1,
        round=1,
        role="assistant",
        parts=(Text("a", "model"),),
        tool_calls=(call,),
    )
    assert lines.to_message(line) == Calls((ToolCall("c", "search", "{}"),), "a")


def test_a_lone_surrogate_is_written_as_a_question_mark(transcript: Transcript) -> None:
    transcript.message(User.says("caf\udce9 é"), turn=1, round=None)
    assert last_line(transcript)["content"] == "caf? é"


def test_a_file_is_for_its_owner_only(transcript: Transcript) -> None:
    assert stat.S_IMODE(transcript.path.stat().st_mode) == 0o600


def test_numbers_go_on_where_an_earlier_process_ended(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl", seq=41)
    assert transcript.session(workspace="", project="", model="", resumed=True) == 42
    transcript.close()
    transcript.close()


async def test_a_sync_covers_what_was_written_before_it(transcript: Transcript) -> None:
    await transcript.sync()
    transcript.message(User.says("a"), turn=1, round=None)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(transcript.sync)
            await trio.lowlevel.checkpoint()
            transcript.message(User.says("b"), turn=1, round=None)
            nursery.start_soon(transcript.sync)


async def test_a_sync_that_fails_names_the_file(tmp_path: Path) -> None:
    # A pipe can be written and can't be synced.
    os.mkfifo(tmp_path / "t.jsonl")
    reader = os.open(tmp_path / "t.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    transcript = Transcript(tmp_path / "t.jsonl")
    transcript.message(User.says("a"), turn=1, round=None)
    with pytest.raises(StoreError, match=r"t\.jsonl: Invalid argument"):
        await transcript.sync()
    transcript.close()
    os.close(reader)


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/t\.jsonl: No such file or directory"):
        Transcript(tmp_path / "nowhere" / "t.jsonl")


FULL_DISK = """
import resource, sys
from pathlib import Path
from protocol.conversation import User
from supervisor.store.disk import StoreError, append
from supervisor.store.transcript import Transcript

transcript = Transcript(Path(sys.argv[1]))
transcript.message(User.says("first"), turn=1, round=None)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
try:
    transcript.message(User.says("x" * 5000), turn=1, round=None)
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
transcript.message(User.says("third"), turn=1, round=None)
"""


def test_a_full_disk_leaves_no_half_line_and_is_named(tmp_path: Path) -> None:
    # A limit on the size of files makes `write` fall short as a full disk does.
    path = tmp_path / "t.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.startswith(f"{path}: File too large; ")
    told = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [(line["seq"], line["content"]) for line in told] == [(1, "first"), (2, "third")]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 600


def test_a_device_that_is_full_is_named_with_what_to_do() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(StoreError, match="/dev/full: No space left on device; make room on that disk"):
            append(descriptor, Path("/dev/full"), b"x")
    finally:
        os.close(descriptor)


KILLED = """
import os, signal, sys
from pathlib import Path
from protocol.conversation import User
from supervisor.store.transcript import Transcript

transcript = Transcript(Path(sys.argv[1]))
for number in range(200):
    transcript.message(User.says(f"line {number}"), turn=1, round=None)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_no_line_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=30)
    assert done.returncode == -9
    assert load(path).seq == 200
