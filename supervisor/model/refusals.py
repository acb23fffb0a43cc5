"""From a server's own error to one of our tree.  Pure.

Servers say it in three forms: `{"error": {"message", "type", "code"}}`, `{"error": "text"}` and flat
`{"object": "error", "message": ...}` (or `{"detail": ...}`); the status tells most, the words tell the
rest: money beats rate, and an overflow comes as 400, 413 or 500 depending on the server.
"""

import json
import math
import re
import time
from email.utils import parsedate_to_datetime

from supervisor.model.errors import (
    AuthError,
    BalanceError,
    ConnectError,
    ContextOverflowError,
    Failure,
    NotAModelServerError,
    RateLimitError,
    RefusedError,
    ServerError,
    UnknownModelError,
    excerpt,
)

WAIT_CAP = 60.0
"""Seconds.  A server that asks for more is not waited for longer: who waits is a person, or a time limit."""

_OVERFLOW = re.compile(
    r"context.?length|context window|maximum context|context.?size|prompt (is )?too long|input exceeds"
    r"|too large for",
    re.IGNORECASE,
)
_RATE = re.compile(r"rate limit|too many requests|throttl|concurrency", re.IGNORECASE)
_MONEY = re.compile(
    r"insufficient.?(balance|quota|credit|funds)|quota exceeded|exceeded your current quota|out of credits"
    r"|billing",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"supported api model names|model.?not.?exist|model.?not.?found|no such model|unknown model"
    r"|does not exist",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"jinja exception", re.IGNORECASE)
_REASONING = re.compile(r"reasoning_content", re.IGNORECASE)
_RISK = re.compile(r"content exists risk", re.IGNORECASE)


def words_of(error: object) -> tuple[str, int | None]:
    """The server's words, and the status that it names itself, from an error in any of the three forms."""
    match error:
        case str():
            return error, None
        case {"error": (dict() | str()) as inner}:
            return words_of(inner)
        case {"message": str() as message, **rest}:
            kinds = [str(rest[k]) for k in ("type", "code") if rest.get(k) not in (None, "")]
            code = str(rest.get("code"))
            status = int(code) if re.fullmatch("[45][0-9]{2}", code) else None
            return f"{message} ({', '.join(dict.fromkeys(kinds))})" if kinds else message, status
        case {"detail": detail}:
            return str(detail), None
        case _:
            return json.dumps(error, ensure_ascii=False, default=str), None


def refused(status: int, body: bytes, url: str, headers: dict[str, str]) -> Failure:
    """The failure that a reply with this status (not 200) stands for.  `headers`: names in lower case."""
    try:
        parsed: object = json.loads(body.decode("utf-8", "replace").strip() or '""')
    except (ValueError, RecursionError):
        parsed = None
    if parsed is None:
        words = "" if body.lstrip()[:1] == b"<" else excerpt(body)
        if body.lstrip()[:1] == b"<" and status < 500:
            return web_page(status, url)
    else:
        words = words_of(parsed)[0]
    return classified(status, words, url, _wait(headers.get("retry-after")))


def classified(status: int | None, words: str, url: str, wait: float | None = None) -> Failure:
    """The failure for these words.  `status` is None for an error inside a stream that names none."""
    said = f"{url} answered {status or 'with an error'}" + (f": {excerpt(words)}" if words else "")
    rate = _RATE.search(words) is not None
    if status == 402 or (_MONEY.search(words) and status not in (401, 403)):
        return BalanceError(f"{said}; top up the account, or choose another provider")
    if status in (401, 403):
        return AuthError(f"{said}; check the key and that it belongs to this URL")
    if _OVERFLOW.search(words) and not rate and status in (None, 400, 413, 422, 500):
        return ContextOverflowError(f"{said}; shorten the conversation with /compact, or begin a new one")
    if status == 429 or (status is None and rate):
        return RateLimitError(f"{said}; wait a little, or run less at once", wait=wait)
    if status in (400, 404) and _MODEL.search(words):
        return UnknownModelError(
            f"{said}; choose a model that the server has (--model, or `model` in the settings)"
        )
    if status == 404:
        return NotAModelServerError(f"{said}; check the base URL (often it must end in /v1)")
    if status == 408 or (status is not None and status >= 500 and not _TEMPLATE.search(words)):
        return ServerError(f"{said}; the server has a fault, try again later", wait=wait)
    if status is None:
        return ServerError(f"{said}; try again later")
    if status < 400:
        return NotAModelServerError(f"{said}; a chat completions server answers 200: check the base URL")
    return RefusedError(f"{said}; {_advice(words)}")


def _advice(words: str) -> str:
    if _RISK.search(words):
        return "its filter objects to something that was said: go on without the newest text or result"
    if _REASONING.search(words):
        return "begin a new conversation, or compact this one"
    return "the request can't be sent again as it is"


def web_page(status: int, url: str) -> NotAModelServerError:
    return NotAModelServerError(
        f"{url} answered {status} with a web page; check the base URL (often it must end in /v1)"
    )


def unreachable(why: str, url: str) -> ConnectError:
    return ConnectError(f"no connection to {url}: {why or 'it broke'}; check the network and the base URL")


def _wait(value: str | None) -> float | None:
    """Retry-After as seconds from now, capped: a number or a date."""
    if not value:
        return None
    try:
        wanted = float(value)
    except ValueError:
        try:
            wanted = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return None if math.isnan(wanted) else min(max(wanted, 0.0), WAIT_CAP)
