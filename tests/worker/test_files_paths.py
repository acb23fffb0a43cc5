import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.policy import OUTPUT_MOUNT, Mode, SandboxPolicy
from protocol.wire import Status
from tests.worker.desk import Room
from worker.call import ToolError
from worker.files.paths import Access, Place, in_words, named, resolve


@contextmanager
def refusal(*words: str, status: Status = Status.REFUSED) -> Iterator[None]:
    with pytest.raises(ToolError) as caught:
        yield
    assert caught.value.status is status
    for word in words:
        assert word in str(caught.value)


def read(room: Room, path: str) -> bytes:
    with resolve(room.desk.policy, path, Access.READ) as place:
        fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place.parent)
        try:
            return os.read(fd, 100)
        finally:
            os.close(fd)


def where(room: Room, path: str, access: Access = Access.WRITE, *, make_parents: bool = False) -> Place:
    place = resolve(room.desk.policy, path, access, make_parents=make_parents)
    place.__exit__(None, None, None)
    return place


def test_relative_absolute_and_dotted_paths_mean_the_same_file(room: Room) -> None:
    room.put("sub/a.txt", b"text")
    for path in (
        "sub/a.txt",
        "./sub//a.txt",
        "sub/../sub/a.txt",
        f"{room.workspace}/sub/a.txt",
        "sub/a.txt/.",
    ):
        assert read(room, path) == b"text"
        assert where(room, path).shown == "sub/a.txt"
    assert where(room, f"../{room.workspace.name}/sub/a.txt").shown == "sub/a.txt"
    assert where(room, ".").shown == "."


def test_links_that_stay_inside_work_also_absolute_ones(room: Room) -> None:
    room.put("real/conf", b"in")
    (room.workspace / "relative").symlink_to("real/conf")
    (room.workspace / "absolute").symlink_to(room.workspace / "real" / "conf")
    (room.workspace / "directory").symlink_to(room.workspace / "real")
    (room.workspace / "dangling").symlink_to("real/new")
    (room.workspace / "chain").symlink_to("directory/../relative")
    for path in ("relative", "absolute", "directory/conf", "chain"):
        assert read(room, path) == b"in"
        assert where(room, path).shown == "real/conf"
    assert where(room, "dangling").shown == "real/new"


def test_links_that_lead_out_are_refused_with_the_real_path(room: Room) -> None:
    (room.outside / "victim").write_bytes(b"original")
    (room.workspace / "notes.md").symlink_to("../outside/victim")
    (room.workspace / "dir").symlink_to("../outside")
    (room.workspace / "draft.txt").symlink_to("../outside/not-yet")
    (room.workspace / "far").symlink_to("/etc/hostname-that-is-not")
    for path, real in [
        ("notes.md", room.outside / "victim"),
        ("dir/victim", room.outside / "victim"),
        ("draft.txt", room.outside / "not-yet"),
        ("far", Path("/etc/hostname-that-is-not")),
        ("../outside/victim", room.outside / "victim"),
    ]:
        for access in Access:
            with refusal(path, str(real), str(room.workspace)):
                where(room, path, access)
    assert os.listdir(room.outside) == ["victim"]


def test_a_way_through_a_link_above_the_workspace_is_found(room: Room, tmp_path: Path) -> None:
    room.put("a.txt", b"text")
    (tmp_path / "shortcut").symlink_to(room.workspace)
    assert read(room, f"{tmp_path}/shortcut/a.txt") == b"text"
    (room.workspace / "round").symlink_to("../shortcut/a.txt")
    assert read(room, "round") == b"text"


def test_a_path_longer_than_any_is_refused_without_repeating_it(room: Room) -> None:
    with pytest.raises(ToolError) as raised:
        where(room, "a" * 100_000)
    assert "begins with aaa" in str(raised.value)
    assert "has 100,000 bytes; at most 4095 go" in str(raised.value)
    assert len(str(raised.value)) < 300


def test_links_in_a_circle_end(room: Room) -> None:
    (room.workspace / "one").symlink_to("two")
    (room.workspace / "two").symlink_to("one")
    (room.workspace / "self").symlink_to(room.workspace / "self")
    for path in ("one", "self", "one/x"):
        with refusal("circle", status=Status.FAILED):
            where(room, path)


def test_a_directory_swapped_for_a_link_after_the_check_does_not_lead_out(room: Room) -> None:
    room.put("sub/a.txt", b"inside")
    (room.outside / "a.txt").write_bytes(b"outside")
    with resolve(room.desk.policy, "sub/a.txt", Access.WRITE) as place:
        (room.workspace / "sub").rename(room.workspace / "moved")
        (room.workspace / "sub").symlink_to(room.outside)
        fd = os.open(place.name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=place.parent)
        os.write(fd, b"changed")
        os.close(fd)
    assert (room.outside / "a.txt").read_bytes() == b"outside"


def test_outputs_are_read_under_their_mount_and_never_written(room: Room) -> None:
    (room.output / "c1.txt").write_bytes(b"long")
    assert read(room, f"{OUTPUT_MOUNT}/c1.txt") == b"long"
    assert where(room, f"{OUTPUT_MOUNT}/c1.txt", Access.READ).shown == f"{OUTPUT_MOUNT}/c1.txt"
    with refusal("read, not written"):
        where(room, f"{OUTPUT_MOUNT}/c1.txt")
    with refusal("may not be written"):
        where(room, str(room.output / "c1.txt"))
    with refusal("may not be read"):
        where(room, f"{OUTPUT_MOUNT}/../x", Access.READ)


def test_the_private_tmp_is_read_and_written_and_what_commands_may_read_is_not(room: Room) -> None:
    (room.outside / "header.h").write_bytes(b"int x;")
    room.confine(readable=(str(room.outside),), writable=(str(room.outside / "w"),))
    assert where(room, str(room.tmp / "new")).shown == str(room.tmp / "new")
    with refusal("may not be read"):
        where(room, str(room.outside / "header.h"), Access.READ)
    with refusal("no such", status=Status.FAILED):
        where(room, str(room.outside / "w" / "x"), Access.READ)


def test_read_only_refuses_writes_and_unconfined_allows_any_path(room: Room) -> None:
    room.confine(mode=Mode.READ_ONLY)
    with refusal("read-only"):
        where(room, "a.txt")
    assert where(room, "a.txt", Access.READ).status is None
    room.confine(mode=Mode.UNCONFINED)
    (room.outside / "victim").write_bytes(b"x")
    assert where(room, str(room.outside / "victim")).shown == str(room.outside / "victim")
    assert where(room, "/").shown == "/"


def test_missing_parents_are_made_only_where_that_is_wanted(room: Room) -> None:
    with refusal("no such", status=Status.FAILED):
        where(room, "a/b/c.txt")
    assert os.listdir(room.workspace) == []
    where(room, "a/b/c.txt", make_parents=True)
    assert (room.workspace / "a" / "b").is_dir()
    room.put("file", b"")
    with refusal("not a directory", status=Status.FAILED):
        where(room, "file/x", make_parents=True)


@pytest.mark.parametrize(
    ("path", "words"),
    [("", "empty"), ("a\0b", "NUL"), ("n" * 300, "too long"), ("\ud800", "no valid text")],
)
def test_a_path_that_can_be_none_is_refused_with_the_reason(room: Room, path: str, words: str) -> None:
    with refusal(words, status=Status.FAILED):
        where(room, path)


def test_a_tilde_is_no_home_and_never_becomes_a_directory_of_that_name(room: Room) -> None:
    for path in ("~", "~/notes.txt"):
        for access in Access:
            with refusal("`~` stands for no directory here", status=Status.FAILED):
                where(room, path, access, make_parents=True)
    assert os.listdir(room.workspace) == []
    assert where(room, "~backup").name == b"~backup"
    room.put("~/notes.txt", b"really there")
    assert read(room, "~/notes.txt") == b"really there"


def test_what_ends_in_a_slash_is_not_written_as_a_file(room: Room) -> None:
    with refusal("names a directory", status=Status.FAILED):
        where(room, "a/b/", make_parents=True)
    assert os.listdir(room.workspace) == []


def test_a_refusal_names_the_session_s_places_and_nothing_of_the_system(room: Room) -> None:
    room.confine(readable=tuple(f"/usr/place-{number}" for number in range(200)))
    with pytest.raises(ToolError) as caught:
        where(room, "/etc/shadow", Access.READ)
    told = str(caught.value)
    assert all(place in told for place in (str(room.workspace), str(room.tmp), OUTPUT_MOUNT))
    assert "/usr/place" not in told


def test_a_quoted_name_is_understood_and_a_literal_one_wins(room: Room) -> None:
    odd = os.fsencode(room.workspace) + b"/bad\xff\n.txt"
    with open(odd, "wb") as file:
        file.write(b"odd")
    assert read(room, '"bad\\xff\\n.txt"') == b"odd"
    assert where(room, '"new\\n"').name == b"new\n"
    room.put('"new\\n"', b"literal")
    assert where(room, '"new\\n"').name == b'"new\\n"'
    with refusal("passwd"):
        where(room, '"/etc/passwd"')


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EPERM, "permission denied"),
        (errno.EIO, "input/output error"),
    ],
)
def test_an_error_of_the_system_is_said_with_the_path(number: int, words: str) -> None:
    with refusal(f"a.txt: {words}", status=Status.FAILED), in_words("a.txt"):
        raise OSError(number, os.strerror(number))


def test_a_path_is_named_relative_to_the_workspace_or_whole(room: Room) -> None:
    policy = SandboxPolicy("/ws")
    assert named(policy, b"/ws/a") == b"a"
    assert named(policy, b"/ws") == b"."
    assert named(policy, b"/wsx/a") == b"/wsx/a"
