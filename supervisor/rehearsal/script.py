"""A script: what the scripted model says, request by request, and how its server misbehaves.  Data only.

A file (JSON, or TOML by its suffix) holds one script, or several by name:

    {"steps": [
        {"thinking": "Look first.", "calls": [{"name": "read_file", "arguments": {"path": "a.py"}}]},
        {"text": "It prints 4.", "expect": "print"}
    ]}

    {"scripts": {"main": {"steps": [...]}, "other": {"steps": [...]}}}

Each request that is accepted takes the next step; one that is refused takes none.  A script may also have
`cases`, which are chosen by the user's words, so that a person can type in any order.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

DEFAULT_WINDOW = 1_048_565
"""Tokens: the bound that the real server was seen to count with."""


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call.  `arguments`: an object, or a text that is sent as it is, be it JSON or not."""

    name: str
    arguments: dict[str, object] | str = {}
    id: str = ""
    """Empty: one is made up."""


class ScriptedUsage(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens; what is None is counted from the texts (a token is four bytes)."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


class Status(Struct, frozen=True, forbid_unknown_fields=True, tag="status", tag_field="type"):
    """An HTTP error instead of a reply.  `body`: an object is sent as JSON, a text as it is; empty:
    DeepSeek's form around `message`."""

    status: int
    message: str = "scripted error"
    body: dict[str, object] | str = ""
    headers: dict[str, str] = {}


class Reset(Struct, frozen=True, forbid_unknown_fields=True, tag="reset", tag_field="type"):
    """The connection is reset: before the headers (`after` None), or after so many chunks."""

    after: int | None = None


class Close(Struct, frozen=True, forbid_unknown_fields=True, tag="close", tag_field="type"):
    """The stream ends after so many chunks without a finish and without `[DONE]`; `tidy`: as a whole HTTP
    body, else the connection just closes."""

    after: int = 0
    tidy: bool = True


class Stall(Struct, frozen=True, forbid_unknown_fields=True, tag="stall", tag_field="type"):
    """After so many chunks (None: before the headers) nothing comes any more, or only a comment every so many
    seconds, until the client leaves."""

    after: int | None = None
    comment_every: float | None = None


class Html(Struct, frozen=True, forbid_unknown_fields=True, tag="html", tag_field="type"):
    """A web page, as a wrong URL or a captive portal gives."""

    status: int = 200


class Raw(Struct, frozen=True, forbid_unknown_fields=True, tag="raw", tag_field="type"):
    """This text as the body, whatever it is.  `then`: end it, reset the connection, or hold it open."""

    text: str
    content_type: str = "text/event-stream"
    then: str = "end"
    """end | reset | hold"""
    piece: int = 0
    """Bytes per write; 0: all at once."""


Fault = Status | Reset | Close | Stall | Html | Raw


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One reply."""

    thinking: str | None = None
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    usage: ScriptedUsage = ScriptedUsage()
    finish_reason: str = ""
    """Empty: `tool_calls` where there are calls, else `stop`."""
    chunk: int = 24
    """Characters of text, thinking or arguments in one chunk."""
    delay: float = 0.0
    """Seconds before the first byte."""
    pause: float = 0.0
    """Seconds between two chunks."""
    keep_alive: int = 0
    """Comments before the first chunk."""
    fault: Fault | None = None
    expect: str = ""
    """What the last message must contain, else the request is refused with words that say so."""


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """Steps for a user's line that contains `match` (whatever its case); an empty `match` fits any line."""

    match: str
    steps: tuple[Step, ...]


class Script(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one conversation's model says."""

    steps: tuple[Step, ...] = ()
    """Played in order, one per request."""
    cases: tuple[Case, ...] = ()
    """When no step is left, each request whose last message is the user's begins the first case that fits;
    the same request once more, after a fault, goes on in it."""
    repeat_last: bool = False
    """Play the last step for ever instead of refusing when the script is used up."""
    models: tuple[str, ...] = ("deepseek-flash", "deepseek-v4-pro")
    """Names that are accepted; empty: any."""
    window: int = DEFAULT_WINDOW
    """Tokens of messages and reply together."""
    key: str = ""
    """Empty: none is asked for."""
    validate: bool = True
    """False: play to any request, as a lenient server would."""


class _Scripts(Struct, forbid_unknown_fields=True):
    scripts: dict[str, Script]


class ScriptError(ValueError):
    """The file is no script; the message says where and what is allowed."""


def load_scripts(path: Path) -> Mapping[str, Script]:
    """The scripts of a file by name; a single one is named `main`.  Raises ScriptError."""
    try:
        text = path.read_bytes()
        found: object = tomllib.loads(text.decode()) if path.suffix == ".toml" else msgspec.json.decode(text)
        if isinstance(found, dict) and "scripts" in found:
            return msgspec.convert(found, _Scripts).scripts
        return {"main": msgspec.convert(found, Script)}
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # UnicodeDecodeError, TOMLDecodeError and msgspec's errors are ones
        raise ScriptError(f"{path}: {error}") from error
