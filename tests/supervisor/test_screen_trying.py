"""/try on a real terminal: what the command did is shown, and one key applies or discards it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.screen.diff import numbered
from tests.supervisor.terminal import Terminal

KEYS = "[a]pply  [d]iscard  (Esc: discard)"


@pytest.fixture
def repl(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal("tests.supervisor.repl_stage", ["plain", "preview", str(tmp_path)], columns=80) as terminal:
        terminal.wait_for("You 1 ❯ 0%", "sandbox: landlock")
        yield terminal


def test_what_it_did_is_shown_and_a_key_applies_it(repl: Terminal) -> None:
    repl.send("/try make\r")
    screen = repl.wait_for(KEYS)
    for words in (
        "│ make",
        "a dry run is over: 2 created",
        "created: file 1, 3 bytes",
        "changed: ev^[[2Kil",
        "src/a.py  changed +1 -1",
        "- two",
        "+ TWO^[[2K",
        "+ = no heading",
    ):
        assert words in screen
    repl.send("a")
    repl.wait_for("the answer was once", "You 1 ❯")


def test_it_is_discarded_with_words(repl: Terminal) -> None:
    repl.send("/try make\r")
    repl.wait_for(KEYS)
    repl.send("d")
    repl.wait_for("discard; words for the model (Enter: none)")
    repl.send("keep it\r")
    repl.wait_for("the answer was no 'keep it'", "You 1 ❯")


def test_one_s_own_wants_no_words_and_what_the_diff_says_is_said_once(repl: Terminal) -> None:
    repl.send("/try mine\r")
    screen = repl.wait_for(KEYS)
    assert "Your dry run:" in screen
    assert "created: file 1, 3 bytes" in screen
    assert "created: file 0" not in screen
    repl.send("d")
    repl.wait_for("the answer was no ''", "You 1 ❯")


def test_escape_discards_and_a_long_one_is_shown_whole(repl: Terminal) -> None:
    repl.send("/try many\r")
    screen = repl.wait_for("[a]pply  [d]iscard  [w]hole  (Esc: discard)")
    assert "file 59" not in screen
    repl.send("w")
    repl.wait_for("file 59")
    repl.send("\x1b")
    repl.wait_for("the answer was no", "You 1 ❯")


def test_ctrl_c_ends_it_and_a_command_is_wanted(repl: Terminal) -> None:
    repl.send("/try\r")
    repl.wait_for("/try needs a command")
    repl.send("/try full\r")
    repl.wait_for("the disk is full; nothing was written")
    repl.send("/try forever\r")
    repl.wait_for("/try forever")
    repl.send("\x03")
    repl.wait_for("[interrupted]", "You 1 ❯")


def test_a_heading_ends_a_hunk_and_a_line_of_a_file_is_none() -> None:
    text = "= a  changed\n@@ -1 +1 @@\n-= x\n+= y\n= b  created\n@@ -0,0 +5 @@\n+z"
    assert list(numbered(text)) == [
        (None, "@", "a  changed"),
        (1, "-", "= x"),
        (1, "+", "= y"),
        (None, "@", "b  created"),
        (5, "+", "z"),
    ]
