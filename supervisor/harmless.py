"""Text from outside made harmless for a terminal: control characters become visible escapes.

Whoever prints decides what is text from outside; colours of our own are added after this.  Each character
is judged alone, so a sequence that is split over two deltas can't slip through.  Not here: secrets (masks).
"""

import re

_DANGEROUS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""C0 but newline and tab, DEL, C1; bidirectional overrides and isolates, which make a name read as another
one; the line separators, which break a line for some readers and not for others; lone surrogates."""
_TEXT = re.compile(f"[{_DANGEROUS}]")
_LINE = re.compile(f"[\n\t{_DANGEROUS}]")

_DEGRADED = str.maketrans(
    {
        "…": "...",
        "❯": ">",
        "›": ">",
        "→": "->",
        "←": "<-",
        "–": "-",
        "—": "-",
        "·": "-",
        "•": "*",
        "●": "*",
        "✓": "+",
        "✔": "+",
        "✗": "x",
        "✘": "x",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
        "─": "-",
        "━": "-",
        "│": "|",
        "┃": "|",
        "█": "#",
        **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
    }
)
"""What our own screens draw, in ASCII, for a stream that can't show it."""


def _escape(found: re.Match[str]) -> str:
    """`^[` for ESC, `^?` for DEL, `\\x9b` for C1, `\\u202e` for the rest."""
    code = ord(found[0])
    if code < 0x20:
        return "^" + chr(code + 0x40)
    if code == 0x7F:
        return "^?"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def harmless(text: str) -> str:
    """The text with every control character but newline and tab shown as an escape.

    That is ESC and all of C0, DEL, C1, bidirectional overrides, the Unicode line separators and lone
    surrogates.  A carriage return too: it would let a line overwrite itself.
    """
    return _TEXT.sub(_escape, text)


def harmless_line(text: str) -> str:
    """The same for what must stay on one line, a file's name say: newline and tab are escaped as well."""
    return _LINE.sub(_escape, text)


def for_stream(text: str, encoding: str | None) -> str:
    """The text with what this encoding can't hold degraded, so that writing it can't fail.

    What our own screens draw has a stand-in in ASCII; anything else becomes a question mark.  An unknown
    encoding counts as ASCII.
    """
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        known = encoding or "ascii"
    except LookupError:
        known = "ascii"
    else:
        return text
    return _each_that_fits(text.translate(_only_what_fails(known)), known)


def _only_what_fails(encoding: str) -> dict[int, str]:
    """The stand-ins for those characters that this encoding lacks."""
    return {code: stand_in for code, stand_in in _DEGRADED.items() if not _fits(chr(code), encoding)}


def _each_that_fits(text: str, encoding: str) -> str:
    return text.encode(encoding, "replace").decode(encoding, "replace")


def _fits(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
