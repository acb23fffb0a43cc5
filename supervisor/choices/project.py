"""A project's settings file is a stranger's: what it may say at once, what once it is trusted, what never.

It may tighten at any time: deny and ask, read-only, less network, smaller limits.  What widens or changes
where the user's work goes waits until the user has trusted this very content (trusted.py).  Where requests
and the key are sent is never taken from it.  Deciding only, no I/O.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from protocol.policy import Mode, Network, Rung
from supervisor.choices.files import Values
from supervisor.choices.tables import TABLES, Choices, LimitsChoices, fields, value_of

NEVER = ("base_url", "key_env")
"""Else a project could have the user's key sent to a server of its own."""
FREE = ("show_tool_results", "command_timeout")
"""What a project may set as it likes."""
ADDED = (
    "rules.allow", "rules.ask", "rules.deny", "sandbox.hosts", "sandbox.read", "sandbox.write",
    "sandbox.environment", "sandbox.environment_secret",
)  # fmt: skip
"""Lists: what one file names comes to what the other names.  All other keys replace."""
MEMORY_UNASKED = 2 * 1024**3
"""Bytes.  So much every machine gives by itself, so a project that names less only lowers it."""

_LOWERED = (
    "tool_result_cap_bytes",
    "output_file_cap",
    "max_tool_rounds_per_turn",
    "max_turns_per_session",
    *(f"limits.{key}" for key in fields(LimitsChoices)),
)
_MODES = (Mode.READ_ONLY, Mode.WORKSPACE_WRITE, Mode.UNCONFINED)
_NETWORKS = (Network.OFF, Network.LISTED, Network.ON)
_RUNGS = (Rung.FULL, Rung.LANDLOCK, Rung.OFF)


class Offer(Struct, frozen=True):
    """A project's file, sorted.  The two tables are as a file has them."""

    tightening: Values
    widening: Values
    widening_keys: tuple[str, ...]
    ignored: tuple[str, ...]
    """Names that are never read from a project's file, or that there aren't."""


def known(offered: Mapping[str, object]) -> tuple[Values, tuple[str, ...]]:
    """What a project's file may say at all, and the names of the rest."""
    kept: Values = {}
    ignored: list[str] = []
    for key, value in offered.items():
        table = TABLES.get(key)
        if key in NEVER or key not in fields(Choices):
            ignored.append(key)
        elif table is not None and isinstance(value, dict):
            kept[key] = {name: inner for name, inner in value.items() if name in fields(table)}
            ignored += [f"{key}.{name}" for name in value if name not in fields(table)]
        else:
            kept[key] = value
    return kept, tuple(ignored)


def sorted_out(
    kept: Mapping[str, object], ignored: tuple[str, ...], parsed: Choices, users: Choices
) -> Offer:
    """The offer in `kept`, which is `parsed`, against what the user has chosen in the user's own file."""
    tightening: Values = {}
    widening: Values = {}
    keys: list[str] = []
    for key in _leaves(kept):
        if tightens(key, value_of(parsed, key), value_of(users, key)):
            _put(tightening, key, kept)
        else:
            _put(widening, key, kept)
            keys.append(key)
    return Offer(tightening, widening, tuple(keys), ignored)


def tightens(key: str, value: object, users: object) -> bool:
    """Whether a project may set this key to this value, untrusted, where the user has that one."""
    if key in FREE or key in ("rules.ask", "rules.deny") or value in (users, ()):
        return True
    match key, value, users:
        case ("sandbox.mode", Mode(), Mode()):
            return _MODES.index(value) < _MODES.index(users)
        case ("sandbox.network", Network(), Network()):
            return _NETWORKS.index(value) < _NETWORKS.index(users)
        case ("sandbox.require", Rung(), Rung()):
            return _RUNGS.index(value) < _RUNGS.index(users)
        case ("sandbox.hide_env_files" | "mask_transcript", bool(), _):
            return value
        case ("limits.memory", int(), None):
            return value <= MEMORY_UNASKED
        case (_, int(), int()):
            return key in _LOWERED and value < users
        case _:
            return False


def merged(*sources: Mapping[str, object]) -> Values:
    """The sources over each other, the last one on top; what is in ADDED comes together."""
    together: Values = {}
    for source in sources:
        for key in _leaves(source):
            table, dot, name = key.rpartition(".")
            target = _inner(together, table) if dot else together
            given = _at(source, key)
            before = target.get(name)
            if key in ADDED and isinstance(before, list) and isinstance(given, list):
                given = [*before, *(one for one in given if one not in before)]
            target[name] = given
    return together


def each_value(values: Mapping[str, object], show: Callable[[object], str]) -> list[str]:
    """`KEY = VALUE` for each key, in the order of the file."""
    return [f"{key} = {show(_at(values, key))}" for key in _leaves(values)]


def _leaves(values: Mapping[str, object]) -> list[str]:
    """`model`, `limits.memory` and so on: the keys that have no table behind them."""
    found: list[str] = []
    for key, value in values.items():
        if isinstance(value, dict) and key in TABLES:
            found += [f"{key}.{name}" for name in value]
        else:
            found.append(key)
    return found


def _at(values: Mapping[str, object], key: str) -> object:
    table, dot, name = key.rpartition(".")
    inner = values[table] if dot else values
    assert isinstance(inner, Mapping)
    return inner[name]


def _put(target: Values, key: str, source: Mapping[str, object]) -> None:
    table, dot, name = key.rpartition(".")
    (_inner(target, table) if dot else target)[name] = _at(source, key)


def _inner(values: Values, table: str) -> Values:
    inner = values.setdefault(table, {})
    assert isinstance(inner, dict)
    return inner
