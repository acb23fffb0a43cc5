"""What goes wrong becomes one named error, in words that say where and what to do."""

import json
from collections.abc import Mapping

import pytest

from supervisor.model.endpoint import Endpoint
from supervisor.model.errors import (
    EXCERPT,
    AuthError,
    BalanceError,
    BrokenStreamError,
    ConnectError,
    ContextOverflowError,
    EmptyReplyError,
    Failure,
    ModelError,
    NotAModelServerError,
    Partial,
    RateLimitError,
    RefusedError,
    ServerError,
    SilenceError,
    UnknownModelError,
    excerpt,
    seconds,
)
from supervisor.model.refusals import WAIT_CAP, refused
from supervisor.model.retries import JITTER, LONGEST, retry_after

URL = "http://host/v1/chat/completions"
KEY = "sk-000111222333"
FIRST = 0.5


def deepseek(message: str, kind: str = "invalid_request_error") -> str:
    error = {"message": message, "type": kind, "param": None, "code": "invalid_request_error"}
    return json.dumps({"error": error})


OVERFLOW = (
    "This model's maximum context length is 1048565 tokens. However, you requested 1551241 tokens "
    "(1543241 in the messages, 8000 in the completion). Please reduce the length of the messages or "
    "completion."
)

REFUSALS: list[tuple[int, str, type[ModelError], str]] = [
    (401, deepseek("Authentication Fails, Your api key: ****abcd is invalid"), AuthError, "****abcd"),
    (403, "", AuthError, "check the key"),
    (402, deepseek("Insufficient Balance", "unknown_error"), BalanceError, "top up"),
    (429, deepseek("You exceeded your current quota, check your plan"), BalanceError, "top up"),
    (429, deepseek("Rate limit reached for TPM"), RateLimitError, "TPM"),
    (
        429,
        deepseek("concurrency is 40, which exceeds your limit. Please top up"),
        RateLimitError,
        "less at once",
    ),
    (
        400,
        deepseek("but you passed gpt-9. The supported API model names are x"),
        UnknownModelError,
        "--model",
    ),
    (
        404,
        '{"error": {"message": "model \\"x\\" not found", "code": "model_not_found"}}',
        UnknownModelError,
        "x",
    ),
    (404, "404 page not found", NotAModelServerError, "/v1"),
    (400, deepseek(OVERFLOW), ContextOverflowError, "/compact"),
    (
        400,
        '{"error": "The context length is too small (n_ctx: 4096)"}',
        ContextOverflowError,
        "n_ctx",
    ),
    (
        400,
        '{"object": "error", "message": "exceeds the model\'s context window", "code": 400}',
        ContextOverflowError,
        "",
    ),
    (
        500,
        '{"error": {"code": 500, "message": "exceeds the available context size"}}',
        ContextOverflowError,
        "",
    ),
    (413, '{"error": {"message": "prompt is too long"}}', ContextOverflowError, ""),
    (422, '{"detail": [{"loc": ["body"], "msg": "field required"}]}', RefusedError, "field required"),
    (
        400,
        deepseek("The `reasoning_content` in the thinking mode must be passed back"),
        RefusedError,
        "compact",
    ),
    (400, deepseek("Content Exists Risk"), RefusedError, "filter"),
    (400, '["odd"]', RefusedError, "odd"),
    (500, "Jinja Exception: roles must alternate", RefusedError, "Jinja"),
    (500, deepseek("server error"), ServerError, "try again later"),
    (502, "<html><body>Bad Gateway</body></html>", ServerError, "answered 502;"),
    (503, "[" * 50_000, ServerError, "503"),
    (408, "", ServerError, "408"),
    (301, "<html>moved</html>", NotAModelServerError, "web page"),
    (204, "", NotAModelServerError, "base URL"),
    (302, "see there", NotAModelServerError, "base URL"),
]


@pytest.mark.parametrize(("status", "body", "kind", "words"), REFUSALS)
def test_a_refusal_is_classed_by_its_status_and_its_words(
    status: int, body: str, kind: type[ModelError], words: str
) -> None:
    error = refused(status, body.encode(), URL, {})
    assert type(error) is kind
    assert words in str(error)
    assert f"{URL} answered {status}" in str(error)
    assert "<html>" not in str(error)
    assert len(str(error)) < EXCERPT + 250


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("7", 7.0),
        ("1e9", WAIT_CAP),
        ("-3", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2215 07:28:00 GMT", WAIT_CAP),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date_and_capped(value: str, wait: float | None) -> None:
    assert refused(429, b"", URL, {"retry-after": value}).wait == wait


def test_a_strangers_words_are_shown_short_and_printable() -> None:
    assert excerpt("a\x1b[31m\n\n b\u202e") == "a\ufffd[31m b\ufffd"
    assert excerpt(b"\xff\xfeok") == "\ufffd\ufffdok"
    assert excerpt("x" * 1_000_000, 10) == "x" * 9 + "…"
    assert (seconds(90.0), seconds(1.2), seconds(0.254)) == ("90 s", "2 s", "0.25 s")


SEEN = Partial("text")
THOUGHT = Partial("", "thinking")

DECISIONS: list[tuple[Failure, int, float | None]] = [
    (ConnectError("x"), 1, FIRST),
    (ConnectError("x"), 3, FIRST * 4),
    (ServerError("x"), 30, LONGEST),
    (ServerError("x", wait=20.0), 1, 20.0),
    (RateLimitError("x", wait=0.0), 2, FIRST * 2),
    (BrokenStreamError("x"), 1, FIRST),
    (BrokenStreamError("x", partial=THOUGHT), 1, FIRST),
    (BrokenStreamError("x", partial=SEEN), 1, None),
    (BrokenStreamError("x", partial=Partial(calls=("t",))), 1, None),
    (EmptyReplyError("x", finish="stop"), 1, FIRST),
    (EmptyReplyError("x", finish="stop"), 2, None),
    (EmptyReplyError("x", finish="length"), 1, None),
    (SilenceError("x"), 1, None),
    (AuthError("x"), 1, None),
    (BalanceError("x"), 1, None),
    (ContextOverflowError("x"), 1, None),
    (UnknownModelError("x"), 1, None),
    (NotAModelServerError("x"), 1, None),
]


@pytest.mark.parametrize(("error", "attempt", "pause"), DECISIONS)
def test_what_is_tried_again_is_decided_by_the_failure(
    error: Failure, attempt: int, pause: float | None
) -> None:
    assert retry_after(error, attempt, FIRST) == pause
    jittered = retry_after(error, attempt, FIRST, 1.0)
    assert jittered == pause or (pause is not None and jittered == pause * (1 + JITTER))


def test_an_endpoint_shows_neither_key_nor_password() -> None:
    endpoint = Endpoint(base_url="https://me:secret@host:8443/v1/?token=abc", key=KEY)
    assert repr(endpoint) == "Endpoint(https://host:8443/v1/)"
    headers: Mapping[str, str] = Endpoint(base_url="http://host").headers()
    assert "Authorization" not in headers
    assert headers["Accept-Encoding"] == "identity"


def test_blanks_around_a_key_and_the_whole_path_in_a_base_url_are_forgiven() -> None:
    endpoint = Endpoint(base_url="http://host/v1/chat/completions/", key=f" {KEY}\n")
    assert endpoint.url == "http://host/v1/chat/completions"
    assert endpoint.headers()["Authorization"] == f"Bearer {KEY}"
    assert endpoint.masked(f"no {KEY}") == "no [key]"
