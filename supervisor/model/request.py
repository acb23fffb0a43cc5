"""The bytes of the next request: append-only, each message is encoded once.

Request k+1 begins with request k's messages byte for byte, which is what the provider's cache of prefixes
lives on, and what keeps the cost of a round in proportion to what is new. The volatile line stands behind
the messages of one body and nowhere else.
"""

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
        self._tail_with_tools = encode_tail(dialect, tools, max_tokens)
        self._tail_without = encode_tail(dialect, (), max_tokens)

    def append(self, messages: Iterable[Message]) -> int:
        """Take more messages; the number of bytes that they add to each later body."""
        before = len(self._bytes)
        for message in messages:
            self._bytes += b","
            self._bytes += encode_message(message, self._dialect)
        return len(self._bytes) - before

    def body(self, *, tools: bool = True, volatile: str = "") -> bytes:
        """The whole request.  `volatile`: a line of role user that belongs to this body alone."""
        line = b"," + encode_plain("user", volatile) if volatile else b""
        return b"".join((self._bytes, line, self.tail(tools=tools)))

    def tail(self, *, tools: bool = True) -> bytes:
        """What stands behind the messages; the same bytes in every request."""
        return self._tail_with_tools if tools else self._tail_without

    @property
    def size(self) -> int:
        """Bytes of the head and the messages, without the tail."""
        return len(self._bytes)

    def restart(self) -> None:
        """Forget all messages but position 0, as after a compaction."""
        del self._bytes[self._fixed :]
