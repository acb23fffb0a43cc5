"""From events to a reply: pieces are joined as they come.  Pure.

All pieces of one network read become one Delta, so that whoever listens is called per read and not per
token. Fragments of a call are joined by `index`; an id is set once and never appended. Servers leave out,
repeat or blank index and id, so a call begins where a piece has a new index and says who it is, or an id
that the call at its index doesn't have; everything else continues the call it names, or the last one.

What is *not* here: whether a call can be used (reply.py), and how the bytes came (chat.py).
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from protocol.events import Usage
from supervisor.model.chunks import WireCall, WireDelta, WireUsage, decode
from supervisor.model.errors import Partial


class Delta(Struct, frozen=True):
    """What one network read brought.  `calls`: names of the calls that began in it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[str, ...] = ()


class RawCall(Struct, frozen=True):
    """A call as it came; nothing of it is checked."""

    id: str
    name: str
    arguments: str


class Completion(Struct, frozen=True):
    """A whole reply.  `reasoning` is None where there was none at all, which is not the same as empty."""

    text: str
    reasoning: str | None
    calls: tuple[RawCall, ...]
    finish_reason: str
    """As the server said it; empty where it never did."""
    usage: Usage | None = None
    """None where the server didn't count."""


class StreamedError(Exception):
    """The stream holds an error object instead of a part of the reply."""

    def __init__(self, error: object) -> None:
        super().__init__("an error inside the stream")
        self.error = error


class _OpenCall:
    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class Assembly:
    """A reply that is arriving."""

    def __init__(self) -> None:
        self.finish_reason = ""
        self.events = 0
        """Events that were parts of a reply."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._had_reasoning = False
        self._calls: list[_OpenCall] = []
        self._usage: WireUsage | None = None

    def take(self, payloads: Sequence[bytes], on_delta: Callable[[Delta], None]) -> None:
        """Join the events of one read; `on_delta` is told what they brought, if anything.

        Also of what stood before a fault, so that nothing counts as said which nobody was shown.  Raises
        ChunkError for what is no event of a reply, StreamedError for an error object.
        """
        text: list[str] = []
        reasoning: list[str] = []
        begun: list[str] = []
        try:
            for payload in payloads:
                chunk = decode(payload)
                if chunk.error is not None or chunk.object == "error":
                    raise StreamedError(chunk.error or _flat(payload))
                if chunk.usage is not None:
                    self._usage = chunk.usage
                if chunk.choices is not None:
                    self.events += 1
                if not chunk.choices:
                    continue
                choice = chunk.choices[0]
                if choice.finish_reason:
                    self.finish_reason = choice.finish_reason
                delta = choice.delta or choice.message
                if delta is None:
                    continue
                if delta.content:
                    text.append(delta.content)
                if delta.reasoning_content is not None:
                    self._had_reasoning = True
                    if delta.reasoning_content:
                        reasoning.append(delta.reasoning_content)
                if delta.tool_calls:
                    begun += self._join_calls(delta)
        finally:
            self._text += text
            self._reasoning += reasoning
            if text or reasoning or begun:
                on_delta(Delta("".join(text), "".join(reasoning), tuple(begun)))

    def completion(self) -> Completion:
        """All that came, as a whole reply."""
        usage = self._usage.plain() if self._usage is not None else None
        calls = tuple(RawCall(call.id, call.name, "".join(call.arguments)) for call in self._calls)
        reasoning = "".join(self._reasoning) if self._had_reasoning else None
        return Completion("".join(self._text), reasoning, calls, self.finish_reason, usage)

    def partial(self) -> Partial:
        """All that came, as the beginning of one."""
        whole = self.completion()
        return Partial(whole.text, whole.reasoning, tuple(call.name for call in whole.calls))

    def _join_calls(self, delta: WireDelta) -> list[str]:
        begun: list[str] = []
        for piece in delta.tool_calls or ():
            name = (piece.function.name if piece.function is not None else None) or ""
            call = self._continued(piece, name)
            if call is None:
                call = _OpenCall(piece.index)
                self._calls.append(call)
                begun.append(name)
            call.id = call.id or piece.id or ""
            call.name = call.name or name
            arguments = piece.function.arguments if piece.function is not None else None
            if isinstance(arguments, dict):
                call.arguments.append(msgspec.json.encode(arguments).decode())
            elif arguments:
                call.arguments.append(arguments)
        return begun

    def _continued(self, piece: WireCall, name: str) -> _OpenCall | None:
        """The call that this piece goes on with; None where it begins one."""
        if not self._calls:
            return None
        last = self._calls[-1]
        if piece.index is not None and piece.index != last.index:
            same = next((call for call in reversed(self._calls) if call.index == piece.index), None)
            if same is not None:
                return same if not piece.id or piece.id == same.id else None
            return None if piece.id or name else last
        if piece.id:
            return last if piece.id == last.id or not last.id else None
        # Without an index, a name is what tells a new call from the rest of the last one.
        return None if piece.index is None and name and last.arguments else last


def _flat(payload: bytes) -> object:
    return msgspec.json.decode(payload, type=dict[str, object])
