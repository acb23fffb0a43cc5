"""The budget, pure: tokens guessed from bytes, corrected by what the provider reports.

A guess is anchored on the last report: what the provider counted for the last prompt is known, so only what
was added since is guessed, with the conversation's own calibration ratio (tokens reported / tokens
estimated, smoothed).  Every figure shown or decided upon is the calibrated one.
"""

from msgspec import Struct

TOKENS_PER_BYTE = 0.3
"""Of JSON-encoded messages in English and code, by the provider's own rule of thumb."""

SMOOTHING = 0.5
"""Weight of the newest report in the calibration ratio."""


def estimate(size: int) -> int:
    """Tokens of `size` bytes of encoded messages, not calibrated."""
    return int(size * TOKENS_PER_BYTE) + 1


class Budget(Struct, frozen=True):
    """Tokens a request may use, and what is known of their size.  Replaced after each reply."""

    total: int
    """Tokens."""
    ratio: float = 1.0
    anchor: int = 0
    """Tokens of the last prompt, as reported; 0 where nothing was reported yet."""
    anchor_bytes: int = 0
    """Bytes of that prompt."""

    def tokens(self, size: int) -> int:
        """Calibrated tokens of a piece of `size` bytes."""
        return round(estimate(size) * self.ratio)

    def used(self, size: int) -> int:
        """Calibrated tokens of a request of `size` bytes."""
        if not self.anchor:
            return self.tokens(size)
        return max(self.anchor + round((size - self.anchor_bytes) * TOKENS_PER_BYTE * self.ratio), 0)

    def share(self, size: int) -> float:
        """The part of the budget that a request of `size` bytes uses; 1.0 is all of it."""
        return self.used(size) / self.total

    def settled(self, size: int, prompt_tokens: int) -> "Budget":
        """After a reply: its prompt had `size` bytes and, as reported, `prompt_tokens`."""
        if prompt_tokens <= 0:
            return self
        measured = prompt_tokens / estimate(size)
        ratio = measured if not self.anchor else self.ratio + SMOOTHING * (measured - self.ratio)
        return Budget(self.total, ratio, prompt_tokens, size)

    def rewritten(self) -> "Budget":
        """After the history was rewritten: the ratio stays, the anchor doesn't."""
        return Budget(self.total, self.ratio)
