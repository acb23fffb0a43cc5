"""One event of a streamed reply: its shape, and the decoding that survives a bad one.  Pure.

Every field may be missing or null. msgspec decodes typed and fast but refuses half a surrogate pair, NaN
and broken UTF-8, all of which models do emit; such an event is read once more by the slow and lenient
standard library, and what can't be text is replaced.
"""

import json

import msgspec
from msgspec import Struct

from protocol.events import Usage

Number = int | float | None


class PromptDetails(Struct, gc=False):
    cached_tokens: Number = None


class CompletionDetails(Struct, gc=False):
    reasoning_tokens: Number = None


class WireUsage(Struct, gc=False):
    prompt_tokens: Number = None
    completion_tokens: Number = None
    prompt_cache_hit_tokens: Number = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None

    def plain(self) -> Usage | None:
        """In our words; None where the server counted nothing (some send zeros for "don't know")."""
        prompt, completion = int(self.prompt_tokens or 0), int(self.completion_tokens or 0)
        if not prompt and not completion:
            return None
        cached = self.prompt_cache_hit_tokens
        if cached is None and self.prompt_tokens_details is not None:
            cached = self.prompt_tokens_details.cached_tokens
        details = self.completion_tokens_details
        reasoning = details.reasoning_tokens if details is not None else 0
        return Usage(prompt, completion, int(cached or 0), int(reasoning or 0))


class WireFunction(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, object] | None = None


class WireCall(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: WireFunction | None = None


class WireDelta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[WireCall] | None = None


class WireChoice(Struct, gc=False):
    delta: WireDelta | None = None
    message: WireDelta | None = None
    """Instead of `delta` in a reply that is no stream."""
    finish_reason: str | None = None


class Chunk(Struct, gc=False):
    choices: list[WireChoice] | None = None
    usage: WireUsage | None = None
    error: object = None
    object: str | None = None


class ChunkError(ValueError):
    """The event is no part of a reply."""


_decoder = msgspec.json.Decoder(Chunk)


def decode(data: bytes) -> Chunk:
    """The event in `data`.  Raises ChunkError."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _leniently(data)


def _leniently(data: bytes) -> Chunk:
    try:
        found: object = json.loads(data.decode("utf-8", "replace"), strict=False)
        return msgspec.convert(_text_only(found), Chunk, strict=False)
    except (ValueError, RecursionError) as error:  # MsgspecError is a ValueError
        raise ChunkError(str(error)) from error


def without_surrogates(text: str) -> str:
    """The text with pairs of surrogates joined and lone ones replaced: what can be encoded as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _text_only(value: object) -> object:
    match value:
        case str():
            return without_surrogates(value)
        case list():
            return [_text_only(item) for item in value]
        case dict():
            return {without_surrogates(str(key)): _text_only(inner) for key, inner in value.items()}
        case _:
            return value
