import os
import time
from pathlib import Path

import pytest

from protocol.tools.edit_file import Edit, EditFile
from tests.worker.desk import Room
from worker.call import Outcome, ToolError
from worker.files.names import shown
from worker.tools.edit_file import run


def edit(room: Room, path: str, *edits: tuple[str, str]) -> Outcome:
    return run(EditFile(path, tuple(Edit(old, new) for old, new in edits)), room.call)


def refused(room: Room, path: str, *edits: tuple[str, str]) -> str:
    with pytest.raises(ToolError) as caught:
        edit(room, path, *edits)
    return str(caught.value)


def test_an_edit_reports_its_places_and_lines_and_shows_a_diff(room: Room) -> None:
    path = room.put("a.py", b"one\ntwo\nthree\n")
    outcome = edit(room, "a.py", ("two\n", "2\n2b\n"), ("three", "3"))
    assert path.read_bytes() == b"one\n2\n2b\n3\n"
    assert outcome.text == "a.py: edited 2 places, +3 -2"
    assert outcome.display.summary == "edited 2 places, +3 -2"
    assert outcome.display.diff == "@@ -1,3 +1,4 @@\n one\n-two\n-three\n+2\n+2b\n+3"
    assert outcome.display.path == "a.py"
    assert outcome.paths == ("a.py",)


def test_one_failing_edit_of_several_leaves_the_file_untouched(room: Room) -> None:
    path = room.put("a.py", b"one\ntwo\n")
    before = path.stat()
    words = refused(room, "a.py", ("one", "1"), ("thwo", "2"))
    assert "edit 2 of 2" in words
    assert "Nothing was changed" in words
    assert path.read_bytes() == b"one\ntwo\n"
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert os.listdir(room.workspace) == ["a.py"]


def test_an_empty_old_creates_a_missing_file_with_its_parents_and_fills_an_empty_one(room: Room) -> None:
    assert edit(room, "sub/new.txt", ("", "hello\n"), ("hello", "bye")).display.summary == "created, +1 -0"
    assert (room.workspace / "sub" / "new.txt").read_bytes() == b"bye\n"
    path = room.put("empty", b"")
    edit(room, "empty", ("", "text"))
    assert path.read_bytes() == b"text"
    full = room.put("full", b"abc\n")
    assert "append" in refused(room, "full", ("", "X"))
    assert full.read_bytes() == b"abc\n"


def test_a_missing_file_is_not_created_by_an_edit_of_something(room: Room) -> None:
    assert "no such file" in refused(room, "missing", ("a", "b"))
    assert "no such" in refused(room, "sub/missing", ("a", "b"))
    assert os.listdir(room.workspace) == []
    assert "the same" in refused(room, "missing", ("", ""))
    assert os.listdir(room.workspace) == []


def test_bytes_that_are_no_utf8_stay_as_they_are(room: Room) -> None:
    latin = room.put("latin1.py", b"# r\xe9sum\xe9 parser\nLIMIT = 10\n")
    edit(room, "latin1.py", ("LIMIT = 10", "LIMIT = 20"))
    assert latin.read_bytes() == b"# r\xe9sum\xe9 parser\nLIMIT = 20\n"
    assert "Latin-1" in refused(room, "latin1.py", ("résumé", "cv"))


def test_a_makefile_keeps_its_tabs(room: Room) -> None:
    path = room.put("Makefile", b"all:\n\t@echo one\n\t@echo two\n")
    assert "tabs" in refused(room, "Makefile", ("    @echo two", "    @echo TWO"))
    assert path.read_bytes() == b"all:\n\t@echo one\n\t@echo two\n"


def test_a_file_too_large_for_an_edit_is_refused_in_words(room: Room) -> None:
    os.truncate(room.put("huge", b"x"), 65 * 1024 * 1024)
    assert "run_command" in refused(room, "huge", ("x", "y"))


@pytest.mark.parametrize(
    "name", [b"-rf.txt", b" leading.txt", b"two\nlines.txt", b"quo\"te's.txt", b"bad\xff.txt"]
)
def test_files_of_odd_names_are_edited_by_the_name_that_is_shown(room: Room, name: bytes) -> None:
    whole = os.path.join(os.fsencode(room.workspace), name)
    with open(whole, "wb") as file:
        file.write(b"needle\n")
    outcome = edit(room, shown(name), ("needle", "thread"))
    assert outcome.paths == (shown(name),)
    with open(whole, "rb") as file:
        assert file.read() == b"thread\n"


def test_editing_a_small_file_is_fast(room: Room) -> None:
    room.put("a.py", b"line\n" * 200 + b"number 0\n")
    times = []
    for number in range(40):
        started = time.perf_counter()
        edit(room, "a.py", (f"number {number}\n", f"number {number + 1}\n"))
        times.append(time.perf_counter() - started)
    assert min(times) < 0.001


def test_an_edit_through_a_link_that_leads_out_is_refused(room: Room) -> None:
    victim: Path = room.outside / "victim"
    victim.write_bytes(b"original\n")
    (room.workspace / "notes.md").symlink_to(victim)
    assert str(victim) in refused(room, "notes.md", ("original", "changed"))
    assert victim.read_bytes() == b"original\n"
