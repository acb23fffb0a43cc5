"""A step as the bytes that DeepSeek would send: events of a stream, or one JSON object.  Pure.

Shape and order are those of a captured live stream: a first chunk with the role, thinking, text, then each
call's head (id and name) and its arguments in fragments, and a last chunk with the finish_reason and the
usage together.
"""

import secrets
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from supervisor.rehearsal.cache import tokens_of
from supervisor.rehearsal.script import ScriptedCall, ScriptedUsage, Step

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


class Call(Struct, frozen=True):
    """A call of this reply, its id given, its arguments as text."""

    id: str
    name: str
    arguments: str


class Usage(Struct, frozen=True):
    """As it is sent: `prompt` includes the hits, `completion` the thinking."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]
    prompt_cache_hit_tokens: int
    prompt_cache_miss_tokens: int


def calls_of(step: Step) -> tuple[Call, ...]:
    return tuple(
        Call(call.id or f"call_{at:02d}_{secrets.token_hex(10)}", call.name, _arguments(call))
        for at, call in enumerate(step.calls)
    )


def usage_of(step: Step, calls: tuple[Call, ...], prompt: int, cached: int) -> Usage:
    """The given counts, and what is not given counted from the texts."""
    given: ScriptedUsage = step.usage
    thinking = tokens_of(len((step.thinking or "").encode(errors="replace")))
    said = tokens_of(len(step.text.encode(errors="replace")))
    asked = sum(tokens_of(len((call.name + call.arguments).encode(errors="replace"))) for call in calls)
    reasoning = thinking if given.reasoning is None else given.reasoning
    prompt = prompt if given.prompt is None else given.prompt
    cached = cached if given.cached is None else given.cached
    completion = reasoning + said + asked if given.completion is None else given.completion
    return Usage(
        prompt,
        completion,
        prompt + completion,
        {"cached_tokens": cached},
        {"reasoning_tokens": reasoning},
        cached,
        max(prompt - cached, 0),
    )


def message_of(step: Step, calls: tuple[Call, ...]) -> dict[str, object]:
    """The reply as a message."""
    message: dict[str, object] = {"role": "assistant", "content": step.text}
    if step.thinking is not None:
        message["reasoning_content"] = step.thinking
    if calls:
        message["tool_calls"] = [_wired(call) for call in calls]
    return message


def events_of(step: Step, calls: tuple[Call, ...], usage: Usage, model: str) -> list[bytes]:
    """The stream, an item per event, `[DONE]` last."""
    head, tail = _frame(model)
    events = [head + msgspec.json.encode(delta) + tail for delta in _deltas(step, calls)]
    events.append(
        head
        + b'{"content":"","reasoning_content":null},"logprobs":null,"finish_reason":'
        + msgspec.json.encode(finish_of(step))
        + b'}],"usage":'
        + msgspec.json.encode(usage)
        + b"}\n\n"
    )
    events.append(DONE)
    return events


def whole_of(step: Step, calls: tuple[Call, ...], usage: Usage, model: str) -> bytes:
    """The reply to a request that asked for no stream."""
    choice = {
        "index": 0,
        "message": message_of(step, calls),
        "logprobs": None,
        "finish_reason": finish_of(step),
    }
    return msgspec.json.encode(
        {"id": _identity(), "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        | {"usage": usage, "system_fingerprint": "fp_scripted"}
    )


def finish_of(step: Step) -> str:
    return step.finish_reason or ("tool_calls" if step.calls else "stop")


def _deltas(step: Step, calls: tuple[Call, ...]) -> Iterator[dict[str, object]]:
    if step.thinking is None:
        yield {"role": "assistant", "content": ""}
    else:
        yield {"role": "assistant", "content": None, "reasoning_content": ""}
        for piece in _pieces(step.thinking, step.chunk):
            yield {"content": None, "reasoning_content": piece}
    for piece in _pieces(step.text, step.chunk):
        yield {"content": piece, "reasoning_content": None}
    for at, call in enumerate(calls):
        begun = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [{"index": at, **begun}]}
        for piece in _pieces(call.arguments, step.chunk):
            yield {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}


def _frame(model: str) -> tuple[bytes, bytes]:
    """What stands before and after the delta of each event."""
    shared = {"id": _identity(), "object": "chat.completion.chunk", "created": 1, "model": model}
    head = msgspec.json.encode(shared | {"system_fingerprint": "fp_scripted"})[:-1]
    return (
        b"data: " + head + b',"choices":[{"index":0,"delta":',
        b',"logprobs":null,"finish_reason":null}],"usage":null}\n\n',
    )


def _pieces(text: str, size: int) -> Iterator[str]:
    step = max(size, 1)
    return (text[at : at + step] for at in range(0, len(text), step))


def _arguments(call: ScriptedCall) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    return msgspec.json.encode(call.arguments).decode()


def _wired(call: Call) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _identity() -> str:
    return f"scripted-{secrets.token_hex(8)}"
