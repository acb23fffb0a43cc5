"""What goes wrong over real HTTP: what is tried again, what is kept, and what the user is told."""

import json
import socket

import pytest
import trio

from supervisor.model.chat import ChatModel
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.model.errors import (
    AuthError,
    BrokenStreamError,
    ConnectError,
    ContextOverflowError,
    EmptyReplyError,
    ModelError,
    NotAModelServerError,
    RateLimitError,
    ServerError,
    SilenceError,
)
from supervisor.rehearsal.script import Close, Html, Raw, Reset, Script, ScriptedCall, Stall, Status, Step
from tests.supervisor.talking import Talk, asking, broken, raw, talking

KEY = "sk-000111222333"


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
    assert talk.heard.text == error.partial.text  # what counts as said was shown


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


async def test_a_key_that_the_excerpt_of_an_error_would_cut_is_masked_whole() -> None:
    script = Script(steps=(Step(fault=Status(400, "x" * 290 + KEY)),), key=KEY)
    async with talking(script, key=KEY) as talk:
        error = await failing(talk)
    assert KEY[:6] not in str(error)


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-ü"])
async def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key: str) -> None:
    async with talking(broken(), key=key) as talk:
        error = await failing(talk)
        assert talk.server.requests() == []
    assert isinstance(error, AuthError)
    assert "sk-" not in str(error)


async def test_a_connection_that_no_one_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as full:
        endpoint = Endpoint(
            base_url=f"http://127.0.0.1:{full.getsockname()[1]}", tries=1, connect_seconds=0.2
        )
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:  # nobody accepts, so the queue is full and the next SYN stays unanswered
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            async with open_client(endpoint) as http:
                with pytest.raises(ConnectError, match=r"none within 0\.2 s"):
                    await ChatModel(http, endpoint).complete(asking(), lambda _: None, lambda _: None)
        finally:
            for one in waiting:
                one.close()
