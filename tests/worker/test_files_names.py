import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.files.names import meant, shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"plain.txt", "plain.txt"),
        (b"caf\xc3\xa9.txt", "café.txt"),
        (b"with blank.txt", "with blank.txt"),
        (b"back\\slash", "back\\slash"),
        (b"-rf.txt", '"-rf.txt"'),
        (b" leading.txt", '" leading.txt"'),
        (b"two\nlines.txt", '"two\\nlines.txt"'),
        (b"quo\"te's.txt", '"quo\\"te\'s.txt"'),
        (b"bad\xff.txt", '"bad\\xff.txt"'),
        (b"a:12:b", '"a:12:b"'),
        (b"bell\x07", '"bell\\u0007"'),
        (b"\xf3\xa0\x81\x81", '"\\udb40\\udc41"'),
        (b"", '""'),
    ],
)
def test_a_name_is_shown_plain_or_quoted(name: bytes, text: str) -> None:
    assert shown(name) == text
    assert meant(text) == (name if text.startswith('"') else None)


@given(st.binary(max_size=40))
def test_every_name_comes_back_from_how_it_is_shown(name: bytes) -> None:
    text = shown(name)
    assert text.isprintable()
    assert (text.encode() if meant(text) is None else meant(text)) == name


def test_a_quoted_text_with_a_broken_escape_means_itself() -> None:
    assert meant('"a\\q"') is None
    assert meant('"a"b"') is None
    assert meant('"') is None
    assert meant('"\\/\\b"') == b"/\b"
