"""What git's own files say, read by hand: submodules in an index, programs in a configuration.  Pure.

Git runs what a repository's configuration names, some of it on a mere `git status`.  Whoever can write one
can have a program run by the user, so what appears there is looked at.
"""

import re
import struct
from collections.abc import Iterator

_HEADER = struct.Struct(">4sII")
_FIXED = 62
"""Bytes of an entry before its path, without the extended flags."""
_GITLINK = 0o160000
_EXTENDED = 0x4000
_NAME_LENGTH = 0x0FFF
ENTRIES = 200_000
"""Of an index that is looked through: 1.6 µs each."""

_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = re.compile(r"([A-Za-z][\w-]*)\s*(?:=\s*(.*))?$")
_PROGRAMS = re.compile(
    r"core\.(fsmonitor|hookspath|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand)"
    r"|filter\..*\.(clean|smudge|process)|diff\.external|diff\..*\.(command|textconv)|merge\..*\.driver"
    r"|mergetool\..*\.cmd|difftool\..*\.cmd|credential(\..*)?\.helper|gpg(\..*)?\.program|sequence\.editor"
    r"|pager\..*|trailer\..*\.(command|cmd)|uploadpack\.packobjectshook|remote\..*\.(uploadpack|receivepack|vcs)"
    r"|interactive\.difffilter|include(if\..*)?\.path|browser\..*\.cmd|man\..*\.cmd|protocol\.ext\.allow"
)
_SHELL_VALUES = re.compile(r"(alias\..*|submodule\..*\.update)")
"""Programs only where the value begins with an exclamation mark."""
_SWITCHES = frozenset(("", "true", "false", "yes", "no", "on", "off", "0", "1"))


def gitlinks(index: bytes) -> tuple[str, ...]:
    """Paths of the submodules in an index; none where it is no index that we know, or too large."""
    if len(index) < _HEADER.size:
        return ()
    magic, version, count = _HEADER.unpack_from(index)
    if magic != b"DIRC" or version not in (2, 3, 4) or count > ENTRIES:
        return ()
    try:
        return tuple(_links(index, version, count))
    except (IndexError, ValueError, struct.error):
        return ()


def _links(index: bytes, version: int, count: int) -> Iterator[str]:
    at, path = _HEADER.size, b""
    for _ in range(count):
        mode = int.from_bytes(index[at + 24 : at + 28], "big")
        flags = int.from_bytes(index[at + 60 : at + 62], "big")
        start = at + _FIXED + (2 if version >= 3 and flags & _EXTENDED else 0)
        if version == 4:
            dropped, start = _varint(index, start)
            end = index.index(b"\0", start)
            path = path[: len(path) - dropped] + index[start:end]
            at = end + 1
        else:
            length = flags & _NAME_LENGTH
            end = start + length if length < _NAME_LENGTH else index.index(b"\0", start)
            path = index[start:end]
            # Entries are padded to a multiple of eight, with one NUL at least.
            at += (end - at + 8) & ~7
        if mode & 0o170000 == _GITLINK:
            yield path.decode(errors="surrogateescape")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value, at = byte & 0x7F, at + 1
    while byte & 0x80:
        byte = data[at]
        value, at = ((value + 1) << 7) | (byte & 0x7F), at + 1
    return value, at


def programs(config: str) -> tuple[str, ...]:
    """Keys of a configuration that name a program to run, or another file that may."""
    found = []
    for key, value in _settings(config):
        bare = value.strip().strip('"')
        is_switch = key == "core.fsmonitor" and bare.lower() in _SWITCHES
        in_shell = bare.startswith("!") and _SHELL_VALUES.fullmatch(key)
        if in_shell or (_PROGRAMS.fullmatch(key) and not is_switch):
            found.append(key)
    return tuple(dict.fromkeys(found))


def _settings(config: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in re.sub(r"\\\r?\n", "", config).splitlines():
        text = line.strip()
        if found := _SECTION.match(text):
            name, below = found[1].lower(), found[2]
            section = f"{name}.{below}" if below is not None else name
            text = text[found.end() :].strip()
        if text[:1] in ("", "#", ";"):
            continue
        if key := _KEY.match(text):
            yield f"{section}.{key[1].lower()}", key[2] or ""
