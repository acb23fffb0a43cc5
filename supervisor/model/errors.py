"""What can go wrong between us and the model.  The tree, with what it stands for:

    ModelError                  every message says what happened at which URL and what to do
      ConnectError              no connection, or it broke before the reply began
      SilenceError              connected, and then nothing within the time
      AuthError                 401, 403: the key
      BalanceError              402, or a refusal that speaks of money or quota
      RefusedError              400 and the like: this request, as it is, will never be taken
        UnknownModelError       the server has no such model
        ContextOverflowError    messages and reply don't fit the model's window
      RateLimitError            429; `wait` is what the server asked for
      ServerError               5xx, 408; `wait` as above
      BrokenStreamError         the reply began and did not end
      NotAModelServerError      something answers at this URL, but no chat completions
      EmptyReplyError           the reply ended and holds no text and no call

`partial` is what had arrived of the reply: text and reasoning; half a call is dropped.  Which of them are
tried again is decided in retries.py, which class a refusal becomes in refusals.py.
"""

import math

from msgspec import Struct

EXCERPT = 300
"""Characters of a server's own words in a message: enough for its errors, too few for a page of HTML."""


class Partial(Struct, frozen=True):
    """What had arrived of a reply that broke."""

    text: str = ""
    reasoning: str | None = None
    calls: tuple[str, ...] = ()
    """Names of the calls that had begun; none of them is run."""

    @property
    def seen(self) -> bool:
        """True when something of the reply itself was there: text or a call, not thinking only."""
        return bool(self.text or self.calls)


class ModelError(Exception):
    """The model could not be asked, or its reply can't be used."""

    def __init__(
        self, message: str, *, partial: Partial | None = None, wait: float | None = None, finish: str = ""
    ) -> None:
        super().__init__(message)
        self.partial = partial or Partial()
        self.wait = wait
        """Seconds that the server asked us to wait, where it did."""
        self.finish = finish
        """The reply's finish_reason, where it had one."""


class ConnectError(ModelError):
    """No connection, or it broke before the reply began."""


class SilenceError(ModelError):
    """Nothing came within the time."""


class AuthError(ModelError):
    """The key is missing, wrong or not allowed to do this."""


class BalanceError(ModelError):
    """The account has no money or no quota left."""


class RefusedError(ModelError):
    """The server will never take this request."""


class UnknownModelError(RefusedError):
    """The server has no model of this name."""


class ContextOverflowError(RefusedError):
    """The messages and the reply's limit don't fit the model's window."""


class RateLimitError(ModelError):
    """Too many requests at once."""


class ServerError(ModelError):
    """The server failed; the request may be right."""


class BrokenStreamError(ModelError):
    """The reply began and broke off."""


class NotAModelServerError(ModelError):
    """Something answers, but it speaks no chat completions."""


class EmptyReplyError(ModelError):
    """The reply has no text and no call."""


Failure = (
    ConnectError
    | SilenceError
    | AuthError
    | BalanceError
    | RefusedError
    | RateLimitError
    | ServerError
    | BrokenStreamError
    | NotAModelServerError
    | EmptyReplyError
)
"""Every concrete failure; a new class must be put here, and then retries.py must say what to do with it."""


def excerpt(text: str | bytes, limit: int = EXCERPT) -> str:
    """A stranger's words on one printable line of at most `limit` characters."""
    if isinstance(text, bytes):
        text = text[: limit * 8].decode("utf-8", "replace")
    line = " ".join(text[: limit * 8].split())
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def seconds(value: float) -> str:
    """`90 s`, never `90.0 s`."""
    return f"{math.ceil(value) if value >= 1 else round(value, 2)} s"
