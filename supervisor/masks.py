"""Secrets in text: our own key, and what looks like a key of a known kind.

`mask` is for what enters a conversation: our own key always, known shapes only where the settings say so,
since the model may need them for the work.  `mask_all` is for what leaves the program otherwise: logs, crash
reports, exports.  Files that tools write are not touched.
"""

import re
from urllib.parse import quote

MASKED_OWN = "[masked: the key of the model's server]"

SHORTEST = 8
"""Characters.  A shorter "key" (`none`, `ollama`) is no secret, and masking it would spoil ordinary words."""

_SHAPES = re.compile(
    r"(?P<pem>-----BEGIN (?P<label>[A-Z ]*)PRIVATE KEY-----"
    r"(?s:.*?)(?:-----END (?P=label)PRIVATE KEY-----|\Z))"
    r"|(?P<model>\bsk-[A-Za-z0-9_-]{20,})"
    r"|(?P<aws>\b(?:AKIA|ASIA)[A-Z0-9]{16}\b)"
    r"|(?P<github>\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}))"
    r"|(?P<slack>\bxox[abeoprs]-[A-Za-z0-9-]{10,})"
    r"|(?P<google>\bAIza[A-Za-z0-9_-]{35})"
    r"|(?P<bearer>(?<=\b[Bb]earer\s)[A-Za-z0-9._~+/-]{16,}=*|(?<=\bBEARER\s)[A-Za-z0-9._~+/-]{16,}=*)"
)
_NAMES = {
    "pem": "a private key",
    "model": "an API key",
    "aws": "an AWS key",
    "github": "a GitHub token",
    "slack": "a Slack token",
    "google": "a Google key",
    "bearer": "a bearer token",
}


def mask_shapes(text: str) -> str:
    """The text with everything that looks like a key of a known kind replaced by words that name the kind.

    A private key whose end is missing is masked up to the end of the text.
    """
    return _SHAPES.sub(_name_of, text)


def _name_of(found: re.Match[str]) -> str:
    kind = next(name for name in _NAMES if found[name] is not None)
    return f"[masked: {_NAMES[kind]}]"


class Masks:
    """What is masked in this process.  `own_key`: as it is sent; `known_shapes`: `mask_transcript`."""

    def __init__(self, own_key: str | None, known_shapes: bool = False) -> None:
        key = (own_key or "").strip()
        self._forms = tuple(dict.fromkeys((key, quote(key, safe="")))) if len(key) >= SHORTEST else ()
        self._known_shapes = known_shapes

    def mask(self, text: str) -> str:
        """For a tool's result before it enters the conversation, so that disk, memory and request agree."""
        text = self._without_own(text)
        return mask_shapes(text) if self._known_shapes else text

    def mask_all(self, text: str) -> str:
        """For logs, crash reports and exports: our own key and every known shape."""
        return mask_shapes(self._without_own(text))

    def stream(self) -> "MaskedStream":
        """A mask for text that comes in pieces, such as the output of a command that still runs."""
        return MaskedStream(self._forms)

    def _without_own(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, MASKED_OWN)
        return text


class MaskedStream:
    """Our own key masked in text that comes in pieces, wherever it is split."""

    def __init__(self, forms: tuple[str, ...]) -> None:
        self._forms = forms
        self._kept = ""

    def feed(self, text: str) -> str:
        """What may be shown now.  An end that may be the beginning of the key is held back."""
        text = self._kept + text
        for form in self._forms:
            text = text.replace(form, MASKED_OWN)
        held = max((_beginning_at_end(text, form) for form in self._forms), default=0)
        cut = len(text) - held
        self._kept = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """What was held back; the text has ended."""
        kept, self._kept = self._kept, ""
        return kept


def _beginning_at_end(text: str, form: str) -> int:
    """How many characters at the end of the text are the beginning of this form, without all of it."""
    longest = min(len(form) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(form[:size])), 0)
