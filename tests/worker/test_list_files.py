import os
import threading

import pytest

from protocol.policy import Limits
from protocol.tools.list_files import ListFiles
from protocol.tools.read_file import ReadFile
from protocol.wire import Status
from tests.worker.desk import Room
from tests.worker.ordinary import as_ordinary_user
from tests.worker.trees import KEPT, ODD_NAMES, ignoring, loops_and_a_locked_directory, odd_names
from worker.call import Outcome, ToolError
from worker.files.names import shown
from worker.tools import read_file
from worker.tools.list_files import run


def listing(room: Room, path: str = ".", glob: str | None = None, limit: int = 500) -> Outcome:
    return run(ListFiles(path, glob, limit), room.call)


def lines(outcome: Outcome) -> list[str]:
    return outcome.text.split("\n")


def test_files_are_listed_in_order_without_what_gitignore_leaves_out(room: Room) -> None:
    ignoring(room.workspace)
    outcome = listing(room)
    assert tuple(lines(outcome)) == KEPT
    assert outcome.display.summary == f"listed {len(KEPT)} files"
    assert listing(room, "").text == outcome.text
    assert tuple(lines(listing(room, "sub"))) == tuple(name for name in KEPT if name.startswith("sub/"))


def test_an_ignored_directory_that_is_named_is_listed(room: Room) -> None:
    ignoring(room.workspace)
    assert lines(listing(room, "node_modules")) == ["node_modules/m/index.js"]
    assert lines(listing(room, "node_modules/m")) == ["node_modules/m/index.js"]


def test_a_glob_picks_by_name_or_by_path_from_the_directory(room: Room) -> None:
    ignoring(room.workspace)
    assert lines(listing(room, glob="*.py")) == ["a.py", "sub/build/in.py"]
    assert lines(listing(room, glob="./*.py")) == ["a.py"]
    assert lines(listing(room, "sub", glob="build/**")) == ["sub/build/in.py"]
    assert listing(room, glob="*.nothing").text == "[no files]"
    with pytest.raises(ToolError, match="malformed"):
        listing(room, glob="{a")


def test_odd_names_are_listed_unambiguously_and_read_by_what_is_shown(room: Room) -> None:
    odd_names(room.workspace)
    names = lines(listing(room))
    assert sorted(names) == sorted(shown(name) for name in ODD_NAMES)
    assert '"two\\nlines.txt"' in names
    for name in names:
        assert read_file.run(ReadFile(name), room.call).text == "1\tneedle"


def test_an_unreadable_directory_is_named_and_loops_end(ordinary_room: Room) -> None:
    def work() -> str:
        loops_and_a_locked_directory(ordinary_room.workspace)
        text = listing(ordinary_room, "t").text
        only = listing(ordinary_room, "t", glob="**/*.md").text
        nothing = listing(ordinary_room, "t", glob="b.md").text
        with pytest.raises(ToolError, match="permission denied"):
            listing(ordinary_room, "t/locked")
        (ordinary_room.workspace / "t" / "locked").chmod(0o755)
        return "\n".join([text, only, nothing])

    assert as_ordinary_user(work).split("\n") == [
        "t/one -> two",
        "t/sub/a.md",
        "t/sub/up -> ..",
        "t/two -> one",
        "[not read: t/locked (permission denied)]",
        "t/sub/a.md",
        "[not read: t/locked (permission denied)]",
        "[no files in what could be read; not read: t/locked (permission denied)]",
    ]


def test_above_the_limit_the_rest_is_counted_by_directory(room: Room) -> None:
    for number in range(30):
        room.put(f"{'ab'[number % 2]}/f{number:02}", b"")
    room.put("z", b"")
    outcome = listing(room, limit=10)
    assert len(lines(outcome)) == 11
    assert lines(outcome)[-1].startswith("[21 more files are left out, in: b/ 15, a/ 5, ./ 1; narrow")
    assert outcome.display.summary == "listed 10 of 31 files"
    room.change(limits=Limits(result_cap_bytes=200))
    assert len(listing(room).text.encode()) <= 200
    assert "more files are left out" in listing(room).text


def test_a_glob_from_the_root_of_the_file_system_is_explained(room: Room) -> None:
    room.put("src/a.py", b"")
    assert "begins at `path`" in listing(room, glob=f"{room.workspace}/**/*.py").text
    assert listing(room, glob="/src/*.py").text == "src/a.py"


def test_what_is_no_file_is_listed_with_its_kind(room: Room) -> None:
    os.mkfifo(room.workspace / "pipe")
    assert listing(room).text == "pipe (a FIFO)"


def test_what_is_no_directory_is_refused(room: Room) -> None:
    room.put("file", b"")
    with pytest.raises(ToolError, match="file is a file, not a directory"):
        listing(room, "file")
    with pytest.raises(ToolError, match="no such directory"):
        listing(room, "missing")


def test_a_directory_outside_of_the_workspace_is_listed_by_whole_paths(room: Room) -> None:
    (room.tmp / "a").write_bytes(b"")
    assert listing(room, str(room.tmp)).text == str(room.tmp / "a")


def test_a_cancelled_listing_returns_what_it_has(room: Room) -> None:
    room.put("a", b"")
    room.cancelled.set()
    outcome = listing(room)
    assert outcome.status is Status.CANCELLED
    assert "cancelled" in outcome.text
    room.cancelled = threading.Event()
    assert listing(room).text == "a"


def test_a_tree_deeper_than_the_limit_is_named(room: Room) -> None:
    fd = os.open(room.workspace, os.O_RDONLY)
    for _ in range(205):
        os.mkdir("d", dir_fd=fd)
        deeper = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    assert "too deep" in listing(room).text
