"""HTML cut into text and tags, in time that grows with its length and no faster, however broken it is.

html.parser is not used: on what is made to be slow, its time grows with the square of the length.  Not here:
what tags mean (page.py).
"""

import re
from collections.abc import Iterator
from html import unescape

from msgspec import Struct

RAW = frozenset(
    ("script", "style", "noscript", "template", "iframe", "svg", "textarea", "title", "noembed", "xmp")
)
"""What is inside of these, up to their end, is no markup."""
_NAME = re.compile(r"/?([a-zA-Z][^\s/>]{0,40})")
_ATTRIBUTE = re.compile(r"([^\s=\"'>/]{1,40})\s{0,8}=\s{0,8}(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_LOOSE = re.compile(r"(?:<(?![a-zA-Z/!?])[^<]*)+")
"""Text with a `<` that begins no tag."""
_TAG_MOST = 16_384
"""Characters of a tag of which attributes are read."""


class Text(Struct, frozen=True):
    text: str


class Tag(Struct, frozen=True):
    """`inner`: what is inside of one of RAW."""

    name: str
    closes: bool
    attributes: dict[str, str]
    inner: str = ""


def tags(html: str) -> Iterator[Text | Tag]:
    at, end = 0, len(html)
    marks = _Marks(html)
    while at < end:
        start = html.find("<", at)
        start = end if start < 0 else start
        if start > at:
            yield Text(unescape(html[at:start]))
        if start >= end:
            return
        named = _NAME.match(html, start + 1)
        if html.startswith("<!--", start):
            at = marks.after("-->", start + 4)
        elif named is not None:
            at = marks.tag_end(start + 1)
            name = named[1].lower()
            closes = html[start + 1] == "/"
            attributes = {} if closes else _attributes(html[named.end() : min(at, start + _TAG_MOST)])
            inner = ""
            if name in RAW and not closes:
                inner_end = marks.closing(name, at)
                inner, at = html[at:inner_end], inner_end
            yield Tag(name, closes, attributes, inner)
        elif html.startswith(("<!", "<?", "</"), start):
            at = marks.after(">", start + 2)
        else:
            loose = _LOOSE.match(html, start)
            at = loose.end() if loose else start + 1
            yield Text(unescape(html[start:at]))


def _attributes(text: str) -> dict[str, str]:
    return {
        match[1].lower(): unescape(match[2] or match[3] or match[4] or "")
        for match in _ATTRIBUTE.finditer(text)
    }


class _Marks:
    """Where the next of something is.  That there is none any more is remembered: asked again at each broken
    tag, it would be looked for up to the end each time."""

    def __init__(self, html: str) -> None:
        self._html = html
        self._none: set[str] = set()

    def find(self, mark: str, at: int) -> int:
        """-1 where there is none."""
        if mark in self._none:
            return -1
        found = self._html.find(mark, at)
        if found < 0:
            self._none.add(mark)
        return found

    def after(self, mark: str, at: int) -> int:
        found = self.find(mark, at)
        return len(self._html) if found < 0 else found + len(mark)

    def tag_end(self, at: int) -> int:
        """Behind the `>` of a tag: not one that stands within quotes, unless those never end."""
        while True:
            close = self.find(">", at)
            if close < 0:
                return len(self._html)
            quote = _QUOTE.search(self._html, at, close)
            if quote is None:
                return close + 1
            ends = self.find(quote[1], quote.end())
            if ends < 0 or ends - quote.end() > _TAG_MOST:
                return close + 1
            at = ends + 1

    def closing(self, name: str, at: int) -> int:
        """Where `</name` begins."""
        mark = f"</{name}"
        if mark in self._none:
            return len(self._html)
        found = re.compile(re.escape(mark) + r"[\s/>]", re.IGNORECASE).search(self._html, at)
        if found is None:
            self._none.add(mark)
            return len(self._html)
        return found.start()


_QUOTE = re.compile(r"=\s{0,8}([\"'])")
