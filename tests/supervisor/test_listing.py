"""The list of conversations: titles, order, and that large files are not read whole."""

import os
from pathlib import Path

import pytest

from protocol.conversation import Answer, Text, User
from supervisor.store.conversations import create
from supervisor.store.disk import StoreError
from supervisor.store.listing import Listed, ids, listing, newest, transcript_in


def said(home: Path, *texts: str, project: str = "here", age: float = 0, session: bool = True) -> str:
    """A conversation with these user lines; `age` in seconds before a fixed time."""
    opened = create(home, Path("/w"), project)
    if session:
        opened.transcript.session(workspace="/w", project=project, model="m", resumed=False)
    for number, text in enumerate(texts, 1):
        opened.transcript.message(User.says(text), turn=number, round=None)
        opened.transcript.message(Answer.by("model", "done"), turn=number, round=number)
    os.utime(opened.transcript.path, (1_700_000_000 - age,) * 2)
    opened.close()
    return opened.id


def transcript_of(home: Path, id_: str) -> Path:
    found = transcript_in(home / "sessions" / id_, id_)
    assert found is not None
    return found


def test_this_projects_conversations_come_first_and_then_the_newest(tmp_path: Path) -> None:
    old = said(tmp_path, "old", age=50)
    new = said(tmp_path, "new", age=10)
    other = said(tmp_path, "other", project="elsewhere")
    found = listing(tmp_path, "here")
    assert [listed.id for listed in found] == [new, old, other]
    assert [listed.here for listed in found] == [True, True, False]
    assert found[0] == Listed(new, "new", 1_700_000_000 - 10, 1, "/w", here=True)
    assert newest(tmp_path, "here") == new
    assert newest(tmp_path, "nowhere") is None


def test_without_a_project_the_newest_comes_first(tmp_path: Path) -> None:
    old, new = said(tmp_path, "a", age=9), said(tmp_path, "b", project="elsewhere")
    assert [listed.id for listed in listing(tmp_path, None)] == [new, old]


def test_a_conversation_in_which_nothing_was_said_is_left_out(tmp_path: Path) -> None:
    said(tmp_path)
    assert listing(tmp_path, "here") == []
    assert newest(tmp_path, "here") is None


def test_nothing_is_listed_before_the_first_start(tmp_path: Path) -> None:
    assert listing(tmp_path / "missing", "here") == []


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("fix it\nand more", "fix it"),
        ("\n \n  second line  \n", "second line"),
        ("x" * 200, "x" * 79 + "…"),
        ('say "hi" \\ ok\tnow', 'say "hi" \\ ok\tnow'),
        ("naïve 漢字 👍", "naïve 漢字 👍"),
        ('the field "content":"x" and "turn":99', 'the field "content":"x" and "turn":99'),
        (" ", "(no title)"),
    ],
)
def test_the_title_is_the_first_line_that_was_said(tmp_path: Path, text: str, title: str) -> None:
    said(tmp_path, text)
    (listed,) = listing(tmp_path, "here")
    assert (listed.title, listed.turns) == (title, 1)


@pytest.mark.parametrize("filler", ["a", "\x01", "é", '"', "漢"])
@pytest.mark.parametrize("shift", range(7))
def test_a_first_line_that_is_cut_in_reading_still_gives_a_title(
    tmp_path: Path, filler: str, shift: int
) -> None:
    said(tmp_path, "y" * shift + filler * 100_000)
    (listed,) = listing(tmp_path, "here")
    assert listed.title == ("y" * shift + filler * 100)[:79] + "…"


def test_a_title_may_come_from_parts(tmp_path: Path) -> None:
    opened = create(tmp_path, Path("/w"), "here")
    opened.transcript.message(User((Text("see this", "user"), Text("ls", "program"))), turn=1, round=None)
    opened.close()
    (listed,) = listing(tmp_path, "here")
    assert (listed.title, listed.here, listed.workspace) == ("see this", False, "")


def test_the_number_of_turns_is_that_of_the_last(tmp_path: Path) -> None:
    said(tmp_path, "a", "b", "c")
    assert listing(tmp_path, "here")[0].turns == 3


def test_turns_are_found_before_a_last_line_that_is_long_and_given_up_before_a_longer_one(
    tmp_path: Path,
) -> None:
    id_ = said(tmp_path, "a", "b")
    path = transcript_of(tmp_path, id_)
    with path.open("ab") as file:
        file.write(b"x" * 500_000)
    assert listing(tmp_path, "here")[0].turns == 2
    with path.open("ab") as file:
        file.write(b"x" * 5_000_000)
    assert listing(tmp_path, "here")[0].turns is None


def test_large_foreign_files_are_listed_without_being_read_whole(tmp_path: Path) -> None:
    id_ = said(tmp_path)
    path = transcript_of(tmp_path, id_)
    os.truncate(path, 1 << 40)  # a hole of a terabyte: reading it would take minutes
    (listed,) = listing(tmp_path, "here")
    assert (listed.title, listed.turns) == ("(no title)", None)


def test_a_small_file_without_turns_has_none(tmp_path: Path) -> None:
    id_ = said(tmp_path)
    path = transcript_of(tmp_path, id_)
    path.write_text('{"role":"user"}\n{"role":"user","content":"foreign"}\n')
    (listed,) = listing(tmp_path, "here")
    assert (listed.title, listed.turns, listed.here) == ("foreign", 0, False)


def test_directories_that_hold_no_transcript_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "empty").mkdir(parents=True)
    (tmp_path / "sessions" / "a-file").write_text("")
    broken = tmp_path / "sessions" / "broken"
    (broken / "myagent_conversation_2026_broken.jsonl").mkdir(parents=True)
    assert listing(tmp_path, "here") == []
    assert ids(tmp_path) == ["broken", "empty"]


def test_a_state_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("")
    with pytest.raises(StoreError, match="sessions: Not a directory"):
        listing(tmp_path, "here")


def test_a_first_line_that_is_no_json_still_gives_a_title(tmp_path: Path) -> None:
    transcript_of(tmp_path, said(tmp_path)).write_text('{"role":"user","content":"a\\q and more"}\n')
    assert listing(tmp_path, "here")[0].title == "a\\q and more"


def test_a_conversation_whose_only_lines_were_withdrawn_is_not_what_one_goes_on_with(tmp_path: Path) -> None:
    real = said(tmp_path, "real", age=50)
    opened = create(tmp_path, Path("/w"), "here")
    opened.transcript.session(workspace="/w", project="here", model="m", resumed=False)
    for _ in range(2):
        first = opened.transcript.message(User.says("lost"), turn=1, round=None)
        opened.transcript.withdrawn(1, first, "no connection")
    opened.close()
    assert newest(tmp_path, "here") == real
    with transcript_of(tmp_path, opened.id).open("a") as file:
        file.write(
            '{"kind":"message","v":1,"seq":6,"time":"","turn":1,"round":null,"role":"user","content":"hi"}\n'
        )
    assert [listed.title for listed in listing(tmp_path, "here")] == ["hi", "real"]
