"""What is kept of a command's output: head and tail for the model, the raw bytes in a file, lines live."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.call import ToolError
from worker.output.capture import Capture
from worker.output.clip import Clip, cut
from worker.output.live import NEWEST, Live
from worker.output.record import Record
from worker.processes.verdict import verdict


@given(st.lists(st.text(alphabet="ab\nä漢😀", max_size=40), max_size=30), st.integers(8, 200))
def test_head_and_tail_are_a_quarter_and_the_rest_and_nothing_is_torn(parts: list[str], cap: int) -> None:
    clip = Clip(cap)
    for part in parts:
        clip.add(part)
    whole = "".join(parts)
    kept = clip.clipped()

    assert (
        clip.lines
        == len(whole.splitlines() if whole else [])
        == len(whole.split("\n")) - whole.endswith("\n") - (not whole)
    )
    if len(whole.encode()) <= cap:
        assert (kept.head, kept.left_out, kept.tail) == (whole, 0, "")
    else:
        head, tail = kept.head.encode(), kept.tail.encode()
        assert whole.startswith(kept.head)
        assert whole.endswith(kept.tail)
        assert len(head) <= cap // 4
        assert len(tail) <= cap - cap // 4
        assert len(head) + kept.left_out + len(tail) == len(whole.encode())


def test_the_cut_lies_between_lines_where_that_costs_little() -> None:
    clip = Clip(400)
    clip.add("".join(f"line {n:03}\n" for n in range(200)))
    kept = clip.clipped()

    assert kept.head.splitlines()[-1] == "line 010"
    assert kept.tail.startswith("line 167\n")
    assert kept.left_out == 200 * 9 - len(kept.head) - len(kept.tail)


def record(directory: Path, memory: int = 10, file_cap: int = 1000) -> Record:
    def open_file() -> tuple[str, int]:
        return "whole", os.open(directory / "whole", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    return Record(memory, file_cap, open_file, str(directory))


def test_without_a_file_and_without_room_nothing_is_kept() -> None:
    def no_file() -> tuple[str, int]:
        raise ToolError("the disk is full")

    kept = Record(0, 1000, no_file, "")
    for _ in range(3):
        kept.write(b"x" * 1000)
    assert kept.size == 3000
    assert kept.read(0, 10_000) == (3000, b"")


def test_a_long_text_is_cut_in_its_middle_and_that_is_said() -> None:
    assert cut("short", 5) == "short"
    text = cut("begin" + "x" * 1000 + "end", 100)
    assert text.startswith("beginx")
    assert "x\n[... 908 bytes left out here ...]\nx" in text
    assert text.endswith("xend")


def test_a_file_is_asked_for_only_when_the_bytes_outgrow_the_memory(tmp_path: Path) -> None:
    kept = record(tmp_path)
    kept.write(b"0123456789")
    assert (kept.file, kept.read(4, 3), list(tmp_path.iterdir())) == ("", (4, b"456"), [])

    kept.write(b"ab")
    kept.close()
    assert (kept.file, kept.size, kept.dropped) == ("whole", 12, 0)
    assert (tmp_path / "whole").read_bytes() == b"0123456789ab"
    assert kept.read(9, 100) == (9, b"9ab")


def test_above_the_file_cap_bytes_are_counted_and_named(tmp_path: Path) -> None:
    kept = record(tmp_path, file_cap=15)
    capture = Capture(kept, 10, lambda text: None)
    for _ in range(4):
        capture.write(b"12345678\n")
    capture.finish()
    kept.close()

    assert (tmp_path / "whole").stat().st_size == 15
    assert (kept.size, kept.dropped) == (36, 21)
    assert any(
        "the last 21 of 36 bytes are not in the file: the file is full" in note for note in capture.notes()
    )
    assert "/run/polier/output/whole" in capture.text()
    assert "$POLIER_OUTPUT/whole" in capture.text()


def test_a_full_disk_doesn_t_stop_the_command() -> None:
    full = Record(4, 1000, lambda: ("full", os.open("/dev/full", os.O_WRONLY)), "/dev")
    full.write(b"0123456789")
    full.write(b"more")
    full.close()

    assert full.dropped == full.size == 14
    assert "No space left" in full.why_no_file


def test_without_a_file_the_newest_bytes_are_kept() -> None:
    def refused() -> tuple[str, int]:
        raise ToolError("the disk is full")

    kept = Record(10, 1000, refused, "/nowhere")
    capture = Capture(kept, 40, lambda text: None)
    for n in range(100):
        capture.write(b"line %02d\n" % n)
    capture.finish()

    start, data = kept.read(0, 1000)
    assert (start + len(data), data.endswith(b"line 99\n")) == (800, True)
    assert 10 <= len(data) <= 20
    assert "no file holds the whole: the disk is full" in capture.text()


def test_an_output_file_that_is_gone_is_an_error_in_words(tmp_path: Path) -> None:
    kept = record(tmp_path)
    kept.spill()
    kept.close()
    (tmp_path / "whole").unlink()

    with pytest.raises(ToolError, match="No such file"):
        kept.read(0, 10)


def test_a_text_that_outgrows_its_bytes_still_gets_its_file(tmp_path: Path) -> None:
    kept = record(tmp_path, memory=400)
    capture = Capture(kept, 400, lambda text: None)
    capture.write(b"\xff" * 399)
    capture.finish()
    kept.close()

    assert "/run/polier/output/whole" in capture.text()
    assert (tmp_path / "whole").read_bytes() == b"\xff" * 399
    assert capture.notes() == ["[some bytes are not UTF-8: they are shown as \ufffd]"]


def test_the_preview_shows_the_first_and_last_lines(tmp_path: Path) -> None:
    capture = Capture(record(tmp_path, 9000), 9000, lambda text: None)
    capture.write(b"".join(b"%d\n" % n for n in range(100)) + b"w" * 500)
    capture.finish()

    lines = capture.preview().split("\n")
    assert lines[:7] == ["0", "1", "2", "3", "4", "5", "… 89 lines …"]
    assert lines[-2] == "99"
    assert len(lines[-1]) < 200


def test_live_text_is_merged_and_a_flood_is_left_out() -> None:
    said: list[str] = []
    live = Live(said.append)
    for n in range(20_000):
        live.add(b"\x1b[32mline %d\x1b[0m\n" % n)
    live.flush(now=True)

    assert len(said) < 50
    assert all(len(text) <= NEWEST for text in said)
    assert said[-1].endswith("line 19999\n")
    assert "\x1b" not in "".join(said)


def test_a_line_that_is_not_ended_is_said_too() -> None:
    said: list[str] = []
    live = Live(said.append)
    live.add(b"Password: ")
    live.add(b"")
    live.flush(now=True)
    live.flush(now=True)

    assert "".join(said) == "Password: "


@pytest.mark.parametrize(
    ("code", "words", "killed"),
    [
        (0, "exit code 0", False),
        (7, "exit code 7", False),
        (124, "exit code 124", False),
        (128, "exit code 128", False),
        (141, "exit code 141", False),
        (255, "exit code 255", False),
        (-9, "killed by SIGKILL (137)", True),
        (-33, "killed by signal 33 (161)", True),
        (137, "exit code 137: a command in it was killed by SIGKILL (137)", True),
        (139, "exit code 139: a command in it was killed by SIGSEGV (139)", True),
    ],
)
def test_an_exit_code_and_a_signal_are_told_apart(code: int, words: str, killed: bool) -> None:
    assert (verdict(code).words, verdict(code).killed) == (words, killed)
