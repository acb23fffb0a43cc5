"""The keys of a settings file with their defaults: the tables `Choices` and, in it, sandbox, limits, rules.

What is *not* here: reading files and the words of errors (files.py), which source beats which (settings.py).
"""

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from protocol.policy import Limits, Mode, Network, Rung
from supervisor.choices.words import host, place, rule, secret_variable, size, variable

BUDGET_MAX = 500_000
"""Tokens.  What a request may use at most by default: beyond that, models lose track and rounds cost much."""
OUTPUT_MAX = 32_000
"""Tokens.  What a reply may have, thinking included, unless the window is small."""
_LIMITS = Limits()


def _number(low: int, high: int, unit: str) -> Meta:
    return Meta(ge=low, le=high, description=f"a whole number of {unit}, {low} to {high}")


_Name = Annotated[str, Meta(min_length=1, max_length=200, description="a text of 1 to 200 characters")]
_Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*$", description="the name of an environment variable")]
_Seconds = Annotated[float, Meta(ge=1, le=600, description="a number of seconds, 1 to 600")]
_Choice = Literal["off", "summary", "preview", "full"]
_Shown = Annotated[_Choice, Meta(description='"off", "summary", "preview", "full"')]
_Yes = Annotated[bool, Meta(description="true or false")]
_Bytes = Annotated[int, Meta(ge=1, le=1 << 50, description='bytes as a number, or as "512M", "4G"')]
_Memory = Annotated[
    int, Meta(ge=64 << 20, le=1 << 50, description='bytes as a number, or as "512M", "4G"; at least 64M')
]
"""Less than a shell with a few programs needs would end each command."""
_Places = Annotated[tuple[str, ...], Meta(description="a list of paths that begin with / or ~/")]
_Rules = Annotated[
    tuple[str, ...],
    Meta(
        max_length=500,
        description='a list of at most 500 "TOOL" or "TOOL PATTERN", as in "run_command git push*"',
    ),
]


class SandboxChoices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[sandbox]`: what tools may touch."""

    mode: Annotated[Mode, Meta(description='"read-only", "workspace-write", "unconfined"')] = (
        Mode.WORKSPACE_WRITE
    )
    require: Annotated[Rung, Meta(description='"off", "landlock", "full"')] = Rung.OFF
    """The lowest rung on which tools run at all.  Off: no floor, and below the lowest each command asks."""
    network: Annotated[Network, Meta(description='"off", "listed", "on"')] = Network.OFF
    hosts: Annotated[
        tuple[str, ...], Meta(description='a list of "HOST" (port 443) or "HOST:PORT"; *.HOST is any below')
    ] = ()
    """What `network = "listed"` lets through."""
    read: _Places = ()
    """What commands may read beside the usual places."""
    write: _Places = ()
    """What may be written beside the workspace."""
    environment: Annotated[tuple[str, ...], Meta(description="a list of names of variables")] = ()
    """Passed to commands beside the usual ones."""
    environment_secret: Annotated[tuple[str, ...], Meta(description="a list of names of variables")] = ()
    """The same for names that look like secrets: a key that commands really need stands here on purpose."""
    hide_env_files: _Yes = True
    """Whether `.env` files of the workspace can't be read."""
    dry_run_bytes: _Bytes = 200 * 1024 * 1024
    """What a dry run copies at most, where no layer can be laid over the workspace: a second or two."""
    dry_run_files: Annotated[int, _number(1, 10_000_000, "files and directories")] = 20_000
    """The same as a number of files and directories."""


class LimitsChoices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[limits]`; protocol.policy.Limits says of what each is a limit."""

    memory: _Memory | None = None
    """Without this key it follows from the machine's memory."""
    processes: Annotated[int, _number(16, 1_000_000, "processes")] = _LIMITS.processes
    cpu_seconds: Annotated[int, _number(1, 1_000_000, "seconds")] = _LIMITS.cpu_seconds
    open_files: Annotated[int, _number(256, 1_000_000, "files")] = _LIMITS.open_files
    """At least so many that a worker has room for its own: a shell starts with one of a high number."""
    file_size: _Bytes = _LIMITS.file_bytes
    output: _Bytes = _LIMITS.output_bytes
    disk: _Bytes = _LIMITS.disk_bytes


class RulesChoices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[rules]`: deny beats ask beats allow."""

    allow: _Rules = ()
    ask: _Rules = ()
    deny: _Rules = ()


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
    sandbox: Annotated[SandboxChoices, Meta(description="a table")] = SandboxChoices()
    limits_chosen: Annotated[LimitsChoices, Meta(description="a table")] = field(
        default=LimitsChoices(), name="limits"
    )
    """The table `limits`; with the other limits it becomes `Settings.limits`."""
    rules: Annotated[RulesChoices, Meta(description="a table")] = RulesChoices()


def fields(table: type[Struct]) -> dict[str, str]:
    """The keys of a table as a file has them, with the names of their fields."""
    return dict(zip(table.__struct_encode_fields__, table.__struct_fields__, strict=True))


TABLES: dict[str, type[Struct]] = {"sandbox": SandboxChoices, "limits": LimitsChoices, "rules": RulesChoices}
"""The tables that a file may hold."""


WORDS: dict[str, Callable[[str], str | int]] = {
    **dict.fromkeys(
        ("limits.memory", "limits.file_size", "limits.output", "limits.disk", "sandbox.dry_run_bytes"), size
    ),
    "sandbox.hosts": host,
    **dict.fromkeys(("sandbox.read", "sandbox.write"), place),
    "sandbox.environment": variable,
    "sandbox.environment_secret": secret_variable,
    **dict.fromkeys(("rules.allow", "rules.ask", "rules.deny"), rule),
}
"""What makes the plain form of a text, or of each text of a list, at this key."""


def value_of(choices: Choices, key: str) -> object:
    """What stands at a key such as `model` or `limits.memory`."""
    table, dot, name = key.rpartition(".")
    inner = getattr(choices, fields(Choices)[table]) if dot else choices
    return getattr(inner, fields(type(inner))[name])
