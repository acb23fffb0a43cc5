"""A settings file: read with its digest, checked, and what is said of a wrong one.

An error has the place, the line where the key stands, the key and what is allowed.  What is *not* here: the
keys (tables.py), which source beats which (settings.py).
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from supervisor.choices.tables import TABLES, WORDS, Choices, fields
from supervisor.exits import USAGE, StopError
from supervisor.harmless import harmless_line

FILE_MAX = 256 * 1024
"""Bytes.  A larger settings file is no settings file."""
Values = dict[str, object]
"""What TOML holds: tables in it are dictionaries."""
_HEADER = re.compile(r"\s*\[+([^\]]*)\]")
_KEY = re.compile(r"\s*([^=#]+?)\s*=")


class SettingsError(StopError):
    """A setting is wrong: the message has the place, the key and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


class File(Struct, frozen=True):
    """A settings file as it was read, once; without one, all but the path is empty."""

    path: Path
    values: Values
    text: str = ""
    digest: str = ""
    """sha256 of its bytes, in hex."""


def read(path: Path) -> File:
    """The file at this path.  Raises SettingsError for what is no settings file."""
    try:
        # A stranger's file may be a pipe.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SettingsError(f"{path}: is not a file")
            data = file.read(FILE_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return File(path, {})
    except OSError as error:
        raise SettingsError(f"{path}: can't be read: {error.strerror}") from error
    if len(data) > FILE_MAX:
        raise SettingsError(f"{path}: is larger than {FILE_MAX} bytes")
    import tomllib  # late: most starts have no settings file

    try:
        text = data.decode("utf-8-sig")
        return File(path, tomllib.loads(text), text, hashlib.sha256(data).hexdigest())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}, line {line}: is not UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: is not TOML: {harmless_line(str(error))}") from error


def check(values: Mapping[str, object], place: str, text: str = "") -> Choices:
    """The values as choices.  Raises SettingsError; `text` is searched for the line."""
    try:
        choices = msgspec.convert(plain(values, place, text), Choices)
    except msgspec.ValidationError as error:
        raise SettingsError(_wrong(str(error), place, text)) from error
    url = choices.base_url
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not re.fullmatch(r"[!-~]+", url):
        reason = "is no http:// or https:// address"
    elif parts.username is not None or parts.query or parts.fragment:
        reason, url = "must not hold a name, a password, a query or a fragment", f"{parts.scheme}://{host}"
    else:
        return choices
    raise SettingsError(f"{_at(place, text, 'base_url')}: base_url {reason}: {harmless_line(url)}")


def plain(values: Mapping[str, object], place: str, text: str = "") -> Values:
    """The same values, each word in its plain form.  Raises SettingsError for what is no such word."""
    made = dict(values)
    for key, form in WORDS.items():
        table_name, _, name = key.partition(".")
        table = made.get(table_name)
        if not isinstance(table, dict) or name not in table:
            continue
        try:
            formed = _formed(table[name], form)
        except ValueError as error:
            raise SettingsError(_not_allowed(str(error), key, place, text)) from error
        made[table_name] = {**table, name: formed}
    return made


def _formed(value: object, form: Callable[[str], str | int]) -> object:
    """What is neither a text nor a list of texts stays, since its type is wrong or right already."""
    match value:
        case str():
            return form(value)
        case list():
            return [form(one) if isinstance(one, str) else one for one in value]
        case _:
            return value


def _wrong(reason: str, place: str, text: str) -> str:
    # A name in it may be anything; only the last path is msgspec's, and only below a table there is one.
    what, at, path = reason.rpartition(" - at `$.")
    key = re.sub(r"\[[^\]]*\]", "", path.rstrip("`"))
    if "unknown field `" in reason and not (at and key in TABLES and what.endswith("`")):
        what, key = reason, ""
    if unknown := re.search(r"unknown field `(.*)`", what, re.DOTALL):
        table = TABLES.get(key, Choices)
        known = ", ".join(fields(table))
        name = f"{key}.{unknown[1]}" if key else unknown[1]
        return f"{_at(place, text, name)}: there is no setting {harmless_line(name[:60])}; there are: {known}"
    return _not_allowed(what, key, place, text)


def _not_allowed(what: str, key: str, place: str, text: str) -> str:
    table_name, dot, name = key.rpartition(".")
    table = TABLES[table_name] if dot else Choices
    allowed = get_type_hints(table, include_extras=True)[fields(table)[name]]
    return f"{_at(place, text, key)}: {key}: {harmless_line(what)}; allowed: {_described(allowed)}"


def _described(hint: object) -> str:
    """The description of a field's type, also of one that may be left out."""
    for part in (hint, *getattr(hint, "__args__", ())):
        for meta in getattr(part, "__metadata__", ()):
            return str(meta.description)
    raise AssertionError(f"a setting without a description: {hint}")


def _at(place: str, text: str, key: str) -> str:
    """The place with the number of the line where the key, else its table, stands, if it can be found."""
    lines = _lines(text)
    while key:
        if key in lines:
            return f"{harmless_line(place)}, line {lines[key]}"
        key = key.rpartition(".")[0]
    return harmless_line(place)


def _lines(text: str) -> dict[str, int]:
    """Where each key stands first: `sandbox.mode` by its own line, whether below a header or dotted."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _unquoted(header[1])
            found.setdefault(table, number)
        elif named := _KEY.match(line):
            key = _unquoted(named[1])
            found.setdefault(f"{table}.{key}" if table else key, number)
    return found


def _unquoted(key: str) -> str:
    return re.sub(r"\s*\.\s*", ".", key).replace('"', "").replace("'", "").strip()
