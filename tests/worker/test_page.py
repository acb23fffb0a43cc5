"""Bytes of a page as text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.web.page import text_of
from worker.web.tags import Tag, Text, tags


def go_on() -> None:
    """These pages may take their time."""


def text(html: str | bytes, kind: str = "text/html") -> str:
    body = html.encode() if isinstance(html, str) else html
    return text_of(body, kind, "https://a.example/dir/page", go_on)


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<p>a<p>b", "a\n\nb"),
        ("a<br>b<div>c</div>d", "a\nb\nc\nd"),
        ("<h2>Two</h2>x<h1>One</h1>", "## Two\n\nx\n\n# One"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "- a\n- b\n\n  - c\n\nd"),
        ("<a href='x.html'>here</a> <a href='#top'>up</a> <a href='javascript:x()'>run</a>",
         "here <https://a.example/dir/x.html> up run"),
        ("<a href=//b.example/?a=1&amp;b=2>there", "there <https://b.example/?a=1&b=2>"),
        ("<a href=x><img alt='a  cat'></a><img>", "[image: a cat] <https://a.example/dir/x>"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a | b\nc"),
        ("<pre>  a\n\n   b</pre>c", "  a\n\n   b\n\nc"),
        ("a<script>if (a < b) '</scr' </script >b<style>x</style>c", "abc"),
        ("a<!-- <p>no</p> -->b<!doctype html><?php x ?>c</>d", "abcd"),
        ("&lt;b&gt; &amp; &eacute; &#x41;&nbsp;&bogus;", "<b> & é A &bogus;"),
        ("1 < 2 and <3 <", "1 < 2 and <3 <"),
        ('<p title="a > b">x', "x"),
        ("<p title=\"never ends>x</p>y", "x\n\ny"),
        ("<title> A\n page </title><body>x", "A page\n\nx"),
        ("<textarea>kept <b></textarea>", "kept <b>"),
        ("a\0b\x1b[31mc", "ab[31mc"),
        ("", ""),
    ],
)  # fmt: skip
def test_html_becomes_lines(html: str, wanted: str) -> None:
    assert text(html) == wanted


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("é".encode("latin-1"), "text/html; charset=ISO-8859-1"),
        (b"<meta charset='windows-1252'>\xe9", "text/html"),
        (b'<meta http-equiv=Content-Type content="text/html; charset=latin1">\xe9', "text/html"),
        ("é".encode(), "text/html"),
        ("é".encode(), "text/html; charset=rot13"),
        ("é".encode(), "text/html; charset=punycode"),
        ("é".encode(), "text/html; charset=unicode_escape"),
        (b"\xe9", "text/html"),
        ("\ufeffé".encode(), "text/html; charset=latin-1"),
        ("é".encode("utf-16"), "text/html"),
    ],
)
def test_a_charset_is_found_or_guessed(body: bytes, kind: str) -> None:
    assert text(body, kind) == "é"


@given(st.text(alphabet="<>/!-\"'= \nabptd&;#lisctry", max_size=200))
def test_any_html_is_some_text(html: str) -> None:
    text(html)
    kept = "".join(piece.text for piece in tags(html) if isinstance(piece, Text))
    assert len(kept) <= len(html) * 2


@pytest.mark.parametrize(
    "piece",
    ["<", "<a", "<a ", "<!--", "<a href='", '<a href="x', "</", "<script>", "<p a=", "<a =\"'", "&", "&#",
     "<![CDATA[", "<title>", "<div>", "<ul><li>", "<a href=x>y", " ", "<pre>\n", "<p x='>", "</script",
     "=", "<td>", "<a =       "],
)  # fmt: skip
def test_no_page_takes_longer_than_its_length_explains(piece: str) -> None:
    body = piece.encode() * (500_000 // len(piece))
    begun = time.monotonic()
    text(body)
    assert time.monotonic() - begun < 12


def test_a_body_that_was_cut_within_a_character_is_still_what_it_was() -> None:
    body = "é".encode() + "é".encode()[:1]
    assert text_of(body, "text/html", "https://a.example/", go_on, whole=False) == "é"
    assert text_of(body, "text/html", "https://a.example/", go_on) == "Ã©Ã"


def test_attributes_are_read() -> None:
    (found,) = tags("<A HREF = 'x&amp;y' id=z checked>")
    assert found == Tag("a", False, {"href": "x&y", "id": "z"})
