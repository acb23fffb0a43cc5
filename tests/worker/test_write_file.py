import os
import resource
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.policy import OUTPUT_MOUNT, Mode
from protocol.tools.edit_file import Edit, EditFile
from protocol.tools.write_file import WriteFile
from protocol.wire import Status
from tests.worker.desk import Room
from tests.worker.ordinary import as_ordinary_user
from worker.call import Outcome, ToolError
from worker.files.paths import Access, resolve
from worker.files.storing import store
from worker.tools import edit_file
from worker.tools.write_file import run

BOM = b"\xef\xbb\xbf"


def write(room: Room, path: str, content: str) -> Outcome:
    return run(WriteFile(path, content), room.call)


def edit(room: Room, path: str, old: str, new: str) -> Outcome:
    return edit_file.run(EditFile(path, (Edit(old, new),)), room.call)


def refused(room: Room, path: str, content: str = "x") -> str:
    with pytest.raises(ToolError) as caught:
        write(room, path, content)
    return str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_new_file_gets_its_parents_and_the_usual_mode(room: Room) -> None:
    outcome = write(room, "a/b/new.txt", "one\ntwo\n")
    path = room.workspace / "a" / "b" / "new.txt"
    assert path.read_bytes() == b"one\ntwo\n"
    assert mode(path) == 0o644
    assert outcome.text == "a/b/new.txt: created, +2 -0"
    assert outcome.paths == ("a/b/new.txt",)
    assert outcome.display.path == "a/b/new.txt"
    assert outcome.display.diff == "@@ -0,0 +1,2 @@\n+one\n+two"


@pytest.mark.usefixtures("umask")
def test_mode_links_and_hard_links_survive_an_edit(room: Room) -> None:
    room.put("run.sh", b"#!/bin/sh\necho old\n").chmod(0o755)
    room.put("real/conf", b"value=old\n")
    (room.workspace / "conf").symlink_to("real/conf")
    os.link(room.put("hard_a", b"shared=old\n"), room.workspace / "hard_b")
    room.put("private", b"secret=old\n").chmod(0o600)
    for name in ("run.sh", "conf", "hard_a", "private"):
        edit(room, name, "old", "newer")
    assert mode(room.workspace / "run.sh") == 0o755
    assert (room.workspace / "conf").is_symlink()
    assert (room.workspace / "real" / "conf").read_bytes() == b"value=newer\n"
    assert (room.workspace / "hard_b").read_bytes() == b"shared=newer\n"
    assert mode(room.workspace / "private") == 0o600
    assert (room.workspace / "private").read_bytes() == b"secret=newer\n"
    write(room, "hard_b", "s\n")
    assert (room.workspace / "hard_a").read_bytes() == b"s\n"


def test_a_rewrite_keeps_the_byte_order_mark_and_never_adds_one(room: Room) -> None:
    room.put("with", BOM + b"a\n")
    room.put("without", b"a\n")
    write(room, "with", "b\n")
    write(room, "without", "b\n")
    assert (room.workspace / "with").read_bytes() == BOM + b"b\n"
    assert (room.workspace / "without").read_bytes() == b"b\n"
    write(room, "with", "\ufeffc\n")
    assert (room.workspace / "with").read_bytes() == BOM + b"c\n"


def test_a_rewrite_names_line_ends_and_an_encoding_that_it_changes(room: Room) -> None:
    room.put("crlf", b"a\r\nb\r\n")
    assert "ended in CRLF before, now in LF" in write(room, "crlf", "a\nb\n").text
    room.put("latin", b"r\xe9sum\xe9\n")
    assert "UTF-8 now" in write(room, "latin", "résumé\n").text
    assert "UTF-8 now" not in write(room, "latin", "grün\n").text
    room.put("wide", "size\n".encode("utf-16"))
    assert "UTF-16" in write(room, "wide", "size\n").text


def test_the_same_content_is_not_written_again(room: Room) -> None:
    path = room.put("a", b"same\n")
    before = path.stat()
    assert "already" in write(room, "a", "same\n").text
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_what_is_no_file_or_lies_outside_is_refused(room: Room) -> None:
    (room.workspace / "sub").mkdir()
    os.mkfifo(room.workspace / "pipe")
    (room.workspace / "out").symlink_to("../outside/not-yet")
    assert "a directory" in refused(room, "sub")
    assert "a FIFO" in refused(room, "pipe")
    assert "outside/not-yet" in refused(room, "out")
    assert "outside/deep" in refused(room, "../outside/deep/x")
    assert "read, not written" in refused(room, f"{OUTPUT_MOUNT}/x")
    assert "lone surrogate" in refused(room, "a", "\ud800")
    room.confine(mode=Mode.READ_ONLY)
    assert "read-only" in refused(room, "a")
    assert os.listdir(room.outside) == []
    assert sorted(os.listdir(room.workspace)) == ["out", "pipe", "sub"]


def test_a_file_that_may_not_be_written_is_not_replaced_behind_its_mode(ordinary_room: Room) -> None:
    def work() -> str:
        path = ordinary_room.put("frozen", b"old\n")
        path.chmod(0o444)
        return refused(ordinary_room, "frozen")

    assert "permission denied" in as_ordinary_user(work)
    assert (ordinary_room.workspace / "frozen").read_bytes() == b"old\n"


def test_a_file_in_a_directory_that_may_not_be_written_is_written_in_place(ordinary_room: Room) -> None:
    def work() -> str:
        path = ordinary_room.put("shut/open", b"old\n")
        path.parent.chmod(0o555)
        text = write(ordinary_room, "shut/open", "a longer text\n").text
        assert path.read_bytes() == b"a longer text\n"
        edit(ordinary_room, "shut/open", "a longer text", "short")
        words = refused(ordinary_room, "shut/new")
        path.parent.chmod(0o755)
        return f"{text} {path.read_bytes()!r} {words}"

    told = as_ordinary_user(work)
    assert "rewritten" in told
    assert r"b'short\n'" in told
    assert "shut/new: permission denied" in told


def test_a_file_of_another_owner_is_written_in_place(ordinary_room: Room) -> None:
    path = ordinary_room.put("shared", b"old\n")
    path.chmod(0o666)
    before = path.stat()
    as_ordinary_user(lambda: write(ordinary_room, "shared", "new\n").text)
    assert path.read_bytes() == b"new\n"
    assert path.stat().st_uid == before.st_uid
    assert mode(path) == 0o666


def test_root_gives_a_file_back_to_its_owner(room: Room) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    path = room.put("theirs", b"old\n")
    os.chown(path, 1234, 1235)
    path.chmod(0o640)
    write(room, "theirs", "new\n")
    status = path.stat()
    assert (status.st_uid, status.st_gid, mode(path)) == (1234, 1235, 0o640)


def test_extended_attributes_survive(room: Room) -> None:
    path = room.put("a", b"old\n")
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes here")
    write(room, "a", "new\n")
    assert os.getxattr(path, "user.note") == b"kept"


def test_a_program_that_runs_is_replaced(room: Room) -> None:
    path = room.workspace / "prog"
    shutil.copy("/bin/sleep", path)
    running = os.posix_spawn(str(path), ["sleep", "60"], {})
    try:
        write(room, "prog", "#!/bin/sh\n")
        assert path.read_bytes() == b"#!/bin/sh\n"
        assert mode(path) & 0o111
    finally:
        os.kill(running, 9)
        os.waitpid(running, 0)


@contextmanager
def no_room_above(size: int) -> Iterator[None]:
    """No file of this process may grow above so many bytes: what a full disk does, from the kernel."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("content", ["a longer text than the old content\n", "0123456789"])
def test_a_full_disk_leaves_the_old_content_and_nothing_beside_it(
    room: Room, linked: bool, content: str
) -> None:
    path = room.put("a", b"old content\n")
    names = ["a"]
    if linked:
        os.link(path, room.workspace / "b")
        names = ["a", "b"]
    with no_room_above(6):
        words = [refused(room, "a", content), refused(room, "c", content)]
    assert words == ["a: file too large", "c: file too large"]
    assert path.read_bytes() == b"old content\n"
    assert sorted(os.listdir(room.workspace)) == names


def test_a_change_by_someone_else_in_between_is_not_overwritten(room: Room) -> None:
    path = room.put("a", b"old\n")
    with resolve(room.desk.policy, "a", Access.WRITE) as place:
        path.write_bytes(b"by someone else\n")
        with pytest.raises(ToolError, match="changed by someone else"):
            store(place, b"mine\n", b"old\n")
    assert path.read_bytes() == b"by someone else\n"


def test_parallel_edits_of_one_file_all_arrive(room: Room) -> None:
    path = room.put("a", b"".join(b"place %d.\n" % number for number in range(16)))
    threads = [
        threading.Thread(target=edit, args=(room, "a", f"place {number}.", f"done {number}."))
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"".join(b"done %d.\n" % number for number in range(16))


def test_a_cancelled_write_changes_nothing(room: Room) -> None:
    path = room.put("a", b"old\n")
    room.cancelled.set()
    assert write(room, "a", "new\n").status is Status.CANCELLED
    assert edit(room, "a", "old", "new").status is Status.CANCELLED
    assert path.read_bytes() == b"old\n"
