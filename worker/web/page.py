"""What a body says, as text: its bytes by their charset, HTML as lines with its headings, lists and links.

Pure.  Not here: where HTML's tags begin and end (tags.py).
"""

import re
from collections.abc import Callable
from typing import assert_never
from urllib.parse import urljoin

from worker.web.tags import RAW, Tag, Text, tags

_READ = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml)|application/(x-)?(javascript|ecmascript|ndjson|sh|toml|yaml|httpd-php"
    r"|x-ndjson|sql|graphql|typescript)|image/svg\+xml|message/.*"
)
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream", "application/unknown")
"""Types that say nothing: the bytes are looked at."""
_HTML = ("text/html", "application/xhtml+xml")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_:.+-]{1,40})", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s{0,4}=\s{0,4}[\"']?([A-Za-z0-9_:.+-]{1,40})", re.IGNORECASE)
_META_BYTES = 4096
_KNOWN = re.compile(
    r"utf-?8|utf-?16(-?[lb]e)?|us-ascii|ascii|iso-?8859-?[0-9]+|latin-?[0-9]+|windows-?[0-9]+|cp[0-9]+|koi8-[rtu]"
    r"|shift[_-]?jis|euc-?(jp|kr)|gb2312|gbk|gb18030|big5(-hkscs)?|iso-2022-(jp|kr)|tis-620|macintosh"
)
"""Charsets of the web.  Python knows more by such names, and some of them take time without end."""
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127))
_LOOKED_AT = 2048
_BREAKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "br",
        "caption",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "optgroup",
        "option",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    ]
)
_APART = frozenset(("p", "pre", "ul", "ol", "table", "blockquote", "section", "article", "dl", "figure"))
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LINK_MOST = 500
_OFTEN = 256
"""Pieces of HTML between two looks at whether to go on."""
_SPACES = re.compile(r"[ \t\r\n\f\xa0]+")


def readable(kind: str) -> bool:
    """Whether a body of this type may be text."""
    name = plain_type(kind)
    return name in _UNKNOWN or _READ.fullmatch(name) is not None


def plain_type(kind: str) -> str:
    """`Text/HTML; charset=x` -> `text/html`."""
    return kind.partition(";")[0].strip().lower()


def is_binary(body: bytes) -> bool:
    """Whether these bytes, of whatever type, are no text."""
    return b"\0" in body[:_LOOKED_AT] and not body.startswith((b"\xff\xfe", b"\xfe\xff"))


def text_of(body: bytes, kind: str, where: str, go_on: Callable[[], None], *, whole: bool = True) -> str:
    """`whole`: nothing is missing at its end.  `where`: the page's URL, for its relative links.  `go_on` is
    called now and then and may raise."""
    text = _decoded(body, kind, whole)
    name = plain_type(kind)
    if name in _HTML or (name in _UNKNOWN and re.match(r"\s*<(!doctype\s+)?html", text[:_LOOKED_AT], re.I)):
        text = _html(text, where, go_on)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROL)


def _decoded(body: bytes, kind: str, whole: bool) -> str:
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body.decode(charset, errors="replace")
    told = _CHARSET.search(kind)
    inside = None if told else _META.search(body[:_META_BYTES])
    named = (told[1] if told else inside[1].decode("ascii") if inside else "").lower()
    if _KNOWN.fullmatch(named):
        try:
            return body.decode(named, errors="replace")
        except LookupError:
            pass
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A body that was cut may end within a character.
        cut = not whole and error.start >= len(body) - 3
        return body.decode("utf-8", errors="ignore") if cut else body.decode("cp1252", errors="replace")


def _html(html: str, where: str, go_on: Callable[[], None]) -> str:
    page = _Page(where)
    for number, piece in enumerate(tags(html)):
        if number % _OFTEN == 0:
            go_on()
        match piece:
            case Text(text):
                page.say(text)
            case Tag(name=name, inner=inner) if name in RAW and not piece.closes:
                if name == "title" and not page.title:
                    page.title = _SPACES.sub(" ", inner).strip()[:_LINK_MOST]
                elif name == "textarea":
                    page.say(inner)
            case Tag():
                page.take(piece)
            case _:
                assert_never(piece)
    return page.text()


class _Page:
    """Lines that grow."""

    def __init__(self, where: str) -> None:
        self.title = ""
        self._where = where
        self._lines: list[str] = []
        self._line: list[str] = []
        self._begin = ""
        """What stands before the next line's text: a heading's or a list item's mark."""
        self._preformatted = 0
        self._depth = 0
        self._link = ""
        self._link_text = False

    def say(self, text: str) -> None:
        if self._preformatted:
            first, *more = text.split("\n")
            self._add(first)
            for line in more:
                self.end_line(keep=True)
                self._add(line)
            return
        self._add(_SPACES.sub(" ", text))

    def _add(self, text: str) -> None:
        if text:
            self._line.append(text)
            self._link_text = self._link_text or not text.isspace()

    def take(self, tag: Tag) -> None:
        name = tag.name
        if name == "a":
            self._close_link()
            if not tag.closes:
                self._open_link(tag.attributes.get("href", ""))
        elif name in _HEADINGS:
            self.end_line(apart=True)
            self._begin = "" if tag.closes else _HEADINGS[name]
        elif name == "img" and (alt := tag.attributes.get("alt", "").strip()):
            self._add(f"[image: {_SPACES.sub(' ', alt)[:_LINK_MOST]}]")
        elif name in ("td", "th") and not tag.closes and self._line:
            self._line.append(" | ")
        elif name in _BREAKS:
            self.end_line(apart=name in _APART)
            self._nest(tag)

    def _nest(self, tag: Tag) -> None:
        step = -1 if tag.closes else 1
        if tag.name == "pre":
            self._preformatted = max(0, self._preformatted + step)
        elif tag.name in ("ul", "ol"):
            self._depth = min(max(0, self._depth + step), 20)
        elif tag.name == "li":
            self._begin = "" if tag.closes else "  " * max(0, self._depth - 1) + "- "

    def _open_link(self, target: str) -> None:
        self._link_text = False
        target = target.strip()
        if not target or target.startswith(("#", "javascript:", "data:")) or len(target) > _LINK_MOST:
            return
        try:
            self._link = urljoin(self._where, target)
        except ValueError:
            return

    def _close_link(self) -> None:
        if self._link and self._link_text:
            self._line.append(f" <{self._link}>")
        self._link = ""

    def end_line(self, *, apart: bool = False, keep: bool = False) -> None:
        """`apart`: an empty line follows, if none is there.  `keep`: empty lines and spaces stay."""
        text = "".join(self._line)
        text = text.rstrip() if keep or self._preformatted else _SPACES.sub(" ", text).strip()
        self._line.clear()
        if text:
            self._lines.append(self._begin + text)
            self._begin = ""
        if (apart or (keep and not text)) and self._lines and self._lines[-1]:
            self._lines.append("")

    def text(self) -> str:
        self._close_link()
        self.end_line()
        body = "\n".join(self._lines).strip("\n")
        return f"{self.title}\n\n{body}" if self.title else body
