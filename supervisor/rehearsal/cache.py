"""The provider's cache of prefixes, as far as its rules are known.  Pure.

A stored prefix is one complete unit: a request hits it only if it contains the whole of it from the first
token; a partial overlap counts for nothing. Units are stored at the end of each request and of each reply,
and where a prefix was seen twice without a hit. What is counted is rounded down to 128 tokens.

A prefix is named by a digest that goes from message to message, so the work is in proportion to what is
new.
"""

from collections.abc import Sequence
from hashlib import blake2b

from msgspec import Struct

STEP = 128
"""Tokens; hits are multiples of it."""

BYTES_PER_TOKEN = 4


class Mark(Struct, frozen=True):
    """The end of a message: the digest of all up to here, and the tokens up to here."""

    digest: bytes
    tokens: int


def beginning(*scope: bytes) -> Mark:
    """Before the first message.  `scope`: what separates caches (model, user, tools); the last part is
    prompt text too and counts."""
    digest = blake2b(digest_size=16)
    for part in scope:
        digest.update(len(part).to_bytes(8, "big") + part)
    return Mark(digest.digest(), tokens_of(len(scope[-1])) if scope else 0)


def extended(mark: Mark, content: bytes) -> Mark:
    """The mark after one more message."""
    return Mark(
        blake2b(mark.digest + content, digest_size=16).digest(), mark.tokens + tokens_of(len(content))
    )


def tokens_of(size: int) -> int:
    """Tokens of a text of so many bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


class PromptCache:
    """What one account has stored."""

    def __init__(self) -> None:
        self._units: set[bytes] = set()
        self._seen: dict[bytes, int] = {}

    def request(self, marks: Sequence[Mark]) -> int:
        """The tokens of this prompt that are hits; then it is stored.  `marks`: one per message,
        in order, at least one."""
        hit = 0
        for mark in reversed(marks):
            if mark.digest in self._units:
                hit = mark.tokens
                break
            self._seen[mark.digest] = self._seen.get(mark.digest, 0) + 1
            if self._seen[mark.digest] == 2:
                self._units.add(mark.digest)
        self._units.add(marks[-1].digest)
        return hit // STEP * STEP

    def reply(self, mark: Mark) -> None:
        """Store the prompt with its reply."""
        self._units.add(mark.digest)
