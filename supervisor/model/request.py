"""The bytes of the next request: append-only, each message is encoded once.

Request k+1 begins with request k's messages byte for byte, which is what the provider's cache of prefixes
lives on, and what keeps the cost of a round in proportion to what is new. The volatile line stands behind
the messages of one body and nowhere else.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from protocol.conversation import Message
from supervisor.model.dialect import Dialect, encode_message, encode_plain, encode_tail


class Request:
    """What is sent: position 0 and the messages so far, encoded."""

    def __init__(
        self,
        dialect: Dialect,
        model: str,
        system: str,
        tools: Sequence[Mapping[str, object]],
        max_tokens: int,
    ) -> None:
        self._dialect = dialect
        self.system = encode_plain("system", system)
        """Position 0 as it is sent."""
        self._bytes = bytearray(b'{"model":' + msgspec.json.encode(model) + b',"messages":[' + self.system)
        self._fixed = len(self._bytes)
        self._hash = hashlib.sha256(self._bytes)
        """Of the bytes so far, so that a body's digest costs only what is new."""
        self._tail_with_tools = encode_tail(dialect, tools, max_tokens)
        self._tail_without = encode_tail(dialect, (), max_tokens)

    def append(self, messages: Iterable[Message]) -> int:
        """Take more messages; the number of bytes that they add to each later body."""
        fresh = self._encoded(messages)
        self._bytes += fresh
        self._hash.update(fresh)
        return len(fresh)

    def sized(self, messages: Iterable[Message]) -> int:
        """The bytes that these messages would add, were they appended."""
        return len(self._encoded(messages))

    def body(self, *, tools: bool = True, volatile: str = "") -> bytes:
        """The whole request.  `volatile`: a line of role user that belongs to this body alone."""
        return b"".join((self._bytes, self.ending(tools=tools, volatile=volatile)))  # copied once

    def ending(self, *, tools: bool = True, volatile: str = "") -> bytes:
        """What stands behind the messages of that body."""
        line = b"," + encode_plain("user", volatile) if volatile else b""
        return line + self.tail(tools=tools)

    def tail(self, *, tools: bool = True) -> bytes:
        """What stands behind the messages; the same bytes in every request."""
        return self._tail_with_tools if tools else self._tail_without

    def digest(self, *, tools: bool = True, volatile: str = "") -> str:
        """sha256 of the body with these arguments, in hexadecimal."""
        whole = self._hash.copy()
        whole.update(self.ending(tools=tools, volatile=volatile))
        return whole.hexdigest()

    @property
    def head(self) -> bytes:
        """What stands before the conversation: the model's name and position 0."""
        return bytes(self._bytes[: self._fixed])

    @property
    def size(self) -> int:
        """Bytes of a whole body with tools."""
        return len(self._bytes) + len(self._tail_with_tools)

    @property
    def conversation_size(self) -> int:
        """Bytes of the messages but position 0."""
        return len(self._bytes) - self._fixed

    def fixed_parts(self) -> tuple[tuple[str, int], ...]:
        """What stands in every request beside the conversation: names and bytes."""
        return ("system prompt", len(self.system)), ("tools", len(self._tail_with_tools))

    def mark(self) -> int:
        """A place that `rollback` returns to."""
        return len(self._bytes)

    def rollback(self, mark: int) -> None:
        """Forget what was appended since the mark: a turn that was withdrawn."""
        del self._bytes[mark:]
        self._hash = hashlib.sha256(self._bytes)

    def restart(self) -> None:
        """Forget all messages but position 0, as after a compaction."""
        self.rollback(self._fixed)

    def _encoded(self, messages: Iterable[Message]) -> bytes:
        return b"".join(b"," + encode_message(message, self._dialect) for message in messages)
