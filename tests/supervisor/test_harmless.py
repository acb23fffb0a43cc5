"""Text from outside on a terminal: no control character gets through, and no encoding makes it fail."""

import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.harmless import for_stream, harmless, harmless_line

EVIL = (
    b"A\x1b]52;c;bWFya2Vy\x07B\x1b]0;title\x07C\x1b]8;;http://example.invalid/\x1b\\link\x1b]8;;\x1b\\"
    b"D\x1bP+q544e\x1b\\E\x1b[6nF\x1b[2J\x1b[10AG\x9b31mH\x9d52;c;bWFya2Vy\x9cI\x1bcJ\x1b[?1049hK\x08\x08L\r"
    b"M\x1b]52;c;unterminated"
)
"""Clipboard, title, link, device queries, clearing, C1 sequences, reset, backspaces, an open sequence."""


def controls(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t"}


def test_every_sequence_of_an_evil_output_becomes_visible() -> None:
    shown = harmless(EVIL.decode("latin-1"))
    assert controls(shown) == set()
    assert shown.startswith("A^[]52;c;bWFya2Vy^GB^[]0;title^GC")
    assert "G\\x9b31mH" in shown
    assert "K^H^HL^MM" in shown


def test_a_name_that_is_turned_round_by_bidi_overrides_is_shown_as_it_is() -> None:
    assert harmless("z \u202egnp.exe\u202c \u2066x\u2069") == "z \\u202egnp.exe\\u202c \\u2066x\\u2069"


def test_lone_surrogates_and_delete_are_shown() -> None:
    assert harmless("caf\udce9\x7f\u2028") == "caf\\udce9^?\\u2028"


def test_ordinary_text_in_any_script_stays_as_it_is() -> None:
    text = "naïve 漢字 кириллица עברית 👩‍👩‍👧 \ttab\nnext"
    assert harmless(text) == text


def test_a_line_has_neither_newline_nor_tab() -> None:
    assert harmless_line("a\nb\tc\x1b") == "a^Jb^Ic^["


@given(st.text(st.characters()))
def test_nothing_but_newline_and_tab_gets_through(text: str) -> None:
    assert controls(harmless(text)) == set()
    assert not {"\n", "\t"} & set(harmless_line(text))


@given(st.text(st.sampled_from("\x1b[]2J;\x9b\u202ea\n"), max_size=20), st.integers(0, 20))
def test_a_sequence_that_is_split_over_two_deltas_is_shown_the_same(text: str, at: int) -> None:
    assert harmless(text[:at]) + harmless(text[at:]) == harmless(text)


LINES = "█─ ✅ 漢字 café …"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", LINES),
        ("ascii", "#- ? ?? caf? ..."),
        ("cp1252", "#- ? ?? café …"),
        ("latin-1", "#- ? ?? café ..."),
        (None, "#- ? ?? caf? ..."),
        ("no-such-encoding", "#- ? ?? caf? ..."),
    ],
)
def test_what_an_encoding_lacks_is_degraded(encoding: str | None, shown: str) -> None:
    assert for_stream(LINES, encoding) == shown


@given(st.text(st.characters()), st.sampled_from(["ascii", "cp1252", "cp936", "utf-8", "koi8-r"]))
def test_degraded_text_can_always_be_written(text: str, encoding: str) -> None:
    for_stream(text, encoding).encode(encoding)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_process_in_a_narrow_locale_prints_without_an_error(encoding: str) -> None:
    program = (
        "import sys; from supervisor.harmless import for_stream, harmless;"
        f"print(for_stream(harmless({LINES!a} + chr(0xdce9)), sys.stdout.encoding))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.decode(encoding) == for_stream(LINES, encoding) + "\\udce9\n"
    assert done.stderr == b""
