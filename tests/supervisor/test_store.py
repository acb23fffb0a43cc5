"""Conversations on the disk: modes, opening after a kill, copies, texts and outputs."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from protocol.conversation import Answer, Calls, Text, ToolCall, ToolResult, User
from supervisor.exits import FAILED, USAGE, StopError
from supervisor.store import repair
from supervisor.store.conversations import (
    OpenConversation,
    UnknownConversationError,
    create,
    fork,
    open_conversation,
)
from supervisor.store.disk import StoreError, private_directory
from supervisor.store.lock import LockedError
from supervisor.store.outputs import Outputs
from supervisor.store.round_log import Sent, Settled
from supervisor.store.texts import Texts
from tests.supervisor.full_disk import full_disk

LINE = User.says("append once")
CALLS = Calls(
    (
        ToolCall("c1", "run_command", '{"command":"echo x >> out"}'),
        ToolCall("c2", "read_file", '{"path":"out"}'),
    )
)


def sent(number: int, turn: int | None = 1) -> Sent:
    return Sent(round=number, turn=turn, body_sha256="", bytes=1)


def left_open(home: Path) -> OpenConversation:
    """A conversation whose first turn is open after its user line; the caller closes it as a kill would."""
    opened = create(home, Path("/w"), "key")
    opened.transcript.session(workspace="/w", project="key", model="m", resumed=False)
    opened.transcript.message(LINE, turn=1, round=None)
    return opened


def reopened(home: Path, opened: OpenConversation) -> OpenConversation:
    before = opened.transcript.path.read_bytes()
    opened.close()
    again = open_conversation(home, opened.id)
    again.close()
    assert again.transcript.path.read_bytes().startswith(before), "a repair only appends"
    once_more = open_conversation(home, opened.id)
    once_more.close()
    assert once_more.loaded.conversation == again.loaded.conversation
    assert once_more.loaded.spans == again.loaded.spans
    assert once_more.loaded.notices == ()
    return again


def test_a_new_conversation_has_its_place_and_a_short_id(tmp_path: Path) -> None:
    opened = create(tmp_path, Path("/w"), "key")
    opened.close()
    assert len(opened.id) == 8
    assert opened.id.islower() or opened.id.isalnum()
    assert opened.directory == tmp_path / "sessions" / opened.id
    name = opened.transcript.path.name
    assert name.startswith("myagent_conversation_20")
    assert name.endswith(f"Z_{opened.id}.jsonl")
    assert (opened.loaded.workspace, opened.loaded.project) == ("/w", "key")


MAKE = """
import os, sys
from pathlib import Path
from protocol.conversation import User
from supervisor.store.conversations import create, fork
from supervisor.store.round_log import Settled

os.umask(int(sys.argv[2], 8))
opened = create(Path(sys.argv[1]), Path("/w"), "key")
opened.transcript.message(User.says("x"), turn=1, round=None)
opened.rounds.settled(Settled(round=1))
opened.texts.put(b"system")
os.close(opened.outputs.open("c1")[1])
fork(Path(sys.argv[1]), opened.id).close()
(opened.transcript.path).open("ab").write(b'{"torn')
opened.close()
from supervisor.store.conversations import open_conversation
open_conversation(Path(sys.argv[1]), opened.id).close()
"""


@pytest.mark.parametrize("umask", ["000", "022", "077", "777"])
def test_files_are_0600_in_0700_directories_whatever_the_umask(tmp_path: Path, umask: str) -> None:
    home = tmp_path / "deep" / "state"
    subprocess.run([sys.executable, "-W", "ignore", "-c", MAKE, str(home), umask], check=True, timeout=60)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [home, *home.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    kinds = {path.name.rpartition(".")[2] for path in modes if path.is_file()}
    assert kinds >= {"jsonl", "torn", "txt", "lock"}


def test_a_state_directory_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"/file: Not a directory; name a directory in AGENT_HOME") as caught:
        create(tmp_path / "file" / "state", Path("/w"), "key")
    assert caught.value.exit_code == FAILED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_state_directory_of_somebody_else_is_named_with_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Permission denied; make it yours and writable"):
        create(tmp_path / "state", Path("/w"), "key")
    tmp_path.chmod(0o700)


def test_a_directory_for_sessions_that_vanished_is_named(tmp_path: Path) -> None:
    private_directory(tmp_path / "state" / "sessions").rmdir()
    (tmp_path / "state" / "sessions").symlink_to("nowhere")
    with pytest.raises(StoreError, match="sessions"):
        create(tmp_path / "state", Path("/w"), "key")


def test_a_place_where_no_directory_can_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="/proc/self/nothing: No such file"):
        create(Path("/proc/self/nothing"), Path("/w"), "key")
    (tmp_path / "sessions").symlink_to("/proc/self/task")
    with pytest.raises(StoreError, match=f"{tmp_path}/sessions/"):
        create(tmp_path, Path("/w"), "key")


def test_an_id_that_is_taken_is_not_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([b"aaaaa", b"aaaaa", b"bbbbb"])
    monkeypatch.setattr(os, "urandom", lambda _size: next(drawn))
    first, second = (create(tmp_path, Path("/w"), "key") for _ in range(2))
    first.close()
    second.close()
    assert first.id != second.id


@pytest.mark.parametrize("id_", ["abcdefgh", "", "../../etc", "ABCDEFGH", "a" * 500, "abc\0defg", "\x1b[2J"])
def test_an_unknown_id_ends_the_program_with_the_way_to_the_list(tmp_path: Path, id_: str) -> None:
    for opening in (open_conversation, fork):
        with pytest.raises(UnknownConversationError, match="`agent sessions` lists") as caught:
            opening(tmp_path, id_)
        assert caught.value.exit_code == USAGE
        assert "\x1b" not in str(caught.value)


def test_an_unknown_id_names_near_ones(tmp_path: Path) -> None:
    opened = create(tmp_path, Path("/w"), "key")
    opened.close()
    for near in (opened.id[:5], opened.id[:-1] + "0"):
        with pytest.raises(UnknownConversationError, match=f"did you mean {opened.id}?"):
            open_conversation(tmp_path, near)


def test_a_conversation_without_its_transcript_is_named_and_not_kept_locked(tmp_path: Path) -> None:
    opened = create(tmp_path, Path("/w"), "key")
    opened.close()
    opened.transcript.path.unlink()
    for _ in range(2):
        with pytest.raises(StopError, match="has no transcript"):
            open_conversation(tmp_path, opened.id)


def test_a_conversation_whose_directory_is_damaged_is_named_and_not_kept_locked(tmp_path: Path) -> None:
    opened = create(tmp_path, Path("/w"), "key")
    opened.close()
    opened.rounds.path.unlink()
    opened.rounds.path.symlink_to(tmp_path / "nowhere" / "rounds")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"rounds\.jsonl"):
            open_conversation(tmp_path, opened.id)


def test_a_whole_conversation_is_opened_as_it_was_left(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.rounds.sent(sent(1))
    opened.transcript.message(Answer.by("model", "done"), turn=1, round=1)
    again = reopened(tmp_path, opened)
    assert (again.loaded.turn, again.loaded.round, again.loaded.seq) == (1, 1, 3)
    assert again.loaded.notices == ()
    assert again.loaded.conversation.pairs[0].answer == Answer.by("model", "done")


def test_a_missing_result_reads_interrupted_and_nothing_is_run_again(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.transcript.message(CALLS, turn=1, round=1)
    opened.transcript.message(ToolResult("c2", ""), turn=1, round=1)
    again = reopened(tmp_path, opened)
    (pair,) = again.loaded.conversation.pairs
    assert pair.rounds[0].results == (
        ToolResult("c1", "interrupted; effect unknown, check before repeating", failed=True),
        ToolResult("c2", ""),
    )
    assert pair.answer == Answer.by("program", "[interrupted before an answer]")
    assert (again.loaded.turn, again.loaded.open) == (1, ())
    assert again.loaded.spans == ((2, 6),)
    assert again.loaded.notices == ("the last turn was interrupted; it is closed and kept",)


def test_a_line_that_was_never_answered_is_kept_after_a_kill(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.rounds.sent(sent(1))
    opened.rounds.partial(1, "")
    again = reopened(tmp_path, opened)
    assert again.loaded.conversation.pairs[0].user == LINE
    assert again.loaded.conversation.pairs[0].answer == Answer.by("program", "[interrupted before an answer]")
    assert again.loaded.round == 1, "a round's number is drawn when it is sent and not used again"


def test_a_reply_that_was_being_shown_is_kept_as_interrupted(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.rounds.sent(sent(1))
    opened.rounds.partial(1, "It is")
    opened.rounds.partial(1, "It is half")
    again = reopened(tmp_path, opened)
    (pair,) = again.loaded.conversation.pairs
    assert pair.answer.parts == (Text("It is half", "model"), Text(repair.CUT_ANSWER, "program"))
    stored = json.loads(opened.transcript.path.read_bytes().splitlines()[-1])
    assert (stored["turn"], stored["round"], stored["role"]) == (1, 1, "assistant")


def test_a_reply_that_is_in_the_transcript_already_is_not_kept_twice(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.rounds.sent(sent(1))
    opened.rounds.partial(1, "I look")
    opened.transcript.message(Calls(CALLS.calls, "I look first"), turn=1, round=1)
    again = reopened(tmp_path, opened)
    assert again.loaded.conversation.pairs[0].answer == Answer.by("program", "[interrupted before an answer]")


def test_what_another_turn_showed_is_not_taken_for_this_one(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.rounds.sent(sent(1, turn=None))
    opened.rounds.partial(1, "a summary")
    again = reopened(tmp_path, opened)
    assert again.loaded.conversation.pairs[0].answer == Answer.by("program", "[interrupted before an answer]")


def test_a_torn_end_is_reported_and_the_turn_is_closed_all_the_same(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    with opened.transcript.path.open("ab") as file:
        file.write(b'{"kind":"message","v":1,"seq":3,"ro')
    opened.close()
    again = open_conversation(tmp_path, opened.id)
    again.close()
    assert "was torn; its 35 bytes are kept in" in again.loaded.notices[0]
    assert again.loaded.conversation.pairs[0].user == LINE


def test_a_copy_goes_on_under_another_id_while_the_original_is_in_use(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.rounds.sent(sent(1))
    opened.rounds.partial(1, "half")
    digest = opened.texts.put(b"system prompt")
    name, descriptor = opened.outputs.open("c1")
    os.write(descriptor, b"whole output")
    os.close(descriptor)
    before = opened.transcript.path.read_bytes()

    copy = fork(tmp_path, opened.id)
    copy.transcript.message(User.says("another way"), turn=2, round=None)
    copy.close()

    assert copy.id != opened.id
    assert opened.transcript.path.read_bytes() == before
    assert copy.loaded.conversation.pairs[0].answer.parts[0] == Text("half", "model")
    assert copy.texts.get(digest) == b"system prompt"
    assert (copy.outputs.directory / name).read_bytes() == b"whole output"
    with pytest.raises(LockedError):
        open_conversation(tmp_path, opened.id)
    opened.transcript.message(Answer.by("model", "done"), turn=1, round=1)
    opened.close()


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    opened = create(tmp_path, Path("/w"), "key")
    opened.close()
    opened.rounds.path.unlink()
    opened.rounds.path.mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        fork(tmp_path, opened.id)
    assert [entry.name for entry in (tmp_path / "sessions").iterdir()] == [opened.id]


def test_a_copy_needs_neither_round_log_nor_texts(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.close()
    opened.rounds.path.unlink()
    opened.outputs.directory.rmdir()
    copy = fork(tmp_path, opened.id)
    copy.close()
    assert copy.loaded.turn == 1


def test_output_on_another_file_system_is_copied(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    opened = left_open(tmp_path)
    opened.close()
    with tempfile.TemporaryDirectory(dir=elsewhere) as other:
        (Path(other) / "c1.txt").write_text("whole output")
        opened.outputs.directory.rmdir()
        opened.outputs.directory.symlink_to(other)
        copy = fork(tmp_path, opened.id)
        copy.close()
    assert (copy.outputs.directory / "c1.txt").read_text() == "whole output"
    assert stat.S_IMODE((copy.outputs.directory / "c1.txt").stat().st_mode) == 0o600


def test_a_copy_of_what_is_no_file_fails_by_name(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.close()
    (opened.outputs.directory / "inner").mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        fork(tmp_path, opened.id)


def test_a_text_is_kept_once_by_its_digest(tmp_path: Path) -> None:
    texts = Texts(tmp_path / "texts")
    digest = texts.put(b"prompt")
    assert digest == hashlib.sha256(b"prompt").hexdigest()
    assert texts.put(b"prompt") == digest
    assert Texts(tmp_path / "texts").put(b"prompt") == digest
    assert texts.get(digest) == b"prompt"
    assert [path.name for path in texts.directory.iterdir()] == [digest]


def test_a_text_that_is_missing_or_cannot_be_kept_is_named(tmp_path: Path) -> None:
    texts = Texts(tmp_path / "texts")
    with pytest.raises(StoreError, match="texts/ab: No such file"):
        texts.get("../ab")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        Texts(tmp_path / "file" / "texts").put(b"x")


def test_a_text_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    texts = Texts(tmp_path / "texts")
    with full_disk(600), pytest.raises(StoreError, match="File too large"):
        texts.put(b"x" * 5000)
    assert list((tmp_path / "texts").iterdir()) == []


def test_a_repair_that_does_not_fit_leaves_the_conversation_unlocked_and_whole(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.transcript.message(CALLS, turn=1, round=1)
    opened.close()
    before = opened.transcript.path.read_bytes()
    assert len(before) > 600
    with full_disk(600), pytest.raises(StoreError, match="File too large"):
        open_conversation(tmp_path, opened.id)
    assert opened.transcript.path.read_bytes() == before
    open_conversation(tmp_path, opened.id).close()


@pytest.mark.parametrize(
    ("call_id", "name"),
    [
        ("call_1", "call_1.txt"),
        ("../../etc/passwd", "______etc_passwd.txt"),
        ("", "call.txt"),
        ("--help", "help.txt"),
        ("é\0\n/", "____.txt"),
        ("x" * 500, "x" * 60 + ".txt"),
    ],
)
def test_an_outputs_name_is_safe_whatever_the_id(tmp_path: Path, call_id: str, name: str) -> None:
    outputs = Outputs(tmp_path / "output")
    for wanted in (name, name.replace(".txt", "-2.txt"), name.replace(".txt", "-3.txt")):
        given, descriptor = outputs.open(call_id)
        os.write(descriptor, b"output")
        os.close(descriptor)
        assert given == wanted
        assert (outputs.directory / given).read_bytes() == b"output"


def test_an_output_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "output")
    outputs.directory.rmdir()
    with pytest.raises(StoreError, match=r"output/c\.txt: No such file"):
        outputs.open("c")


def test_settled_rows_need_no_sent_row(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.rounds.settled(Settled(round=9))
    again = reopened(tmp_path, opened)
    assert again.loaded.round == 0


def test_a_conversation_in_which_nothing_was_said_leaves_no_directory(tmp_path: Path) -> None:
    opened = create(tmp_path, Path("/w"), "key")
    opened.transcript.session(workspace="/w", project="key", model="m", resumed=False)
    opened.discard_unsaid()
    opened.close()
    assert list((tmp_path / "sessions").iterdir()) == []
    kept = left_open(tmp_path)
    kept.discard_unsaid()
    kept.close()
    kept = open_conversation(tmp_path, kept.id)
    kept.discard_unsaid()
    kept.close()
    assert [entry.name for entry in (tmp_path / "sessions").iterdir()] == [kept.id]


def test_a_conversation_that_cannot_be_begun_leaves_no_directory(tmp_path: Path) -> None:
    with full_disk(0), pytest.raises(StoreError):
        create(tmp_path, Path("/w"), "key")
    assert list((tmp_path / "sessions").iterdir()) == []


def test_a_copy_that_cannot_be_opened_leaves_nothing_behind(tmp_path: Path) -> None:
    opened = left_open(tmp_path)
    opened.close()
    with opened.transcript.path.open("a") as file:
        file.write('{"kind":"future","v":99,"seq":9}\n')
    with pytest.raises(StopError, match="newer version"):
        fork(tmp_path, opened.id)
    opened.transcript.path.unlink()
    with pytest.raises(StopError, match="no transcript"):
        fork(tmp_path, opened.id)
    assert [entry.name for entry in (tmp_path / "sessions").iterdir()] == [opened.id]
