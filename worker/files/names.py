"""How the name of a file is shown in a result, and which name a text means.

A plain name is shown as it is.  One that could be misread (bytes that are no UTF-8, line breaks, quotes,
colons, blanks at an end, a leading dash, what can't be printed) is shown as a JSON string in which `\\xNN`
stands for a raw byte.  Pure: nothing here looks at a disk.
"""

import re

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = {'"': '"', "\\": "\\", "/": "/", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_TOKEN = re.compile(r'\\x([0-9a-fA-F]{2})|((?:\\u[0-9a-fA-F]{4})+)|\\(["\\/nrtbf])|([^"\\]+)')
_ODD = frozenset("\"':")


def encoded(text: str) -> bytes:
    """A path's text as its bytes, whatever the locale says.  Raises UnicodeEncodeError."""
    return text.encode("utf-8", "surrogateescape")


def decoded(name: bytes) -> str:
    """The reverse of `encoded`, for any bytes."""
    return name.decode("utf-8", "surrogateescape")


def shown(name: bytes) -> str:
    """The name, or path, for a result: plain where it can't be misread, else quoted."""
    text = decoded(name)
    if text and text.isprintable() and text == text.strip() and text[0] != "-" and _ODD.isdisjoint(text):
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def meant(text: str) -> bytes | None:
    """The name that a quoted text stands for; None where the text is not in the form of `shown`."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return None
    found = bytearray()
    at, end = 1, len(text) - 1
    while at < end:
        token = _TOKEN.match(text, at, end)
        if token is None:
            return None
        at = token.end()
        raw, units, letter, plain = token.groups()
        if raw:
            found.append(int(raw, 16))
        elif units:
            utf16 = b"".join(bytes.fromhex(unit) for unit in units.split("\\u")[1:])
            found += utf16.decode("utf-16-be", "replace").encode()
        elif letter:
            found += _PLAIN[letter].encode()
        else:
            found += encoded(plain)
    return bytes(found)


def _escaped(char: str) -> str:
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if char.isprintable():
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
