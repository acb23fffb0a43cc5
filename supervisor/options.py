"""The options of `agent` as data, and a parser for the plain case that needs nothing but this file.

`RUN_OPTIONS` is the one table: the parser below and the command line with help texts (supervisor/commands.py)
are both built from it.  The parser returns None for whatever is not plain (help, an unknown flag, a bad
number); then the other one takes over and words the error.  No msgspec here: a frozen dataclass costs the
start of the REPL less.  What is *not* here: what the options mean for the settings (supervisor/settings.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import assert_never

from supervisor.exits import USAGE, StopError

NO_MODEL = (
    "there is no model to talk to. Set DEEPSEEK_API_KEY, or name a compatible server with --base-url URL "
    "(or AGENT_BASE_URL), or see how it works without one: agent rehearse"
)

REHEARSAL = "REHEARSAL: a script plays the model's part"
"""Stands on every screen of a rehearsal, whichever room draws it."""

Value = str | float | int | bool | tuple[str, ...] | None
Values = dict[str, Value]


@dataclass(frozen=True, slots=True)
class New:
    """A new conversation."""


@dataclass(frozen=True, slots=True)
class Continue:
    """The newest conversation of this project."""


@dataclass(frozen=True, slots=True)
class Resume:
    id: str


@dataclass(frozen=True, slots=True)
class Fork:
    """A copy of that conversation, under an id of its own."""

    id: str


Start = New | Continue | Resume | Fork


class Kind(Enum):
    """What follows the flag."""

    TEXT = "text"
    SECONDS = "seconds"
    COUNT = "count"
    SWITCH = "switch"
    WORDS = "words"
    """A text; the flag may stand more than once."""


@dataclass(frozen=True, slots=True)
class Option:
    """One flag of `agent run`; its field is the flag as a Python name.

    `bare`: `agent` without a command knows it too.
    """

    field: str
    kind: Kind
    metavar: str
    help: str
    bare: bool = True

    @property
    def flag(self) -> str:
        return "--" + self.field.rstrip("_").replace("_", "-")

    @property
    def default(self) -> Value:
        match self.kind:
            case Kind.SWITCH:
                return False
            case Kind.WORDS:
                return ()
            case Kind.TEXT | Kind.SECONDS | Kind.COUNT:
                return None
            case _ as never:
                assert_never(never)


RUN_OPTIONS = (
    Option("model", Kind.TEXT, "NAME", "The model to ask for."),
    Option("base_url", Kind.TEXT, "URL", "The server's address, for instance http://127.0.0.1:8080/v1."),
    Option("workspace", Kind.TEXT, "DIR", "The directory to work in; otherwise the current one."),
    Option(
        "sandbox",
        Kind.TEXT,
        "MODE",
        "What tools may write: read-only, workspace-write (the default) or unconfined.",
    ),
    Option(
        "allow",
        Kind.WORDS,
        "WORD",
        "Allow without asking: read:PATH, write:PATH, network:HOST:PORT, git-write, unconfined, or a rule "
        'such as "run_command git push*". May be given more than once.',
    ),
    Option("continue_", Kind.SWITCH, "", "Go on with this project's newest conversation."),
    Option(
        "resume",
        Kind.TEXT,
        "ID",
        "Go on with that conversation (without an id: the newest); `agent sessions` lists them.",
    ),
    Option("fork", Kind.TEXT, "ID", "Begin with a copy of that conversation."),
    Option("file", Kind.TEXT, "FILE", "Read the task from a file.", bare=False),
    Option("json", Kind.SWITCH, "", "Print one event per line, as JSON.", bare=False),
    Option("timeout", Kind.SECONDS, "S", "End the turn after so many seconds (exit 124).", bare=False),
    Option("max_tool_rounds", Kind.COUNT, "N", "Rounds with tools at most (exit 4 above).", bare=False),
)
BARE_OPTIONS = tuple(option for option in RUN_OPTIONS if option.bare)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`agent run`.  `task` is "-" for stdin and None where `file` names it; `timeout` in seconds."""

    task: str | None = None
    file: str | None = None
    json: bool = False
    workspace: str | None = None
    model: str | None = None
    base_url: str | None = None
    sandbox: str | None = None
    allow: tuple[str, ...] = ()
    timeout: float | None = None
    max_tool_rounds: int | None = None
    start: Start = New()


@dataclass(frozen=True, slots=True)
class ReplOptions:
    """`agent` without a command.  `rehearsal`: the server behind `base_url` plays a script."""

    workspace: str | None = None
    model: str | None = None
    base_url: str | None = None
    sandbox: str | None = None
    allow: tuple[str, ...] = ()
    start: Start = New()
    rehearsal: bool = False


def plain_run(arguments: Sequence[str]) -> RunOptions | None:
    """The options of `agent run ARGUMENTS`, or None where it is not plain.  Raises StopError."""
    parsed = _parse(arguments, RUN_OPTIONS)
    if parsed is None or len(parsed[1]) > 1:
        return None
    values, positional = parsed
    return run_options(values, positional[0] if positional else None)


def plain_bare(arguments: Sequence[str]) -> ReplOptions | None:
    """The options of `agent ARGUMENTS` without a command, or None where it is not plain."""
    parsed = _parse(arguments, BARE_OPTIONS)
    if parsed is None or parsed[1]:
        return None
    return repl_options(parsed[0])


def run_options(values: Mapping[str, Value], task: str | None) -> RunOptions:
    """Checked options from the table's fields.  Raises StopError(USAGE)."""
    if task is not None and values.get("file") is not None:
        raise StopError("a task and --file exclude each other; put the task into the file", USAGE)
    if task is None and values.get("file") is None:
        raise StopError('no task; try: agent run "task", agent run - (stdin), agent run --file FILE', USAGE)
    timeout, rounds = values.get("timeout"), values.get("max_tool_rounds")
    if isinstance(timeout, float) and not (isfinite(timeout) and timeout > 0):
        raise StopError(f"--timeout takes seconds above 0, not {timeout:g}", USAGE)
    if isinstance(rounds, int) and rounds < 1:
        raise StopError(f"--max-tool-rounds takes a number from 1 on, not {rounds}", USAGE)
    return RunOptions(
        task=task,
        file=_text(values, "file"),
        json=bool(values.get("json")),
        workspace=_text(values, "workspace"),
        model=_text(values, "model"),
        base_url=_text(values, "base_url"),
        sandbox=_text(values, "sandbox"),
        allow=_words(values, "allow"),
        timeout=timeout if isinstance(timeout, float) else None,
        max_tool_rounds=rounds if isinstance(rounds, int) else None,
        start=_start(values),
    )


def repl_options(values: Mapping[str, Value]) -> ReplOptions:
    """Checked options of the bare command.  Raises StopError(USAGE)."""
    return ReplOptions(
        workspace=_text(values, "workspace"),
        model=_text(values, "model"),
        base_url=_text(values, "base_url"),
        sandbox=_text(values, "sandbox"),
        allow=_words(values, "allow"),
        start=_start(values),
    )


MEANS = ("native", "processes", "bubblewrap", "landlock")
"""Of the sandbox, the strongest first; `processes` is a PID namespace within `native`."""


def means(names: str) -> tuple[str, ...]:
    """The names of `agent doctor --without NAMES`.  Raises StopError(USAGE)."""
    named = tuple(name.strip() for name in names.split(",") if name.strip())
    for name in named:
        if name not in MEANS:
            raise StopError(f"--without {name}: there are {', '.join(MEANS)}", USAGE)
    return named


def with_resumed(arguments: Sequence[str]) -> list[str]:
    """The arguments of the bare command, a `--resume` without an id written as `--continue`."""
    following = [*arguments[1:], "-"][: len(arguments)]
    return [
        "--continue" if argument == "--resume" and after.startswith("-") else argument
        for argument, after in zip(arguments, following, strict=True)
    ]


def _text(values: Mapping[str, Value], field: str) -> str | None:
    value = values.get(field)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise StopError(f"--{field.replace('_', '-')} is empty", USAGE)
    return value


def _words(values: Mapping[str, Value], field: str) -> tuple[str, ...]:
    given = values.get(field)
    words = tuple(given) if isinstance(given, tuple | list) else ()
    if any(not one.strip() for one in words):
        raise StopError(f"--{field.replace('_', '-')} is empty", USAGE)
    return words


def _start(values: Mapping[str, Value]) -> Start:
    chosen: list[Start] = []
    if values.get("continue_"):
        chosen.append(Continue())
    if (resumed := _text(values, "resume")) is not None:
        chosen.append(Resume(resumed))
    if (forked := _text(values, "fork")) is not None:
        chosen.append(Fork(forked))
    if len(chosen) > 1:
        raise StopError("--continue, --resume and --fork exclude each other; give one of them", USAGE)
    return chosen[0] if chosen else New()


def _parse(arguments: Sequence[str], options: Sequence[Option]) -> tuple[Values, list[str]] | None:
    """Values by field and the positional arguments, or None for what is not plain."""
    known = {option.flag: option for option in options}
    values: Values = {option.field: option.default for option in options}
    positional: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if not argument.startswith("-") or argument == "-":
            positional.append(argument)
            continue
        flag, equals, text = argument.partition("=")
        option = known.get(flag)
        if option is None or (option.kind is Kind.SWITCH and equals):
            return None
        if option.kind is Kind.SWITCH:
            values[option.field] = True
            continue
        given = text if equals else next(waiting, None)
        if given is None or (given.startswith("-") and not equals):
            return None
        value = _converted(option.kind, given, values[option.field])
        if value is None:
            return None
        values[option.field] = value
    return values, positional


def _converted(kind: Kind, given: str, before: Value) -> Value:
    """The value, with what the flag said `before` where it may be repeated; None for a bad number."""
    try:
        match kind:
            case Kind.SECONDS:
                return float(given)
            case Kind.COUNT:
                return int(given)
            case Kind.TEXT | Kind.SWITCH:
                return given
            case Kind.WORDS:
                return (*before, given) if isinstance(before, tuple) else (given,)
            case _ as never:
                assert_never(never)
    except ValueError:
        return None
