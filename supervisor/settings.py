"""Settings: flags beat the environment, that beats the project's file, that beats the user's file.

    environment     AGENT_HOME, AGENT_MODEL, AGENT_BASE_URL, AGENT_SANDBOX

What a file may hold is in choices/tables.py, what of it a project may say in choices/project.py.  Reading
settings runs nothing and connects to nobody.  The key of the model's server is no setting: `read_key` takes
it from the environment.  What is *not* here: where the files and the state lie (places.py).
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from protocol.permission import Kind, Permission, PermissionWordError, parse
from protocol.policy import Limits
from supervisor.choices import project, trusted
from supervisor.choices.files import File, SettingsError, Values, check, plain, read
from supervisor.choices.tables import OUTPUT_MAX, Choices
from supervisor.choices.words import begins_with_tool
from supervisor.harmless import harmless_line
from supervisor.places import home_of, project_file, project_of, user_file, workspace_of

__all__ = ["Choices", "Flags", "Loaded", "Settings", "SettingsError", "load", "read_key"]


class Flags(Struct, frozen=True, kw_only=True):
    """What the command line may set.  `timeout`: seconds for a whole headless run, only checked here."""

    model: str | None = None
    base_url: str | None = None
    workspace: str | None = None
    timeout: float | None = None
    max_tool_rounds: int | None = None
    sandbox: str | None = None
    """The mode."""
    allow: tuple[str, ...] = ()
    """Words of protocol/permission.py, and rules."""


class Settings(Choices, frozen=True, kw_only=True):
    """All settings of a process, with the places that follow from them.  Paths are absolute and real, but
    for those in `sandbox.read` and `sandbox.write`, which are absolute only."""

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
    granted: tuple[Permission, ...] = ()
    """What `--allow` permits to this run."""

    @property
    def budget(self) -> int:
        """Tokens that a request may use."""
        return min(self.budget_tokens, self.window - self.max_output_tokens)

    @property
    def limits(self) -> Limits:
        chosen = self.limits_chosen
        return Limits(
            result_cap_bytes=self.tool_result_cap_bytes,
            output_file_cap=self.output_file_cap,
            command_seconds=self.command_timeout,
            memory_bytes=chosen.memory or 0,
            processes=chosen.processes,
            cpu_seconds=chosen.cpu_seconds,
            open_files=chosen.open_files,
            file_bytes=chosen.file_size,
            output_bytes=chosen.output,
            disk_bytes=chosen.disk,
        )


class Loaded(Struct, frozen=True):
    """`notices`: lines for the user, harmless to print."""

    settings: Settings
    notices: tuple[str, ...] = ()


def load(flags: Flags, environ: Mapping[str, str], cwd: Path) -> Loaded:
    """The settings of this process.  Raises SettingsError, or StopError for a missing workspace."""
    workspace = workspace_of(flags.workspace, cwd)
    root, key = project_of(workspace)
    home = home_of(environ, cwd)
    user = read(user_file(environ))
    users = check(user.values, str(user.path), user.text)
    theirs = read(project_file(root))
    offer = offered(theirs, users)
    trust = trusted.trusted(home, root, key)
    is_trusted = trust == theirs.digest and bool(trust)
    named, granted = _named(flags, environ)
    taken = project.merged(offer.tightening, offer.widening if is_trusted else {})
    chosen = project.merged(user.values, taken, named)
    choices = msgspec.convert(plain(chosen, ""), Choices)
    _key_stays(choices)
    reply = min(OUTPUT_MAX, choices.window // 4)
    if "max_output_tokens" not in chosen:
        choices = msgspec.structs.replace(choices, max_output_tokens=reply)
    settings = Settings(
        **{name: getattr(choices, name) for name in choices.__struct_fields__},
        home=home,
        workspace=workspace,
        root=root,
        project=key,
        configured=bool("base_url" in named or user.values.get("base_url")),
        granted=granted,
    )
    settings = _expanded(settings, environ)
    if (reply := settings.max_output_tokens) >= settings.window:
        raise SettingsError(f"max_output_tokens ({reply}) must be smaller than window ({settings.window})")
    waiting = () if is_trusted else offer.widening_keys
    notice = _notice(theirs.path, offer.ignored, waiting, changed=bool(trust))
    return Loaded(settings, (notice,) if notice else ())


def offered(file: File, users: Choices) -> project.Offer:
    """What a project's file says, sorted.  Raises SettingsError for a value that no file may have."""
    kept, ignored = project.known(file.values)
    return project.sorted_out(kept, ignored, check(kept, str(file.path), file.text), users)


def read_key(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The key of the model's server, or None.  Raises SettingsError where it can't be sent."""
    key = environ.get(settings.key_env, "").strip()
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"the key in {settings.key_env} has characters that can't be sent; set it anew")
    return key or None


def _named(flags: Flags, environ: Mapping[str, str]) -> tuple[Values, tuple[Permission, ...]]:
    """What the environment and the flags name, checked.  An empty variable counts as none."""
    rules, granted = _allowed(flags, environ)
    sources: list[Values] = []
    for key, value, place in (
        ("model", environ.get("AGENT_MODEL") or None, "AGENT_MODEL"),
        ("base_url", environ.get("AGENT_BASE_URL") or None, "AGENT_BASE_URL"),
        ("sandbox.mode", environ.get("AGENT_SANDBOX") or None, "AGENT_SANDBOX"),
        ("model", flags.model, "--model"),
        ("base_url", flags.base_url, "--base-url"),
        ("sandbox.mode", flags.sandbox, "--sandbox"),
        ("max_tool_rounds_per_turn", flags.max_tool_rounds, "--max-tool-rounds"),
        ("rules.allow", rules or None, "--allow"),
    ):
        if value is not None:
            table, dot, name = key.rpartition(".")
            source: Values = {table: {name: value}} if dot else {name: value}
            check(source, place)
            sources.append(source)
    if flags.timeout is not None and not 0 < flags.timeout < float("inf"):
        raise SettingsError("--timeout: a number of seconds above 0 is wanted")
    return project.merged(*sources), granted


def _allowed(flags: Flags, environ: Mapping[str, str]) -> tuple[list[str], tuple[Permission, ...]]:
    """The words of `--allow`: those that begin with a tool are rules, the others permissions."""
    rules = [given for given in flags.allow if begins_with_tool(given)]
    granted: list[Permission] = []
    for given in flags.allow:
        if given in rules:
            continue
        try:
            permission = parse(given)
        except PermissionWordError as error:
            words = f"--allow: {harmless_line(str(error))}; or a rule: a tool, or a tool and a pattern"
            raise SettingsError(words) from error
        if permission.kind in (Kind.READ, Kind.WRITE):
            permission = Permission(permission.kind, _below_home(permission.target, environ))
        granted.append(permission)
    return rules, tuple(granted)


def _key_stays(choices: Choices) -> None:
    """The key of the model's server is the supervisor's alone."""
    for key in ("environment", "environment_secret"):
        if choices.key_env in getattr(choices.sandbox, key):
            words = (
                f"sandbox.{key}: {choices.key_env} holds the key of the model's server; commands never get it"
            )
            raise SettingsError(words)


def _expanded(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The same with `~` resolved."""
    sandbox = settings.sandbox
    if not sandbox.read and not sandbox.write:
        return settings
    whole = {
        name: tuple(_below_home(place, environ) for place in places)
        for name, places in (("read", sandbox.read), ("write", sandbox.write))
    }
    return msgspec.structs.replace(settings, sandbox=msgspec.structs.replace(sandbox, **whole))


def _below_home(path: str, environ: Mapping[str, str]) -> str:
    if path != "~" and not path.startswith("~/"):
        return path
    return str(Path(environ.get("HOME") or Path.home(), path[2:]))


def _notice(path: Path, ignored: tuple[str, ...], waiting: tuple[str, ...], *, changed: bool) -> str:
    """What of a project's file is not used, in one line; empty where all of it is."""
    parts = []
    if ignored:
        parts.append(f"not read from a project's file: {_some(ignored)}")
    if waiting:
        until = "it has changed since you trusted it; " if changed else ""
        parts.append(f"{until}not used before you trust it (agent trust): {_some(waiting)}")
    return f"{harmless_line(str(path))}: {'; '.join(parts)}" if parts else ""


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(harmless_line(name[:60]) for name in names[:10]) + more
