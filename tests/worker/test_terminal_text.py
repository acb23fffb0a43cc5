"""Raw output becomes what a terminal would finally show, however its bytes are split."""

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.output.terminal_text import ROW_CHARS, ROWS, TerminalText, shown

PIECES = [
    *(
        "a",
        "bc",
        "x" * 30,
        "word ",
        "ä",
        "漢",
        "\t",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        "\b",
        "\b\b\b",
        "\x07",
        "\0",
    ),
    *(
        "\x0c",
        "\x1b[K",
        "\x1b[1K",
        "\x1b[2K",
        "\x1b[A",
        "\x1b[3A",
        "\x1b[2B",
        "\x1b[4C",
        "\x1b[2D",
        "\x1b[5G",
    ),
    *("\x1b[E", "\x1b[2F", "\x1b[J", "\x1b[2J", "\x1b[H", "\x1bc", "\x1b[31;1m", "\x1b[0m", "\x1b[?25l"),
    *("\x1b]0;title\x07", "\x1b]8;;u\x1b\\", "\x1bP1q\x1b\\", "\x1b(B", "\x1b7", "\x1b", "\x1b[", "\x1b]"),
    *("\x1b]0;torn\x1b[1m", "\x1b[12", "z" * ROW_CHARS, "l\n" * (ROWS + 3), "\ufffd"),
]
pieces = st.sampled_from(PIECES).map(str.encode) | st.binary(max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.lists(pieces, max_size=30), st.lists(st.integers(0, 400), max_size=8))
def test_the_text_is_the_same_however_the_bytes_are_split(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(parts)
    split, text, last = TerminalText(), "", 0
    for cut in [*sorted(cut for cut in cuts if cut < len(whole)), len(whole)]:
        text += split.feed(whole[last:cut])
        last = cut
    text += split.finish()

    at_once = TerminalText()
    assert text == at_once.feed(whole) + at_once.finish()
    assert (split.invalid, split.binary) == (at_once.invalid, at_once.binary)


@pytest.mark.parametrize(
    "text", ["ab\x1b\rcd", "ab\r\ncd\r", "é\x1b]0;t\x1b\\\r\n€", "a\x1b[3\x1b[1mb\x1b(\n", "x\x1bP\x07y\x1b"]
)
def test_every_way_to_tear_it_in_two_shows_the_same(text: str) -> None:
    data = text.encode()
    for cut in range(len(data) + 1):
        torn = TerminalText()
        assert torn.feed(data[:cut]) + torn.feed(data[cut:]) + torn.finish() == shown(data)


@settings(max_examples=50, deadline=None)
@given(st.lists(pieces, max_size=20))
def test_a_byte_at_a_time_shows_the_same_and_nothing_active_is_left(parts: list[bytes]) -> None:
    whole = b"".join(parts)[:3000]
    slow = TerminalText()
    text = "".join(slow.feed(bytes([byte])) for byte in whole) + slow.finish()

    assert text == shown(whole)
    assert not set(text) & {*map(chr, range(9)), "\x0b", "\x0c", "\r", "\x1b", "\x7f", "\x9b"}


like_a_terminal = st.sampled_from(
    [
        *("a", "bc", "word ", "\n", "\r", "\r\n", "\b", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[A", "\x1b[2A"),
        *("\x1b[3C", "\x1b[2D", "\x1b[5G", "\x1b[J", "\x1b[32m", "\x1b[0m", "\x1b]0;title\x07"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(like_a_terminal, max_size=40))
def test_it_agrees_with_a_real_terminal_emulator(parts: list[str]) -> None:
    text = "".join(parts)
    screen = pyte.Screen(400, 60)
    screen.set_mode(pyte.modes.LNM)
    pyte.Stream(screen).feed(text)

    def plain(lines: list[str]) -> list[str]:
        stripped = [line.rstrip() for line in lines]
        while stripped and not stripped[-1]:
            stripped.pop()
        return stripped

    assert plain(shown(text.encode()).split("\n")) == plain(screen.display)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"".join(b"\rFetching %3d%%" % n for n in range(0, 101, 5)) + b"\nok\r\n", "Fetching 100%\nok\n"),
        (b"\x1b[?25l\x1b[2K\x1b[1GWo\rWork\rWorking\x1b[?25h\n", "Working\n"),
        (b"\x1b[31mred\x1b[0m end\b\b\bEND\n", "red END\n"),
        (b"a: 1\nb: 1\n\x1b[2A\x1b[2Ka: 2\n\x1b[2Kb: 2\n", "a: 2\nb: 2\n"),
        (b"keep \ttabs \n", "keep \ttabs \n"),
        (b"before\x1b[2J\x1b[Hafter", "before\nafter"),
        (b"\x1b[2J\x1bcclean", "clean"),
        (b"12345\x1b[3D\x1b[1KX", "  X45"),
        (b"ab\x1b[5G.\x1b[99999999D>", ">b  ."),
        (b"one\ntwo\nthree\x1b[2F\x1b[Jgone", "gone"),
        (b"one\ntwo\x1b[A\x1b[E!\n", "one\n!wo\n"),
        (b"one\ntwo\x1b[A\x1b[9B\x1b[G!", "one\n!wo"),
        (b"title \x1b]0;not ended\x1b[1mbold", "title bold"),
        (b"\x1b]0;no\ntitle", "]0;no\ntitle"),
        (b"page\x0cpage\x0bpage", "page\npage\npage"),
        (b"unfinished \x1b[12", "unfinished "),
        (b"last \r", "last "),
        (b"", ""),
    ],
)
def test_a_redrawn_line_shows_its_last_picture(raw: bytes, text: str) -> None:
    assert shown(raw) == text


def test_bytes_that_are_not_utf8_are_replaced_and_named() -> None:
    latin, split, cut = TerminalText(), TerminalText(), TerminalText()

    assert latin.feed(b"caf\xe9 ") + latin.finish() == "caf\ufffd "
    assert split.feed("é".encode()[:1]) + split.feed("é".encode()[1:]) + split.finish() == "é"
    assert cut.feed("é".encode()[:1]) + cut.finish() == "\ufffd"
    assert (latin.invalid, split.invalid, cut.invalid) == (True, False, True)


def test_a_replacement_character_that_was_really_printed_is_no_fault() -> None:
    text = TerminalText()

    assert text.feed("\ufffd\n".encode()) + text.finish() == "\ufffd\n"
    assert not text.invalid


def test_rows_above_the_screen_are_final_and_come_out_at_once() -> None:
    text = TerminalText()
    early = text.feed(b"".join(b"%d\n" % n for n in range(100)))

    assert early == "".join(f"{n}\n" for n in range(100 - ROWS + 1))
    assert (early + text.feed(b"\x1b[99Atop") + text.finish()).count("\n") == 100


def test_a_line_without_end_is_passed_on_in_pieces() -> None:
    text = TerminalText()
    held = 0
    out = text.feed(b"head\n")
    for _ in range(50):
        out += text.feed(b"x" * 5000)
        held = max(held, len(out))
    assert held > 200_000

    assert out + text.finish() == "head\n" + "x" * 250_000
