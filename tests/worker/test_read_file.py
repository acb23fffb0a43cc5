import os
import socket
import time
import tracemalloc
from pathlib import Path

import pytest

from protocol.policy import OUTPUT_MOUNT, Limits, Mode
from protocol.tools.read_file import ReadFile
from protocol.wire import Status
from tests.worker.desk import Room
from tests.worker.ordinary import as_ordinary_user
from worker.call import Outcome, ToolError
from worker.files.paths import Access, resolve
from worker.files.regular import kind, open_regular
from worker.tools.read_file import run


def read(
    room: Room, path: str, offset: int = 1, limit: int | None = None, byte: int | None = None
) -> Outcome:
    return run(ReadFile(path, offset, limit, byte), room.call)


def refused(room: Room, path: str, offset: int = 1, byte: int | None = None) -> str:
    with pytest.raises(ToolError) as caught:
        read(room, path, offset, byte=byte)
    return str(caught.value)


def test_lines_come_numbered_with_their_own_tabs(room: Room) -> None:
    room.put("Makefile", b"all:\n\t@echo one\n\t@echo two\n")
    outcome = read(room, "Makefile")
    assert outcome.text == "1\tall:\n2\t\t@echo one\n3\t\t@echo two"
    assert outcome.display.summary == "read 3 lines"
    assert outcome.status is Status.DONE


def test_a_range_is_named_with_the_way_on(room: Room) -> None:
    room.put("a", b"".join(b"line %d\n" % number for number in range(1, 121)))
    outcome = read(room, "a", 11, 2)
    assert outcome.text == "11\tline 11\n12\tline 12\n[lines 11-12 of 120; go on with offset=13]"
    assert outcome.display.summary == "read 2 of 120 lines"
    assert read(room, "a", 119).text.endswith("120\tline 120\n[lines 119-120 of 120]")
    assert read(room, "a", 1, 500).text.endswith("120\tline 120")


def test_an_offset_behind_the_end_says_how_long_the_file_is(room: Room) -> None:
    room.put("a", b"one\ntwo")
    assert "has 2 lines; offset=3" in refused(room, "a", 3)
    assert "has 2 lines; offset=30" in refused(room, "a", 30)
    assert "has 7 bytes; byte_offset=7" in refused(room, "a", byte=7)
    room.put("b", b"one\n")
    assert "has 1 line; offset=2" in refused(room, "b", 2)


def test_what_cannot_be_seen_in_the_lines_is_told_below_them(room: Room) -> None:
    room.put("crlf", b"\xef\xbb\xbfone\r\ntwo\r\n")
    text = read(room, "crlf").text
    assert (
        text
        == "1\tone\n2\ttwo\n[the lines end in CRLF; the file starts with a byte order mark, which edits keep]"
    )
    room.put("mixed", b"one\r\ntwo\nthree")
    assert "[1 lines end in CRLF, 1 in LF; no line break at the end]" in read(room, "mixed").text
    room.put("latin", b"fine\nr\xe9sum\xe9\n")
    text = read(room, "latin").text
    assert "2\tr\N{REPLACEMENT CHARACTER}sum\N{REPLACEMENT CHARACTER}" in text
    assert "from line 2 on some bytes are not UTF-8" in text


def test_an_empty_file_says_so(room: Room) -> None:
    room.put("empty", b"")
    assert read(room, "empty").text == "[the file is empty]"
    assert "behind the end" in refused(room, "empty", byte=0)


def test_binary_and_wide_files_are_named_and_not_dumped(room: Room) -> None:
    room.put("a.out", b"\x7fELF\0\0\1")
    assert "binary (a NUL byte at 4); it has 7 bytes" in refused(room, "a.out")
    room.put("wide", "text".encode("utf-16"))
    assert "UTF-16 (little endian)" in refused(room, "wide")


def test_a_long_result_stops_at_the_cap_and_says_where_to_go_on(room: Room) -> None:
    room.change(limits=Limits(result_cap_bytes=4000))
    lines = [b"%d %s\n" % (number, b"x" * 90) for number in range(1, 101)]
    room.put("a", b"".join(lines))
    seen: list[str] = []
    offset = 1
    while True:
        outcome = read(room, "a", offset)
        assert len(outcome.text.encode()) <= 4000
        *rows, note = outcome.text.split("\n")
        seen += [row.partition("\t")[2] for row in rows]
        if "go on" not in note:
            break
        offset = int(note.rpartition("offset=")[2].rstrip("]"))
    assert "".join(f"{row}\n" for row in seen).encode() == b"".join(lines)


def test_a_two_megabyte_line_is_cut_and_can_be_read_on_by_bytes(room: Room) -> None:
    data = b"var a=1;" * 125_000 + "é needle ü".encode() + b"var b=2;" * 125_000
    room.put("big.js", data)
    outcome = read(room, "big.js")
    assert len(outcome.text.encode()) <= room.desk.limits.result_cap_bytes
    assert "line 1 is cut" in outcome.text
    assert outcome.display.summary == "read 1 line"
    got = bytearray(outcome.text.partition("\n[")[0].removeprefix("1\t").encode())
    assert f"byte_offset={len(got)}" in outcome.text
    while len(got) < len(data):
        part = read(room, "big.js", byte=len(got)).text
        assert len(part.encode()) <= room.desk.limits.result_cap_bytes
        got += part.rpartition("\n[")[0].encode()
    assert got == data
    assert read(room, "big.js", byte=data.index(b"needle") - 2).text.startswith(" needle")


def test_a_long_line_among_others_lets_the_next_ones_be_read(room: Room) -> None:
    room.put("a", b"first\n" + b"x" * 100_000 + b"\nlast\n")
    text = read(room, "a").text
    assert text.startswith("1\tfirst\n2\txxx")
    assert "after it with offset=3" in text
    assert read(room, "a", 3).text == "3\tlast\n[lines 3-3 of 3]"
    assert (
        read(room, "a", 1, byte=0, limit=1).text == "first\n[bytes 0-6 of 100012; go on with byte_offset=6]"
    )


@pytest.mark.parametrize(
    "data", [b"\xe9" * 50_000, b"a\0" * 50_000, b"\x80" * 50_000, "\U0001f600".encode() * 20_000]
)
def test_the_cap_holds_for_bytes_that_are_shown_longer_than_they_are(room: Room, data: bytes) -> None:
    cap = room.desk.limits.result_cap_bytes
    room.put("a", b"text\n" * 2000 + data)
    first = read(room, "a", 2001).text
    assert cap // 2 < len(first.encode()) <= cap
    assert cap // 2 < len(read(room, "a", byte=10_000).text.encode()) <= cap
    assert len(read(room, "a").text.encode()) <= cap


@pytest.mark.parametrize("cap", [100, 500, 3000])
def test_a_small_cap_holds_too(room: Room, cap: int) -> None:
    room.change(limits=Limits(result_cap_bytes=cap))
    room.put("a", b"some line\r\n" * 1000 + b"r\xe9")
    assert len(read(room, "a", 995).text.encode()) <= cap
    assert "995\tsome line" in read(room, "a", 995).text


def test_a_long_line_is_left_for_the_next_call_where_little_room_is_left(room: Room) -> None:
    room.change(limits=Limits(result_cap_bytes=4000))
    room.put("a", b"x" * 2500 + b"\n" + b"y" * 2500 + b"\nend\n")
    assert "go on with offset=2" in read(room, "a").text
    assert "y" not in read(room, "a").text


def test_memory_stays_flat_on_a_huge_sparse_file(room: Room) -> None:
    path = room.put("sparse", b"first line\n" * 1000)
    os.truncate(path, 500_000_000)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    started = time.monotonic()
    tracemalloc.start()
    try:
        text = read(room, "sparse", 999).text
        by_bytes = read(room, "sparse", byte=10_990).text
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text.startswith("999\tfirst line\n1000\tfirst line\n1001\t<")
    assert "NUL bytes are shown as their number" in text
    assert "NUL>" in by_bytes
    assert peak < 8_000_000
    assert time.monotonic() - started < 5


def test_what_is_no_regular_file_is_refused_at_once_by_its_kind(room: Room) -> None:
    os.mkfifo(room.workspace / "pipe")
    (room.workspace / "link_to_pipe").symlink_to("pipe")
    (room.workspace / "zero").symlink_to("/dev/zero")
    (room.workspace / "sub").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(room.workspace)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        assert "a socket" in refused(room, "socket")
    assert "a FIFO" in refused(room, "pipe")
    assert "pipe is a FIFO" in refused(room, "link_to_pipe")
    assert "a directory" in refused(room, "sub")
    assert "/dev/zero" in refused(room, "zero")
    for path in ("/dev/stdin", "/proc/kmsg", "/dev/zero"):
        assert "may not be read" in refused(room, path)
    room.confine(mode=Mode.UNCONFINED)
    assert "a device" in refused(room, "zero")


def test_a_missing_file_names_those_that_look_like_it(room: Room) -> None:
    room.put("settings.toml", b"x")
    assert "no such file; there is: settings.toml" in refused(room, "setting.toml")
    assert refused(room, "quite-another").endswith("no such file")


@pytest.mark.parametrize("swap", ["fifo", "link"])
def test_what_is_swapped_in_after_the_look_is_not_read_and_never_blocks(room: Room, swap: str) -> None:
    path = room.put("a", b"x")
    (room.outside / "secret").write_bytes(b"secret")
    with resolve(room.desk.policy, "a", Access.READ) as place:
        path.unlink()
        if swap == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to(room.outside / "secret")
        with pytest.raises(ToolError):
            open_regular(place)


@pytest.mark.parametrize(
    ("mode", "words"),
    [(0o040755, "a directory"), (0o120777, "a link"), (0o060600, "a device"), (0o100644, "a file")],
)
def test_a_kind_is_named_in_words(mode: int, words: str) -> None:
    assert kind(mode) == words


def test_the_lines_of_a_very_long_file_are_not_counted_for_a_glance(room: Room) -> None:
    room.put("a", b"line\n" * 5_000_000)
    outcome = read(room, "a", 1, 2)
    assert outcome.text == "1\tline\n2\tline\n[lines 1-2; go on with offset=3]"
    assert outcome.display.summary == "read 2 lines"


def test_permission_denied_is_said(room: Room, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = room.put("secret", b"x")
    path.chmod(0)
    for parent in (room.workspace, *room.workspace.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/") and not parent.stat().st_mode & 1:
            parent.chmod(0o755)
    assert "permission denied" in as_ordinary_user(lambda: refused(room, "secret"))


def test_a_cancelled_call_stops_reading(room: Room) -> None:
    room.put("a", b"x\n" * 10)
    room.cancelled.set()
    assert read(room, "a").status is Status.CANCELLED


def test_a_whole_output_is_read_under_the_name_that_results_give(room: Room) -> None:
    (room.output / "c7.txt").write_bytes(b"long output\n")
    assert read(room, f"{OUTPUT_MOUNT}/c7.txt").text == "1\tlong output"


def test_reading_a_small_file_is_fast(room: Room) -> None:
    room.put("a.py", b"line\n" * 100)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        read(room, "a.py")
        times.append(time.perf_counter() - started)
    assert min(times) < 0.001


def test_a_skip_over_many_chunks_finds_its_line(room: Room) -> None:
    room.put("a", b"".join(b"line %d\n" % number for number in range(1, 200_001)))
    assert read(room, "a", 150_000, 1).text.startswith("150000\tline 150000\n[lines 150000-150000 of 200000")
    assert "has 200000 lines" in refused(room, "a", 300_000)
