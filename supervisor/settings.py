"""Settings: flags beat the environment, that beats the project's file, that beats the user's file.

    environment     AGENT_HOME, AGENT_MODEL, AGENT_BASE_URL

A project's file is a stranger's: only PROJECT_KEYS and, to lower them, PROJECT_KEYS_LOWER are read from it;
the others are named in one notice and nothing is done with them.  Reading settings runs nothing and connects
to nobody.  The key of the model's server is no setting: `read_key` takes it from the environment.  What a
file may hold is in `Choices`.  What is *not* here: where the files and the state lie (places.py).
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from protocol.policy import Limits
from supervisor.exits import USAGE, StopError
from supervisor.harmless import harmless_line
from supervisor.places import home_of, project_file, project_of, user_file, workspace_of

BUDGET_MAX = 500_000
"""Tokens.  What a request may use at most by default: beyond that, models lose track and rounds cost much."""
OUTPUT_MAX = 32_000
"""Tokens.  What a reply may have, thinking included, unless the window is small."""
FILE_MAX = 256 * 1024
"""Bytes.  A larger settings file is no settings file."""
PROJECT_KEYS = ("show_tool_results", "command_timeout")
"""What a project may set as it likes."""
PROJECT_KEYS_LOWER = ("tool_result_cap_bytes", "output_file_cap", "max_tool_rounds_per_turn")
"""What a project may only make smaller than the user has it."""


class SettingsError(StopError):
    """A setting is wrong: the message has the place, the key and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


def _number(low: int, high: int, unit: str) -> Meta:
    return Meta(ge=low, le=high, description=f"a whole number of {unit}, {low} to {high}")


_Name = Annotated[str, Meta(min_length=1, max_length=200, description="a text of 1 to 200 characters")]
_Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*$", description="the name of an environment variable")]
_Seconds = Annotated[float, Meta(ge=1, le=600, description="a number of seconds, 1 to 600")]
_Choice = Literal["off", "summary", "preview", "full"]
_Shown = Annotated[_Choice, Meta(description='"off", "summary", "preview", "full"')]
_Yes = Annotated[bool, Meta(description="true or false")]


class Choices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a settings file, with their defaults."""

    model: _Name = "deepseek-flash"
    base_url: _Name = "https://api.deepseek.com"
    key_env: _Variable = "DEEPSEEK_API_KEY"
    """Which variable holds the key; the key itself never stands in a file of ours."""
    thinking: _Yes = True
    window: Annotated[int, _number(4_000, 100_000_000, "tokens")] = 1_000_000
    """What the model takes in one request, its reply included."""
    max_output_tokens: Annotated[int, _number(256, 1_000_000, "tokens")] = OUTPUT_MAX
    """Without this key: 32,000, or a quarter of the window where that is less."""
    budget_tokens: Annotated[int, _number(2_000, 100_000_000, "tokens")] = BUDGET_MAX
    max_tool_rounds_per_turn: Annotated[int, _number(1, 10_000, "rounds")] = 200
    """After so many the model is asked for a summary, without tools."""
    max_turns_per_session: Annotated[int, _number(1, 1_000_000, "turns")] = 500
    """An emergency brake on an unattended process, no limit on a conversation."""
    tool_result_cap_bytes: Annotated[int, _number(1_000, 1_000_000, "bytes")] = 32_000
    """What the model gets of one result: about 10,000 tokens, which stay and cost in every later round."""
    output_file_cap: Annotated[int, _number(64_000, 1 << 40, "bytes")] = 256 * 1024 * 1024
    """What is kept of one command's output: enough for any log, too little to fill a disk."""
    command_timeout: _Seconds = 120.0
    """A command's time when the model names none."""
    show_tool_results: _Shown = "preview"
    """What the user is shown of a result; it never changes what the model gets."""
    mask_transcript: _Yes = False
    """Whether known shapes of keys are masked before they enter the conversation."""


class Flags(Struct, frozen=True, kw_only=True):
    """What the command line may set.  `timeout`: seconds for a whole headless run, only checked here."""

    model: str | None = None
    base_url: str | None = None
    workspace: str | None = None
    timeout: float | None = None
    max_tool_rounds: int | None = None


class Settings(Choices, frozen=True, kw_only=True):
    """All settings of a process, with the places that follow from them.  Paths are absolute and real."""

    home: Path
    """The state directory."""
    workspace: Path
    root: Path
    """The project's root: git's top level, else the workspace."""
    project: str
    """The project's key."""
    configured: bool = False
    """Whether a flag, the environment or the user's file has named a server."""
    rehearsal: bool = False
    """A script plays the model's part."""

    @property
    def budget(self) -> int:
        """Tokens that a request may use."""
        return min(self.budget_tokens, self.window - self.max_output_tokens)

    @property
    def limits(self) -> Limits:
        return Limits(
            result_cap_bytes=self.tool_result_cap_bytes,
            output_file_cap=self.output_file_cap,
            command_seconds=self.command_timeout,
        )


class Loaded(Struct, frozen=True):
    """`notices`: lines for the user, harmless to print."""

    settings: Settings
    notices: tuple[str, ...] = ()


def load(flags: Flags, environ: Mapping[str, str], cwd: Path) -> Loaded:
    """The settings of this process.  Raises SettingsError, or StopError for a missing workspace."""
    workspace = workspace_of(flags.workspace, cwd)
    root, project = project_of(workspace)
    path = user_file(environ)
    user, text = _read(path)
    users = _check(user, str(path), text)
    path = project_file(root)
    offered, text = _read(path)
    taken, ignored = _from_project(offered, users)
    _check(taken, str(path), text)
    named = _named(flags, environ)
    chosen = {**user, **taken, **named}
    window = msgspec.convert(chosen, Choices).window
    chosen.setdefault("max_output_tokens", min(OUTPUT_MAX, window // 4))
    chosen |= {"home": home_of(environ, cwd), "workspace": workspace, "root": root, "project": project}
    chosen["configured"] = bool({**user, **named}.get("base_url"))
    settings = msgspec.convert(chosen, Settings)
    if (reply := settings.max_output_tokens) >= settings.window:
        raise SettingsError(f"max_output_tokens ({reply}) must be smaller than window ({settings.window})")
    return Loaded(settings, (_notice(path, ignored),) if ignored else ())


def read_key(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The key of the model's server, or None.  Raises SettingsError where it can't be sent."""
    key = environ.get(settings.key_env, "").strip()
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"the key in {settings.key_env} has characters that can't be sent; set it anew")
    return key or None


def _named(flags: Flags, environ: Mapping[str, str]) -> dict[str, object]:
    """What the environment and the flags name, checked.  An empty variable counts as none."""
    named: dict[str, object] = {}
    for key, value, place in (
        ("model", environ.get("AGENT_MODEL") or None, "AGENT_MODEL"),
        ("base_url", environ.get("AGENT_BASE_URL") or None, "AGENT_BASE_URL"),
        ("model", flags.model, "--model"),
        ("base_url", flags.base_url, "--base-url"),
        ("max_tool_rounds_per_turn", flags.max_tool_rounds, "--max-tool-rounds"),
    ):
        if value is not None:
            _check({key: value}, place, "")
            named[key] = value
    if flags.timeout is not None and not 0 < flags.timeout < float("inf"):
        raise SettingsError("--timeout: a number of seconds above 0 is wanted")
    return named


def _from_project(offered: Mapping[str, object], users: Choices) -> tuple[dict[str, object], list[str]]:
    """What is taken from a project's file, and the names of what is not."""
    taken: dict[str, object] = {}
    ignored: list[str] = []
    for key, value in offered.items():
        if key in PROJECT_KEYS:
            taken[key] = value
        elif key not in PROJECT_KEYS_LOWER:
            ignored.append(key)
        elif isinstance(value, int) and value > getattr(users, key):
            ignored.append(f"{key} (may only be lowered)")
        else:
            taken[key] = value
    return taken, ignored


def _notice(path: Path, ignored: list[str]) -> str:
    names = ", ".join(harmless_line(name[:60]) for name in ignored[:10])
    more = f" and {len(ignored) - 10} more" if len(ignored) > 10 else ""
    return f"{harmless_line(str(path))}: not read from a project's file: {names}{more}"


def _read(path: Path) -> tuple[dict[str, object], str]:
    """The keys of a settings file and its text; nothing where there is no file."""
    try:
        # A stranger's file may be a pipe.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SettingsError(f"{path}: is not a file")
            data = file.read(FILE_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}, ""
    except OSError as error:
        raise SettingsError(f"{path}: can't be read: {error.strerror}") from error
    if len(data) > FILE_MAX:
        raise SettingsError(f"{path}: is larger than {FILE_MAX} bytes")
    import tomllib  # late: most starts have no settings file

    try:
        text = data.decode("utf-8-sig")
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}, line {line}: is not UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: is not TOML: {harmless_line(str(error))}") from error


def _check(values: Mapping[str, object], place: str, text: str) -> Choices:
    """The values as choices.  Raises SettingsError; `text` is searched for the line."""
    try:
        choices = msgspec.convert(dict(values), Choices)
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


def _wrong(reason: str, place: str, text: str) -> str:
    if unknown := re.search(r"unknown field `(.*)`", reason, re.DOTALL):
        key, known = unknown[1], ", ".join(Choices.__struct_fields__)
        return f"{_at(place, text, key)}: there is no setting {harmless_line(key[:60])}; there are: {known}"
    key = reason.partition("`$.")[2].partition("`")[0]
    allowed = get_type_hints(Choices, include_extras=True)[key].__metadata__[0].description
    return f"{_at(place, text, key)}: {key}: {reason.partition(' - at ')[0]}; allowed: {allowed}"


def _at(place: str, text: str, key: str) -> str:
    """The place with the number of the line where the key stands, if it can be found."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*\[*\s*[\"']?{re.escape(key)}\b", line):
            return f"{harmless_line(place)}, line {number}"
    return harmless_line(place)
