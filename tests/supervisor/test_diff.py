"""A unified diff as a person reads it."""

import difflib
import re

from hypothesis import given
from hypothesis import strategies as st

from supervisor.screen.diff import drawn, numbered
from supervisor.screen.tones import Terminal

PLAIN = Terminal(coloured=False, moves=False)
COLOURED = Terminal(coloured=True, moves=True)

EDIT = """--- a/x.py
+++ b/x.py
@@ -9,3 +9,4 @@ def f():
 nine
-ten
+TEN
+ten and a half
 eleven
@@ -40 +41 @@
-forty
+FORTY
\\ No newline at end of file
"""


def test_lines_carry_the_number_they_have_in_their_file() -> None:
    assert list(numbered(EDIT)) == [
        (9, " ", "nine"),
        (10, "-", "ten"),
        (10, "+", "TEN"),
        (11, "+", "ten and a half"),
        (12, " ", "eleven"),
        (None, "@", "…"),
        (40, "-", "forty"),
        (41, "+", "FORTY"),
        (None, "@", "No newline at end of file"),
    ]


def test_it_is_drawn_with_a_gutter() -> None:
    assert drawn(EDIT, PLAIN, "  ", None)[:3] == ["   9   nine", "  10 - ten", "  10 + TEN"]


def test_a_long_one_is_folded_and_says_so() -> None:
    assert drawn(EDIT, PLAIN, "", 2) == [" 9   nine", "10 - ten", "… 7 more lines"]
    assert len(drawn(EDIT, PLAIN, "", 8)) == 9  # one line more is shown, not announced


def test_added_removed_and_kept_lines_have_colours_of_their_own() -> None:
    lines = drawn(EDIT, COLOURED, "", None)
    colours = {re.findall(r"\x1b\[([0-9;]+)m", line)[2] for line in lines[:3]}
    assert len(colours) == 3


def test_what_is_no_diff_is_shown_as_it_is() -> None:
    assert list(numbered("a new file\n--- a rule\n")) == [(None, " ", "a new file")]
    assert drawn("", PLAIN, "", None) == []


LINES = st.lists(st.sampled_from(["a", "b", "-c", "+d", "@@ e", "\\ f", ""]), max_size=12)


@given(LINES, LINES)
def test_every_number_points_to_its_line(old: list[str], new: list[str]) -> None:
    diff = "\n".join(difflib.unified_diff(old, new, "a/x", "b/x", n=2, lineterm=""))
    for number, mark, text in numbered(diff):
        if mark == "@":
            continue
        assert number is not None
        assert (old if mark == "-" else new)[number - 1] == text
