import os
import re
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from protocol.policy import OUTPUT_MOUNT, Limits
from protocol.tools.search import Search
from protocol.wire import Status
from tests.worker.desk import Room
from tests.worker.ordinary import as_ordinary_user
from tests.worker.trees import KEPT, ODD_NAMES, ignoring, loops_and_a_locked_directory, odd_names
from worker.call import Outcome, ToolError
from worker.files import ripgrep
from worker.files.names import shown
from worker.tools.search import run, run_with

Find = Callable[..., Outcome]


@pytest.fixture(params=["ripgrep", "plain"])
def find(request: pytest.FixtureRequest, room: Room) -> Find:
    """A search by one of the two ways; both must say the same."""
    return finder(room, request.param)


def finder(room: Room, way: str) -> Find:
    rg = None
    if way == "ripgrep":
        rg = ripgrep.program()
        if rg is None:
            pytest.skip("ripgrep is not installed here")

    def found(pattern: str, path: str = ".", glob: str | None = None, limit: int = 200) -> Outcome:
        return run_with(rg, Search(pattern, path, glob, limit), room.call)

    return found


def test_lines_come_with_path_and_number_in_order(room: Room, find: Find) -> None:
    room.put("b/x.txt", b"one\nneedle 2\r\nthree needle\n")
    room.put("a.txt", b"\xef\xbb\xbfneedle first\n")
    room.put("b.txt", b"a needle without an end")
    outcome = find("need.e")
    assert outcome.text.split("\n") == [
        "a.txt:1:needle first",
        "b/x.txt:2:needle 2",
        "b/x.txt:3:three needle",
        "b.txt:1:a needle without an end",
    ]
    assert outcome.display.summary == "4 matching lines in 3 files"
    assert find("^needle", "b").text == "b/x.txt:2:needle 2"
    assert find("nothing at all").text == "[no matches]"


def test_the_end_of_a_line_is_found_before_crlf_too(room: Room, find: Find) -> None:
    room.put("crlf.txt", b"the needle\r\nneedle first\r\n")
    room.put("lf.txt", b"a needle\n")
    assert find("needle$").text == "crlf.txt:1:the needle\nlf.txt:1:a needle"
    assert find("needle$", "crlf.txt").text == "crlf.txt:1:the needle"


def test_a_pattern_that_looks_like_an_option_or_holds_a_nul_is_only_a_pattern(room: Room, find: Find) -> None:
    room.put("a.txt", b"-needle --files\n")
    assert find("-needle").text == find("--files").text == "a.txt:1:-needle --files"
    with pytest.raises(ToolError, match="NUL"):
        find("a\0b")


def test_a_glob_that_leads_elsewhere_is_not_answered_by_no_matches_alone(room: Room, find: Find) -> None:
    room.put("a.txt", b"needle\n")
    text = find("needle", glob=f"{room.workspace}/*.txt").text
    assert text.startswith("[no matches; the glob ")
    assert "begins at `path`, not at /" in text
    assert find("needle", glob="/*.txt").text == "a.txt:1:needle"
    with pytest.raises(ToolError, match="leads upwards"):
        find("needle", glob="../*.txt")


def test_gitignore_is_respected_at_every_level(room: Room, find: Find) -> None:
    ignoring(room.workspace)
    named = [line.partition(":")[0] for line in find("needle").text.split("\n")]
    assert named == [name for name in KEPT if not name.endswith(".gitignore")]
    assert find("needle", "sub").text.count("\n") == 1
    assert find("needle", "node_modules").text == "node_modules/m/index.js:1:needle module"
    assert find("needle", "a.log").text == "a.log:1:needle log"


def test_a_glob_narrows_the_search_and_does_not_bring_back_what_is_ignored(room: Room, find: Find) -> None:
    ignoring(room.workspace)
    assert find("needle", glob="*.py").text == "a.py:1:needle a\nsub/build/in.py:1:needle in"
    assert find("needle", glob="*.log").text == "keep.log:1:needle keep\nsub/special.log:1:needle special"
    assert find("needle", glob="sub/**/*.py").text == "sub/build/in.py:1:needle in"
    assert find("needle", glob="./*.{py,log}").text == "a.py:1:needle a\nkeep.log:1:needle keep"
    with pytest.raises(ToolError, match="malformed"):
        find("needle", glob="{")


def test_a_long_line_is_shown_as_a_window_with_its_column(room: Room, find: Find) -> None:
    room.put("big.js", b"var a=1;" * 125_000 + b"needle" + b"var b=2;" * 125_000)
    room.put("odd.txt", "ä".encode() * 500 + b" needle " + "ö".encode() * 500)
    room.put("wide.txt", "ä".encode() * 500 + b"needle" + "ö".encode() * 500)
    text = find("needle").text
    assert len(text) < 2000
    first, odd, second = text.split("\n")
    assert first.startswith("big.js:1:[column 1000001, 1999700 of 2000006 bytes left out] …")
    assert ";needlevar" in first
    assert odd.startswith("odd.txt:1:[column 502, ")
    assert "\N{REPLACEMENT CHARACTER}" not in odd
    assert second.startswith("wide.txt:1:[column 501, ")
    assert "\N{REPLACEMENT CHARACTER}" not in second
    assert len(find("v.*;", "big.js").text) < 1000


def test_a_search_skips_what_is_no_file_and_links(room: Room, find: Find) -> None:
    os.mkfifo(room.workspace / "pipe")
    (room.workspace / "link_to_pipe").symlink_to("pipe")
    (room.workspace / "zero").symlink_to("/dev/zero")
    (room.outside / "secret").write_bytes(b"needle\n")
    (room.workspace / "out").symlink_to(room.outside)
    room.put("plain.txt", b"needle\n")
    started = time.monotonic()
    assert find("needle").text == "plain.txt:1:needle"
    assert time.monotonic() - started < 1
    for path, words in [
        ("pipe", "a FIFO"),
        ("link_to_pipe", "a FIFO"),
        ("zero", "/dev/zero"),
        ("out", "outside"),
    ]:
        with pytest.raises(ToolError, match=words):
            find("needle", path)


def test_binary_files_are_passed_over(room: Room, find: Find) -> None:
    room.put("a.bin", b"needle\n\0\0needle\n")
    assert find("needle").text == "[no matches]"
    with pytest.raises(ToolError, match="binary"):
        find("needle", "a.bin")


def test_odd_names_are_searched_and_shown_unambiguously(room: Room, find: Find) -> None:
    odd_names(room.workspace)
    lines = find("needle").text.split("\n")
    assert sorted(lines) == sorted(f"{shown(name)}:1:needle" for name in ODD_NAMES)
    for name in ODD_NAMES:
        assert find("needle", shown(name)).text == f"{shown(name)}:1:needle"


@pytest.mark.parametrize("way", ["ripgrep", "plain"])
def test_an_unreadable_file_is_named(ordinary_room: Room, way: str) -> None:
    find = finder(ordinary_room, way)

    def work() -> str:
        ordinary_room.put("sub/secret.txt", b"needle\n").chmod(0)
        return find("needle").text + "\n" + find("needle", "sub").text

    told = "[no matches in what could be read; not read: sub/secret.txt (permission denied)]"
    assert as_ordinary_user(work).split("\n") == [told, told]


@pytest.mark.parametrize("way", ["ripgrep", "plain"])
def test_an_unreadable_directory_is_named_and_never_called_empty(ordinary_room: Room, way: str) -> None:
    find = finder(ordinary_room, way)

    def work() -> str:
        loops_and_a_locked_directory(ordinary_room.workspace)
        told = find("needle", "t").text + "\n" + find("nothing", "t").text
        (ordinary_room.workspace / "t" / "locked").chmod(0o755)
        return told

    assert as_ordinary_user(work).split("\n") == [
        "t/sub/a.md:1:x needle",
        "[not read: t/locked (permission denied)]",
        "[no matches in what could be read; not read: t/locked (permission denied)]",
    ]


def test_a_search_stops_at_its_limit_and_at_the_cap(room: Room, find: Find) -> None:
    room.put("a", b"needle\n" * 5)
    assert find("needle", limit=5).text.count("needle") == 5
    assert "more" not in find("needle", limit=5).text
    assert find("needle", limit=4).text.endswith(
        "a:4:needle\n[stopped at limit=4; there are more matching lines]"
    )
    room.put("b", b"needle and more\n" * 50_000)
    room.change(limits=Limits(result_cap_bytes=3000))
    outcome = find("needle", limit=100_000)
    assert len(outcome.text.encode()) <= 3000
    assert "the result is full" in outcome.text


def test_a_pattern_is_no_option_and_a_wrong_one_is_explained(room: Room, find: Find) -> None:
    room.put("a", b"--files\n")
    assert find("--files").text == "a:1:--files"
    for pattern, words in [("(", "regular expression|regex"), ("a\nb", r"line break|\\n"), ("", "empty")]:
        with pytest.raises(ToolError, match=words):
            find(pattern)
        with pytest.raises(ToolError):
            find(pattern, "a")


def test_lines_of_other_encodings_are_found(room: Room, find: Find) -> None:
    room.put("latin", b"r\xe9sum\xe9 needle\n")
    assert find("needle").text == "latin:1:r\N{REPLACEMENT CHARACTER}sum\N{REPLACEMENT CHARACTER} needle"


def test_a_cancelled_search_ends_soon_and_leaves_no_process(room: Room, find: Find) -> None:
    room.put("a", b"some text that goes on\n" * 2_000_000)
    started = threading.Event()
    outcomes: list[Outcome] = []
    ended: list[float] = []

    def work() -> None:
        started.set()
        outcomes.append(find("n[aeiou]+thing that is (not|never) here$"))
        ended.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(5)
    room.cancelled.set()
    cancelled = time.monotonic()
    thread.join(5)
    assert ended[0] - cancelled < 0.5
    assert outcomes[0].status is Status.CANCELLED
    assert "cancelled" in outcomes[0].text
    children = subprocess.run(
        ["ps", "-o", "comm=", "--ppid", str(os.getpid())], capture_output=True, check=False
    )
    assert b"rg" not in children.stdout.split()


def test_the_environment_and_a_program_in_the_workspace_change_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.put("a", b"needle\n")
    room.put("config", b"--files\n")
    room.put("rg", b"#!/bin/sh\ntouch ran\n").chmod(0o755)
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(room.workspace / "config"))
    monkeypatch.setenv("PATH", str(room.workspace))
    assert run(Search("needle"), room.call).text == "a:1:needle"
    assert not (room.workspace / "ran").exists()


def test_a_program_that_may_not_run_leaves_the_plain_way(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.put("a", b"needle\n")
    monkeypatch.setattr("sys.executable", str(room.workspace / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(room.workspace))
    assert ripgrep.program() is None
    assert run(Search("needle"), room.call).text == "a:1:needle"
    room.put("rg", b"not a program").chmod(0o755)
    assert run(Search("needle"), room.call).text == "a:1:needle"


def test_a_whole_output_is_searched_under_the_name_that_results_give(room: Room, find: Find) -> None:
    (room.output / "c1.txt").write_bytes(b"needle\n")
    assert find("needle", OUTPUT_MOUNT).text == f"{OUTPUT_MOUNT}/c1.txt:1:needle"
    assert find("needle", f"{OUTPUT_MOUNT}/c1.txt").text == f"{OUTPUT_MOUNT}/c1.txt:1:needle"


def test_a_message_that_is_too_long_is_dropped_and_counted() -> None:
    splitter = ripgrep._Splitter(most=10)
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.feed(b"o\nmuch too ") == [b"two"]
    assert splitter.feed(b"long to be") == []
    assert splitter.feed(b" kept") == []
    assert splitter.feed(b"!\nthree\n") == [b"three"]
    assert splitter.dropped == 1


def test_a_missing_path_is_named(room: Room, find: Find) -> None:
    with pytest.raises(ToolError, match="missing: no such file"):
        find("needle", "missing")


def test_a_directory_outside_of_the_workspace_is_named_whole(room: Room, find: Find) -> None:
    (room.tmp / "a").write_bytes(b"needle\n")
    assert find("needle", str(room.tmp)).text == f"{room.tmp}/a:1:needle"
    assert find("needle", str(room.tmp / "a")).text == f"{room.tmp}/a:1:needle"


def test_a_long_pattern_is_not_repeated_in_the_words_about_it(find: Find) -> None:
    with pytest.raises(ToolError) as raised:
        find("(" + "x" * 50_000)
    assert re.search("unclosed group|unterminated subpattern", str(raised.value))
    assert len(str(raised.value)) < 700
