import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.tools.edit_file import Edit
from worker.files.edits import EditError, apply

BOM = b"\xef\xbb\xbf"


def edited(data: bytes, *edits: tuple[str, str]) -> bytes:
    return apply(data, [Edit(old, new) for old, new in edits]).data


def refused(data: bytes, old: str, new: str = "something new", *, replace_all: bool = False) -> str:
    with pytest.raises(EditError) as caught:
        apply(data, [Edit(old, new, replace_all)])
    return str(caught.value)


def test_an_edit_sent_with_lf_changes_only_its_lines_of_a_crlf_file() -> None:
    before = b"alpha = 1\r\nbeta = 2\r\ngamma = 3\r\n"
    after = b"alpha = 1\r\nbeta = 20\r\ngamma = 30\r\n"
    assert edited(before, ("beta = 2\ngamma = 3\n", "beta = 20\ngamma = 30\n")) == after
    assert edited(before, ("beta = 2\r\ngamma = 3\r\n", "beta = 20\r\ngamma = 30\r\n")) == after


def test_added_lines_get_the_ending_of_where_they_are_put() -> None:
    crlf = b"one\r\ntwo\r\n"
    assert edited(crlf, ("one", "one\nnew")) == b"one\r\nnew\r\ntwo\r\n"
    assert edited(crlf, ("one\n", "one\nnew\n")) == b"one\r\nnew\r\ntwo\r\n"
    assert edited(b"one\r\ntwo", ("two", "two\nnew\n")) == b"one\r\ntwo\r\nnew\r\n"
    assert edited(crlf, ("one", "one\r\nnew")) == b"one\r\nnew\r\ntwo\r\n"


def test_mixed_endings_stay_each_as_it_was() -> None:
    mixed = b"a\r\nb\nc\r\n"
    assert edited(mixed, ("a\nb\nc\n", "A\nB\nC\n")) == b"A\r\nB\nC\r\n"
    assert edited(mixed, ("b", "B\nB")) == b"a\r\nB\nB\nc\r\n"


def test_whoever_writes_cr_means_it() -> None:
    assert edited(b"a\r\nb\r\n", ("a\r\n", "a\n")) == b"a\nb\r\n"
    assert edited(b"a\nb\n", ("a\n", "a\r\n")) == b"a\r\nb\n"
    assert edited(b"a\nb\n", ("a\r\nb", "A\r\nB")) == b"A\nB\n"
    assert edited(b"a\rb", ("a\rb", "c")) == b"c"


def test_a_byte_order_mark_is_kept_and_never_added() -> None:
    text = "# café\r\nWrite-Output 1\r\n".encode()
    wanted = b"# bar\r\nWrite-Output 2\r\n"
    edits = (("# café", "# bar"), ("Write-Output 1", "Write-Output 2"))
    assert edited(text, *edits) == wanted
    assert edited(BOM + text, *edits) == BOM + wanted
    assert edited(BOM + text, ("\ufeff# café", "\ufeff# bar"), edits[1]) == BOM + wanted
    assert edited(BOM + text, ("# café", "\ufeff# bar"), edits[1]) == BOM + wanted
    assert edited(text, ("\ufeff# café", "\ufeff# bar"), edits[1]) == wanted


def test_ascii_edits_in_other_encodings_are_exact_to_the_byte() -> None:
    latin = b"# r\xe9sum\xe9 parser\nLIMIT = 10\n"
    assert edited(latin, ("LIMIT = 10", "LIMIT = 20")) == latin.replace(b"10", b"20")
    gbk = b"int limit = 10; /* \xd6\xd0\xce\xc4 */\n"
    assert edited(gbk, ("limit = 10", "limit = 20")) == gbk.replace(b"10", b"20")
    assert "Latin-1" in refused(latin, "résumé", "summary")
    assert "0xE9 in line 1" in refused(latin, "résumé", "summary")
    assert "GBK" in refused(gbk, "中文", "text")
    assert "nearest is line 2" in refused(latin, "LIMIT = 1O", "LIMIT = 2")


def test_non_ascii_text_is_not_put_into_a_file_that_is_no_utf8() -> None:
    latin = b"# r\xe9sum\xe9 parser\nLIMIT = 10\n"
    words = refused(latin, "LIMIT = 10", "LIMIT = 10  # größer")
    assert "Latin-1" in words
    assert "ASCII" in words


@pytest.mark.parametrize("tail", [b"", b"\n", b"\n\n"])
def test_the_end_of_the_file_stays_as_it_is(tail: bytes) -> None:
    assert edited(b"line1\nline2\nline3" + tail, ("line1", "LINE1")) == b"LINE1\nline2\nline3" + tail


def test_an_ambiguous_text_is_refused_with_the_lines() -> None:
    source = (
        b"def first(p):\n\tif p:\n\t\tclose()\n\t\treturn 0\n\n\n"
        b"def second(p):\n\tfor q in p:\n\t\tif q:\n\t\t\tclose()\n\t\t\treturn 0\n"
    )
    words = refused(source, "close()")
    assert "2 times" in words
    assert "lines 3, 10" in words
    relaxed = refused(source, "close()\nreturn 0", "flush()\nreturn 1")
    assert "tabs" in relaxed
    assert "2 places would match, in lines 3, 10" in relaxed
    assert "…" in refused(b"x\n" * 20, "x")


def test_places_that_overlap_are_ambiguous_too() -> None:
    assert "2 times, in lines 1, 2" in refused(b"x\nx\nx\n", "x\nx\n")
    assert "2 times, in lines 1, 2" in refused(b"x\r\nx\r\nx\r\n", "x\nx\n")
    assert "at least 1000 times" in refused(b"a" * 5000, "a")
    assert edited(b"a\r\nb\r\n", ("\nb", "\nc")) == b"a\r\nc\r\n"


TEXTS = st.text("ab \n", min_size=1, max_size=8)


@given(st.text("ab \n", max_size=30), TEXTS, TEXTS, st.booleans())
def test_a_crlf_file_is_edited_as_its_lf_twin_is(body: str, old: str, new: str, replace_all: bool) -> None:
    def outcome(text: str) -> bytes | None:
        try:
            return apply(text.encode(), [Edit(old, new, replace_all)]).data
        except EditError:
            return None

    twin = outcome(body)
    if twin is None:
        assert outcome(body.replace("\n", "\r\n")) is None
    elif "\n" in body:
        assert outcome(body.replace("\n", "\r\n")) == twin.replace(b"\n", b"\r\n")
    if twin is not None:
        count = body.count(old)
        assert twin.decode() == body.replace(old, new, count if replace_all else 1)


def test_replace_all_replaces_each_place() -> None:
    result = apply(b"a b a b a", [Edit("a", "c", True)])
    assert (result.data, result.places) == (b"c b c b c", 3)
    assert apply(b"aaa", [Edit("aa", "b", True)]).data == b"ba"


@pytest.mark.parametrize("replace_all", [False, True])
def test_an_empty_old_never_touches_a_file_with_content(replace_all: bool) -> None:
    words = refused(b"abc\n", "", "X", replace_all=replace_all)
    assert "append" in words
    assert "write_file" in words
    assert apply(b"", [Edit("", "X", replace_all)]).data == b"X"
    assert apply(BOM, [Edit("", "X", replace_all)]).data == BOM + b"X"
    assert "empty" in refused(b"", "gone")


def test_an_edit_that_changes_nothing_is_refused() -> None:
    assert "the same" in refused(b"abc\n", "abc", "abc")
    assert "the same" in refused(b"", "", "")
    with pytest.raises(EditError, match="change nothing"):
        edited(b"abc\n", ("abc", "x"), ("x", "abc"))


def test_edits_apply_in_order_on_what_the_ones_before_left() -> None:
    assert edited(b"one two\n", ("one", "three"), ("three two", "four")) == b"four\n"
    with pytest.raises(EditError, match=r"edit 2 of 2: .*not found"):
        edited(b"one two\n", ("one", "1"), ("one two", "x"))


def test_a_text_that_an_earlier_edit_of_the_call_changed_is_said_to_have_been_there() -> None:
    with pytest.raises(
        EditError, match=r"edit 2 of 2: .*an edit before it in this call has changed the place"
    ):
        edited(b"one two\n", ("one", "1"), ("one two", "x"))
    with pytest.raises(EditError) as caught:
        edited(b"one two\n", ("one", "1"), ("never there", "x"))
    assert "before it" not in str(caught.value)
    with pytest.raises(EditError, match="occurs 2 times"):
        edited(b"one\ntwo\n", ("one", "two"), ("two", "x"))


def test_backslashes_and_dollars_are_plain_text() -> None:
    assert edited(b"a (b) c\r\n", ("(b)", r"\1 \g<0> $& \\n")) == rb"a \1 \g<0> $& \\n c" + b"\r\n"
    assert edited(b"a.c\r\nabc\r\n", ("a.c\n", "x\\\n")) == b"x\\\r\nabc\r\n"


def test_a_wide_file_is_named_when_nothing_is_found() -> None:
    assert "UTF-16" in refused("größe".encode("utf-16"), "größe")
    assert "UTF-16" in refused("size".encode("utf-16"), "size")


def test_half_a_character_is_refused() -> None:
    assert "U+D800" in refused(b"abc", "abc", "\ud800")


def test_curly_quotes_and_normal_forms_are_told_apart() -> None:
    prose = "She said, “Hello.”\nplain '%s'\nnfd: e\u0301\nnfc: \u00e9\n".encode()
    words = refused(prose, 'She said, "Hello."', 'She said, "Hi."')
    assert "U+201C" in words
    assert "U+0022" in words
    assert "line 1" in words
    assert edited(prose, ("plain '%s'", "plain ‘%s’")) == prose.replace(b"'%s'", "‘%s’".encode())
    assert edited(prose, ("nfc: \u00e9", "nfc: e")) == prose.replace(b"nfc: \xc3\xa9", b"nfc: e")
    assert "NFD" in refused(prose, "nfd: \u00e9", "x")
    assert "NFC" in refused(prose, "nfc: e\u0301", "x")


MAKEFILE = b"all:\n\t@echo one\n\t@echo two\n"


@pytest.mark.parametrize(
    ("data", "old", "words"),
    [
        (MAKEFILE, "    @echo two", ["tabs", "Line 3", r"'\t@echo two'"]),
        (MAKEFILE, "@echo one\n@echo two", ["lacks the file's tabs", "Line 2"]),
        (b"if x:\n    pass\n", "if x:\n\tpass", ["indents with spaces, `old` with tabs"]),
        (b"if x:\n    pass\n", "if x:\n  pass", ["by 4 characters, `old` by 2"]),
        (b"a = 1  \nb\n", "a = 1\nb", ["blanks at the end"]),
        (b"a  = 1\n", "a = 1", ["within the line"]),
        (b"a\nline3", "line3\n", ["ends in a line break, but the file ends without one"]),
        (b"def f():\n  return 1  \n", "  return 1\n", ["line 2 ends in blanks ('  ')"]),
        (b"a\nb c\n", "b\n", ["line break where line 2 goes on with ' c'"]),
        (b"a\nb\nc\n", "\nb\n\n", ["blank lines around it", "line 2"]),
        (b"Hello World\n", "hello world", ["upper and lower case", "Line 1"]),
        (b"one two\nthree four\n", "one two three four", ["broken at other places", "line 1"]),
        (b"a\nfoo\nbar\n", "     2\tfoo\n     3\tbar", ["line numbers", "line 2"]),
        (b'say "hi"\n', 'say \\"hi\\"', ["backslash", "line 1"]),
        (b"def f():\n    x = 1\n    y = 2\n", "def f():\n    x = 1\n    z = 2", ["line 3", "y = 2", "z = 2"]),
        (b"a\nb\nc\na\nx\n", "a\nb\nd", ["from line 1 on, but line 3 is 'c'"]),
        (b"alpha beta\ngamma\n", "alpha bets\nzzz", ["nearest is line 1"]),
        (b"x = 1\ny = 2", "x = 1\ny = 2\nz = 3", ["stand from line 1", "ends there"]),
        (b"alpha beta gamma\n", "alpha beto gamma", ["nearest is line 1"]),
        (b"alpha\n", "zzzzzzzzz", ["no line comes near"]),
        (b"alpha\n", "\n\n\n", ["no line comes near"]),
        (b"x" * 4_000_001, "y", ["too large"]),
        (b"x" * 500 + b"\n", "X" * 500, ["…"]),
        ("a\u00a0b\n".encode(), "a b", ["U+00A0"]),
        (b"  q\n" * 7, "q \n", ["7 places", "…"]),
    ],
)
def test_a_miss_names_its_nearest_cause(data: bytes, old: str, words: list[str]) -> None:
    told = refused(data, old)
    for word in words:
        assert word in told
