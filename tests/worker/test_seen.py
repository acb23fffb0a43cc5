"""A file that changed since the model saw it: a rewrite is refused, an edit that still fits is made."""

import os

import pytest

from protocol.tools.edit_file import Edit, EditFile
from protocol.tools.read_file import ReadFile
from protocol.tools.write_file import WriteFile
from tests.worker.desk import Room
from worker.call import Outcome, ToolError
from worker.files import seen
from worker.tools import edit_file, read_file, write_file


def read(room: Room, path: str = "a.txt") -> Outcome:
    return read_file.run(ReadFile(path), room.call)


def write(room: Room, content: str, path: str = "a.txt") -> Outcome:
    return write_file.run(WriteFile(path, content), room.call)


def edit(room: Room, old: str, new: str) -> Outcome:
    return edit_file.run(EditFile("a.txt", (Edit(old, new),)), room.call)


def refused(room: Room, content: str = "from an old copy\n") -> str:
    with pytest.raises(ToolError) as caught:
        write(room, content)
    return str(caught.value)


def test_a_rewrite_from_an_old_copy_does_not_undo_somebody_elses_change(room: Room) -> None:
    path = room.put("a.txt", b"one\n")
    read(room)
    path.write_bytes(b"one by hand\n")
    words = refused(room)
    assert "changed since you last saw it" in words
    assert "read it again" in words
    assert path.read_bytes() == b"one by hand\n"
    assert os.listdir(room.workspace) == ["a.txt"]
    read(room)
    write(room, "two\n")
    assert path.read_bytes() == b"two\n"


def test_a_change_that_keeps_size_and_time_is_noticed(room: Room) -> None:
    path = room.put("a.txt", b"one\n")
    status = path.stat()
    read(room)
    path.write_bytes(b"eno\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "changed since" in refused(room)


def test_a_file_that_was_only_touched_or_changed_back_is_no_other(room: Room) -> None:
    path = room.put("a.txt", b"one\n")
    read(room)
    os.utime(path, (0, 0))
    write(room, "two\n")
    path.unlink()
    room.put("a.txt", b"two\n")
    write(room, "three\n")
    assert path.read_bytes() == b"three\n"


def test_what_was_written_from_here_counts_as_seen(room: Room) -> None:
    path = room.put("a.txt", b"one\n")
    read(room)
    edit(room, "one", "two")
    write(room, "three\n")
    write(room, "four\n")
    path.write_bytes(b"by a formatter\n")
    assert "changed since" in refused(room)


def test_an_edit_that_still_fits_is_made_and_leaves_the_rest_unseen(room: Room) -> None:
    path = room.put("a.txt", b"one\ntwo\n")
    read(room)
    path.write_bytes(b"one\ntwo\nthree by hand\n")
    edit(room, "one\n", "1\n")
    assert path.read_bytes() == b"1\ntwo\nthree by hand\n"
    assert "changed since" in refused(room)


def test_a_file_that_was_never_read_or_is_gone_may_be_written(room: Room) -> None:
    path = room.put("a.txt", b"one\n")
    edit(room, "one", "two")
    write(room, "three\n")
    path.unlink()
    write(room, "four\n")
    assert path.read_bytes() == b"four\n"


def test_a_large_file_is_told_by_size_and_time(room: Room) -> None:
    path = room.put("a.txt", b"x" * (seen._SIZE_MAX + 1))
    read(room)
    write(room, "y" * (seen._SIZE_MAX + 1))
    write(room, "z" * (seen._SIZE_MAX + 1))
    with open(path, "ab") as file:
        file.write(b"by hand")
    assert "changed since" in refused(room)
