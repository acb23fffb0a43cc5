"""What the bytes of a file are as text: byte order marks, line ends, and what is no UTF-8.  Pure."""

import re

BOM = b"\xef\xbb\xbf"
HEAD = 8192
"""Bytes at the start of a file that decide whether it is text."""

_WIDE = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\xff\xfe", "UTF-16 (little endian)"),
    (b"\xfe\xff", "UTF-16 (big endian)"),
)
_PAIRS = re.compile(rb"(?:[\xa1-\xfe][\xa1-\xfe])+")
_HIGH = re.compile(rb"[\x80-\xff]+")


def wide(head: bytes) -> str | None:
    """The name of the two- or four-byte encoding that a byte order mark tells; None where there is none."""
    return next((name for mark, name in _WIDE if head.startswith(mark)), None)


def binary(head: bytes) -> str | None:
    """Why these first bytes are no text that can be shown; None where they are."""
    name = wide(head)
    if name is not None:
        return f"it is {name} text, not UTF-8"
    at = head.find(b"\0")
    return f"it is binary (a NUL byte at {at})" if at >= 0 else None


def not_utf8(data: bytes) -> str | None:
    """What is wrong where the bytes are no UTF-8: the first bad byte, its line, and what they could be."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return (
            f"byte 0x{data[error.start]:02X} in line {line} is not UTF-8; the file looks like {guess(data)}"
        )
    return None


def guess(data: bytes) -> str:
    """The likeliest encoding of bytes that are no UTF-8, in words."""
    name = wide(data)
    if name is not None:
        return name
    runs = _HIGH.findall(data)
    if all(_PAIRS.fullmatch(run) for run in runs):
        return "GBK (or another two-byte encoding)"
    return "Latin-1 or Windows-1252"


def line_ends(crlf: int, lf: int) -> str | None:
    """A note on the line ends of a text with so many CRLF, and LF alone; None for plain LF."""
    if not crlf:
        return None
    return "the lines end in CRLF" if not lf else f"{crlf} lines end in CRLF, {lf} in LF"
