"""What goes wrong becomes one named error, in words that say where and what to do."""

import json
import socket
from collections.abc import Mapping

import pytest
import trio

from supervisor.model.chat import ChatModel
from supervisor.model.endpoint import Endpoint, open_client
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
from supervisor.rehearsal.script import Close, Html, Raw, Reset, Script, ScriptedCall, Stall, Status, Step
from tests.supervisor.talking import Talk, asking, broken, raw, talking

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


async def failing(talk: Talk) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await talk.ask()
    return caught.value


@pytest.mark.parametrize(
    "fault",
    [
        Reset(),
        Reset(after=0),
        Close(after=0, tidy=False),
        Reset(after=2),
        Close(after=2),
        Status(503),
        Status(429),
    ],
    ids=repr,
)
async def test_what_breaks_before_any_output_is_tried_again_and_told(fault: Reset | Close | Status) -> None:
    async with talking(broken(fault)) as talk:
        assert (await talk.ask()).text == "sound"
        (why,) = talk.heard.retries
    assert talk.server.url() in why
    assert "(2 of 4)" in why


@pytest.mark.parametrize("fault", [Reset(after=5), Close(after=5), Close(after=5, tidy=False)], ids=repr)
async def test_what_breaks_within_the_text_is_not_and_carries_what_was_there(fault: Reset | Close) -> None:
    async with talking(broken(fault)) as talk:
        error = await failing(talk)
        assert len(talk.server.requests()) == 1
    assert isinstance(error, BrokenStreamError)
    assert error.partial.text == talk.heard.text != ""
    assert "one two three".startswith(error.partial.text)
    assert error.partial.reasoning == "Hm."


async def test_half_a_call_is_never_handed_out() -> None:
    step = Step(
        calls=(ScriptedCall("write_file", {"path": "a", "content": "b"}),), chunk=4, fault=Reset(after=4)
    )
    async with talking(Script(steps=(step, Step(text="no")))) as talk:
        error = await failing(talk)
        assert len(talk.server.requests()) == 1
    assert error.partial.calls == ("write_file",)
    assert error.partial.text == ""


async def test_tries_are_bounded_and_the_last_failure_is_raised() -> None:
    async with talking(broken(Status(500), Status(502), Status(503)), tries=2) as talk:
        assert isinstance(await failing(talk), ServerError)
        assert len(talk.server.requests()) == 2
        assert len(talk.heard.retries) == 1


async def test_the_servers_wish_to_be_left_alone_is_honoured() -> None:
    async with talking(broken(Status(429, headers={"Retry-After": "1"}))) as talk:
        await talk.ask()
        first, second = talk.server.requests()
    assert second.first_byte_ns - first.end_ns >= 0.99e9


async def test_a_wait_between_two_tries_can_be_cancelled() -> None:
    async with talking(broken(Status(429, headers={"Retry-After": "30"}))) as talk:
        with trio.CancelScope() as scope:
            await talk.chat.complete(asking(), talk.heard.deltas.append, lambda _: scope.cancel())
        assert scope.cancelled_caught


@pytest.mark.parametrize("status", [400, 401, 402, 404])
async def test_what_can_not_get_better_is_not_tried_again(status: int) -> None:
    async with talking(broken(Status(status, "no"))) as talk:
        await failing(talk)
        assert len(talk.server.requests()) == 1


async def test_a_reply_of_thinking_only_is_tried_once_more_and_then_is_an_error() -> None:
    script = Script(steps=(Step(thinking="Let me see."),), repeat_last=True)
    async with talking(script) as talk:
        error = await failing(talk)
        assert len(talk.server.requests()) == 2
    assert isinstance(error, EmptyReplyError)
    assert "thinking only" in str(error)
    assert error.partial.reasoning == "Let me see."


async def test_thinking_that_used_up_the_output_limit_is_not_tried_again() -> None:
    async with talking(Script(steps=(Step(thinking="On and on", finish_reason="length"),))) as talk:
        error = await failing(talk)
    assert isinstance(error, EmptyReplyError)
    assert "max_output_tokens" in str(error)


@pytest.mark.parametrize("reason", ["content_filter", "stop"])
async def test_an_empty_reply_says_how_it_ended(reason: str) -> None:
    async with talking(Script(steps=(Step(finish_reason=reason),), repeat_last=True), tries=1) as talk:
        assert reason in str(await failing(talk))


async def test_a_body_of_nothing_is_an_empty_reply() -> None:
    async with talking(Script(steps=(Step(fault=Raw("")),)), tries=1) as talk:
        assert isinstance(await failing(talk), EmptyReplyError)


CHUNK = json.dumps({"choices": [{"delta": {"content": "half"}}]})

STREAMED: list[tuple[list[str], type[ModelError], str]] = [
    (['{"error": {"message": "overloaded", "code": 503}}'], ServerError, "overloaded"),
    (['{"error": {"message": "Rate limit reached"}}'], RateLimitError, "Rate limit"),
    (
        ['{"error": {"code": 400, "message": "maximum context length is 9"}}'],
        ContextOverflowError,
        "/compact",
    ),
    (['{"error": "it broke"}'], ServerError, "it broke"),
    (['{"object": "error", "message": "flat words"}'], ServerError, "flat words"),
    ([CHUNK, '{"error": {"message": "lost"}}'], BrokenStreamError, "lost"),
    (["no json at all"], NotAModelServerError, "no json at all"),
    ([CHUNK, '{"choices": 7}'], BrokenStreamError, "no part of a reply"),
    (['{"success": true, "data": {}}'], NotAModelServerError, "base URL"),
]


@pytest.mark.parametrize(("events", "kind", "words"), STREAMED)
@pytest.mark.parametrize("then", ["end", "hold"])
async def test_an_error_inside_a_stream_ends_it_at_once_with_its_words(
    events: list[str], kind: type[ModelError], words: str, then: str
) -> None:
    async with talking(raw(*events, then=then), tries=1) as talk:
        error = await failing(talk)
    assert type(error) is kind
    assert words in str(error)
    assert error.partial.text == ("half" if events[0] == CHUNK else "")


async def test_lack_of_capacity_is_tried_again_before_any_text_and_names_itself_after_it() -> None:
    reason = "insufficient_system_resource"
    steps = (Step(thinking="Hm.", finish_reason=reason), Step(text="half", finish_reason=reason))
    async with talking(Script(steps=steps)) as talk:
        error = await failing(talk)
        assert len(talk.server.requests()) == 2
    assert isinstance(error, BrokenStreamError)
    assert (error.partial.text, "capacity" in str(error)) == ("half", True)


@pytest.mark.parametrize(
    "fault", [Html(), Raw("It works!", content_type="text/plain"), Html(status=404)], ids=repr
)
async def test_what_is_no_model_server_is_said_to_be_none(fault: Html | Raw) -> None:
    async with talking(broken(fault)) as talk:
        error = await failing(talk)
    assert isinstance(error, NotAModelServerError)
    assert "check the base URL" in str(error)
    assert "<" not in str(error)


async def test_one_json_object_that_is_no_reply_is_said_to_be_none() -> None:
    fault = Raw('{"data": {}, "success": true}', content_type="application/json")
    async with talking(broken(fault), tries=1) as talk:
        error = await failing(talk)
    assert isinstance(error, NotAModelServerError)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Stall(), "sent nothing for"),
        (Stall(after=0), "sent nothing for"),
        (Stall(after=0, comment_every=0.02), "keep-alive comments"),
        (Stall(comment_every=0.02), "keep-alive comments"),
    ],
    ids=repr,
)
async def test_a_server_without_a_word_or_with_comments_only_is_given_up_after_the_first_limit(
    fault: Stall, words: str
) -> None:
    async with talking(broken(fault), first=0.3, idle=60.0) as talk:
        error = await failing(talk)
    assert isinstance(error, SilenceError)
    assert words in str(error)


@pytest.mark.parametrize("comment_every", [None, 0.02])
async def test_comments_do_not_keep_a_reply_alive_that_has_fallen_silent(comment_every: float | None) -> None:
    async with talking(broken(Stall(after=5, comment_every=comment_every)), first=60.0, idle=0.3) as talk:
        error = await failing(talk)
    assert isinstance(error, SilenceError)
    assert error.partial.text
    assert "within the reply" in str(error)


async def test_a_refused_connection_is_tried_again_and_then_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port, and it refuses
        endpoint = Endpoint(
            base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", tries=2, pause_seconds=0.01
        )
        retries: list[str] = []
        async with open_client(endpoint) as http:
            with pytest.raises(ConnectError, match="no connection to") as caught:
                await ChatModel(http, endpoint).complete(asking(), lambda _: None, retries.append)
    assert endpoint.shown_url in str(caught.value)
    assert len(retries) == 1


@pytest.mark.parametrize("url", ["http://", "ftp://127.0.0.1", "nonsense", "http://127.0.0.1:99999999"])
async def test_what_is_no_url_is_named(url: str) -> None:
    endpoint = Endpoint(base_url=url, tries=1)
    async with open_client(endpoint) as http:
        with pytest.raises((ConnectError, NotAModelServerError), match="base URL"):
            await ChatModel(http, endpoint).complete(asking(), lambda _: None, lambda _: None)


async def test_the_key_goes_into_the_header_and_never_into_a_message() -> None:
    script = Script(steps=(Step(fault=Status(400, f"bad key {KEY}")),), key=KEY)
    async with talking(script, key=KEY) as talk:
        error = await failing(talk)
        (request,) = talk.server.requests()
    assert request.header("authorization") == f"Bearer {KEY}"
    assert KEY not in str(error)
    assert "[key]" in str(error)


def test_an_endpoint_shows_neither_key_nor_password() -> None:
    endpoint = Endpoint(base_url="https://me:secret@host:8443/v1/?token=abc", key=KEY)
    assert repr(endpoint) == "Endpoint(https://host:8443/v1/)"
    headers: Mapping[str, str] = Endpoint(base_url="http://host").headers()
    assert "Authorization" not in headers
    assert headers["Accept-Encoding"] == "identity"
