"""The grammar of a request's messages, as the real API enforces it.  Pure.

`Checked` is what is known after a legal beginning; a message more gives the next one, so a request that
goes on from the last one costs what is new in it.
"""

import json

import msgspec
from msgspec import Struct

from supervisor.rehearsal.cache import Mark, extended
from supervisor.rehearsal.refusal import misshapen, refuse, unparsable

ROLES = ("system", "user", "assistant", "tool", "latest_reminder")

UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. (insufficient tool messages following tool_calls message)"
)
ORPHAN = "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
EMPTY = "Invalid assistant message: content or tool_calls must be set"
NO_CALLS = (
    "Invalid 'messages.tool_calls': empty array. Expected an array with minimum length 1, but got an empty "
    "array instead."
)


class Checked(Struct, frozen=True):
    """What the messages so far leave behind."""

    mark: Mark
    open: frozenset[str] = frozenset()
    """Ids that the next messages must answer."""
    silent: int | None = None
    """The first assistant message without `reasoning_content`, by index."""
    says_json: bool = False
    last_role: str = ""
    last_text: str = ""


def decoded(raw: bytes, index: int) -> dict[str, object]:
    """The message, its shape checked.  Raises RefusedError."""
    try:
        message: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unparsable(error, raw) from error
    if not isinstance(message, dict):
        raise misshapen(f"messages[{index}]: invalid type: {_kind(message)}, expected a message")
    role = message.get("role")
    if role not in ROLES:
        known = ", ".join(f"`{name}`" for name in ROLES)
        raise misshapen(f"messages[{index}]: unknown variant `{role}`, expected one of {known}")
    content = message.get("content")
    if role != "assistant" and "content" not in message:
        raise misshapen(f"messages[{index}]: missing field `content`")
    parts_allowed = role in ("user", "system")
    null_allowed = role == "assistant" and content is None
    if (
        not isinstance(content, str)
        and not null_allowed
        and not (parts_allowed and isinstance(content, list))
    ):
        raise misshapen(f"messages[{index}]: invalid type: {_kind(content)}, expected a string")
    if not isinstance(message.get("reasoning_content", ""), str | None):
        raise misshapen(f"messages[{index}]: invalid type for `reasoning_content`, expected a string")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise misshapen(f"messages[{index}]: missing field `tool_call_id`")
    _check_calls_shape(message, index)
    return message


def follow(checked: Checked, message: dict[str, object], index: int, ids: set[str]) -> Checked:
    """The state after one more message.  `ids`: all call ids so far; new ones are added."""
    role = str(message["role"])
    content = message.get("content")
    calls = call_list(message)
    still_open = checked.open
    silent = checked.silent
    if role == "tool":
        identity = str(message["tool_call_id"])
        if identity not in still_open:
            raise refuse(ORPHAN)
        still_open -= {identity}
    elif still_open:
        raise refuse(UNANSWERED)
    if role == "assistant":
        if message.get("tool_calls") == []:
            raise refuse(NO_CALLS)
        if not calls and not content and not (content == "" and message.get("reasoning_content")):
            raise refuse(EMPTY)
        still_open = _opened(calls, index, ids)
        if silent is None and not isinstance(message.get("reasoning_content"), str):
            silent = index
    text = content if isinstance(content, str) else json.dumps(content)
    return Checked(
        extended(checked.mark, canonical(message)),
        still_open,
        silent,
        checked.says_json or "json" in text.lower(),
        role,
        text,
    )


def canonical(message: dict[str, object]) -> bytes:
    """What of a message is prompt text, the same however it was written down."""
    calls = [[call.get("name"), call.get("arguments")] for call in map(_function, call_list(message))]
    told = [message["role"], message.get("content") or "", message.get("reasoning_content") or "", calls]
    return msgspec.json.encode(told)


def call_list(message: dict[str, object]) -> list[dict[str, object]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _opened(calls: list[dict[str, object]], index: int, ids: set[str]) -> frozenset[str]:
    """The ids of these calls, none of them used before; their arguments parse."""
    opened = set()
    for call in calls:
        identity = str(call["id"])
        if identity in ids:
            raise refuse(f"Duplicate value for 'tool_call_id' of {identity} in message[{index}]")
        ids.add(identity)
        opened.add(identity)
        arguments = str(_function(call)["arguments"])
        try:
            found: object = json.loads(arguments, parse_constant=_no_constant)
            arguments.encode()
        except (ValueError, RecursionError) as error:
            raise refuse(f"messages[{index}].tool_calls: invalid tool call arguments: {error}") from error
        if not isinstance(found, dict):
            raise refuse(f"messages[{index}].tool_calls: invalid tool call arguments: not an object")
    return frozenset(opened)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _function(call: dict[str, object]) -> dict[str, object]:
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _check_calls_shape(message: dict[str, object], index: int) -> None:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if message["role"] != "assistant" or not isinstance(calls, list):
        raise misshapen(f"messages[{index}]: invalid type: {_kind(calls)}, expected no `tool_calls` here")
    for at, call in enumerate(calls):
        place = f"messages[{index}].tool_calls[{at}]"
        if not isinstance(call, dict) or not isinstance(call.get("id"), str) or not call["id"]:
            raise misshapen(f"{place}: missing field `id`")
        if call.get("type") != "function":
            raise misshapen(f"{place}: unknown variant `{call.get('type')}`, expected `function`")
        function = _function(call)
        for field in ("name", "arguments"):
            if field not in function:
                raise misshapen(f"{place}.function: missing field `{field}`")
            if not isinstance(function[field], str):
                raise misshapen(
                    f"{place}.function: invalid type: {_kind(function[field])}, expected a string"
                )


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int() | float():
            return f"number `{value}`"
        case str():
            return "string"
        case list():
            return "sequence"
        case _:
            return "map"
