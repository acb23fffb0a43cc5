"""What differs from provider to provider: how a message and the end of a request are written.  Pure.

There is one dialect so far. DeepSeek while thinking, with tools in the request, wants `reasoning_content`
on every assistant message, also where the model had none; a key that is missing ends in a refusal of every
later request. So this is the one place that decides it: always there, what came byte for byte, else empty.
Content is always a string, `tool_calls` is never empty, and neither authors nor problems are sent.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec import Struct

from protocol.conversation import Answer, Calls, Message, Note, ToolResult, User, plain
from supervisor.model.chunks import without_surrogates

NO_OUTPUT = "(no output)"
"""Stands for an empty result: some servers refuse empty content, and models take it for a fault."""


class Dialect(Struct, frozen=True, kw_only=True):
    """How one provider wants its requests."""

    echo_reasoning: bool
    """Whether assistant messages carry `reasoning_content`."""
    options: tuple[tuple[str, object], ...] = ()
    """What else stands in each request, in this order."""


DEEPSEEK = Dialect(
    echo_reasoning=True,
    options=(("thinking", {"type": "enabled"}), ("reasoning_effort", "high")),
)

DEEPSEEK_NOT_THINKING = Dialect(echo_reasoning=False, options=(("thinking", {"type": "disabled"}),))


def deepseek(*, thinking: bool) -> Dialect:
    """The dialect of DeepSeek, with its thinking switched on or off by every request."""
    return DEEPSEEK if thinking else DEEPSEEK_NOT_THINKING


class _Function(Struct):
    name: str
    arguments: str


class _Call(Struct, tag_field="type", tag="function"):
    id: str
    function: _Function


class _Plain(Struct):
    role: str
    content: str


class _Assistant(Struct, omit_defaults=True, tag_field="role", tag="assistant"):
    content: str
    reasoning_content: str | None = None
    tool_calls: list[_Call] = []


class _Result(Struct, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str


_encoder = msgspec.json.Encoder()


def encode_message(message: Message, dialect: Dialect) -> bytes:
    """The message as it stands in a request."""
    return _encoded(_wire(message, dialect))


def encode_plain(role: str, content: str) -> bytes:
    """A message of role `system`, or a volatile one of role `user`."""
    return _encoded(_Plain(role, content))


def encode_tail(dialect: Dialect, tools: Sequence[Mapping[str, object]], max_tokens: int) -> bytes:
    """What follows the messages, from the bracket that ends them.  `tools` empty: the key is left out."""
    fields: dict[str, object] = {"tools": list(tools)} if tools else {}
    fields |= {"stream": True, "stream_options": {"include_usage": True}, **dict(dialect.options)}
    fields["max_tokens"] = max_tokens
    return b"]," + _encoder.encode(fields)[1:]


def _wire(message: Message, dialect: Dialect) -> Struct:
    match message:
        case User(parts=parts) | Note(parts=parts):
            return _Plain("user", plain(parts))
        case ToolResult(call_id=call_id, text=text):
            return _Result(call_id, text if text.strip() else NO_OUTPUT)
        case Calls(calls=calls, text=text, reasoning=reasoning):
            wired = [_Call(call.id, _Function(call.name, call.arguments)) for call in calls]
            return _Assistant(text, tool_calls=wired, reasoning_content=_echo(reasoning, dialect))
        case Answer(parts=parts, reasoning=reasoning):
            return _Assistant(plain(parts), reasoning_content=_echo(reasoning, dialect))
        case _:
            assert_never(message)


def _echo(reasoning: str | None, dialect: Dialect) -> str | None:
    return (reasoning or "") if dialect.echo_reasoning else None


def _encoded(wire: Struct) -> bytes:
    try:
        return _encoder.encode(wire)
    except UnicodeEncodeError:
        # Half a surrogate pair, from a file's name or an old transcript: servers refuse it as broken JSON.
        return _encoder.encode(_clean(msgspec.to_builtins(wire)))


def _clean(value: object) -> object:
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items()}
    return without_surrogates(str(value))
