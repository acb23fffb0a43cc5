"""What the scripted server refuses, in which words: requests over real HTTP."""

import json
from typing import cast

import httpx
import pytest

from supervisor.rehearsal import grammar, validation
from supervisor.rehearsal.script import Script, Step
from supervisor.rehearsal.server import serve
from tests.supervisor.talking import TOOL

Json = dict[str, object]

SYSTEM: Json = {"role": "system", "content": "S"}
USER: Json = {"role": "user", "content": "build it"}


def calling(*ids: str, **fields: object) -> Json:
    calls = [{"id": i, "type": "function", "function": {"name": "read_file", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": calls} | fields


def result(identity: str) -> Json:
    return {"role": "tool", "tool_call_id": identity, "content": "ok"}


def answer(content: object = "done", **fields: object) -> Json:
    return {"role": "assistant", "content": content, "reasoning_content": ""} | fields


def request(*messages: Json, **fields: object) -> Json:
    """A legal request with these messages; a field of None is left out."""
    body = {
        "model": "deepseek-flash",
        "messages": [SYSTEM, USER, *messages],
        "tools": [TOOL],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1_000,
    } | fields
    return {key: value for key, value in body.items() if value is not None}


class Played:
    """Sends requests to one conversation of a server."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def send(self, body: Json | bytes, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._http.post(self._url + "/chat/completions", content=content, headers=headers)


async def answered(body: Json | bytes, script: Script | None = None, **headers: str) -> tuple[int, str]:
    """Status, and the error's message or the reply's text, of this one request."""
    played = script or Script(steps=(Step(text="fine"),))
    async with serve({"main": played}) as server, httpx.AsyncClient() as http:
        response = await Played(http, server.url()).send(body, **headers)
        left = server.left()
    assert left == len(played.steps) - (response.status_code == 200), "a refused request takes no step"
    if response.status_code == 200:
        return 200, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return response.status_code, cast("str", error["message"])


LEGAL: dict[str, Json] = {
    "a user line": request(),
    "calls and their results": request(calling("a", "b"), result("b"), result("a"), answer()),
    "two user lines": request({"role": "user", "content": "and that"}),
    "parts": request({"role": "user", "content": [{"type": "text", "text": "hi"}]}),
    "calls without content": request(calling("a", content=None), result("a")),
    "no reasoning without tools": request({"role": "assistant", "content": "x"}, USER, tools=None),
    "no reasoning without thinking": request(
        {"role": "assistant", "content": "x"}, USER, thinking={"type": "disabled"}, tool_choice="required"
    ),
    "json mode": request({"role": "user", "content": "as JSON"}, response_format={"type": "json_object"}),
    "no stream": request(stream=False, stream_options=None),
}


@pytest.mark.parametrize("body", LEGAL.values(), ids=LEGAL)
async def test_a_legal_request_is_played(body: Json) -> None:
    status, text = await answered(body)
    assert (status, "fine" in text) == (200, True)


GRAMMAR: dict[str, tuple[Json, str]] = {
    "an unanswered call": (request(calling("a", "b"), result("a"), USER), grammar.UNANSWERED),
    "a call at the end": (request(calling("a")), grammar.UNANSWERED),
    "an orphan": (request(result("gone"), USER), grammar.ORPHAN),
    "a second result": (request(calling("a"), result("a"), result("a")), grammar.ORPHAN),
    "an id twice": (
        request(calling("a", "a"), result("a")),
        "Duplicate value for 'tool_call_id' of a in message[2]",
    ),
    "an id again": (
        request(calling("a"), result("a"), calling("a"), result("a")),
        "Duplicate value for 'tool_call_id' of a in message[4]",
    ),
    "an empty assistant": (request(answer(None), USER), grammar.EMPTY),
    "an assistant of nothing": (request(answer(""), USER), grammar.EMPTY),
    "no calls in a list": (request(answer("x", tool_calls=[]), USER), grammar.NO_CALLS),
    "no reasoning": (request({"role": "assistant", "content": "x"}, USER), validation.REASONING),
    "null reasoning": (request(answer("x", reasoning_content=None), USER), validation.REASONING),
}


@pytest.mark.parametrize(("body", "words"), GRAMMAR.values(), ids=GRAMMAR)
async def test_messages_that_break_the_grammar_are_refused_in_the_real_words(body: Json, words: str) -> None:
    assert await answered(body) == (400, words)


def stored(arguments: object, **fields: object) -> Json:
    function = {"name": "t", "arguments": arguments} | fields
    return calling("a", tool_calls=[{"id": "a", "type": "function", "function": function}])


SHAPES: dict[str, tuple[Json | bytes, str]] = {
    "no JSON": (b"{", "Failed to parse the request body as JSON"),
    "half a surrogate pair": (
        json.dumps(request()).replace("build it", "x\\ud83d").encode(),
        "as JSON: messages[1].content: unexpected end of hex escape at line 1 column",
    ),
    "half a pair at the end of a body": (
        b'{"model":"gpt-9","messages":[{"role":"user","content":"\\udc00"}]}',
        "as JSON: messages[0].content: unexpected end of hex escape at line 1 column",
    ),
    "half a pair after a wrong type": (
        b'{"model":5,"messages":[{"role":"user","content":[{"text":"\\ud83d"}]}]}',
        "as JSON: messages[0].content[0].text: unexpected end of hex escape at line 1 column",
    ),
    "no messages": (request(messages=[]), "expected at least one message"),
    "a number of messages": (request(messages=3), "Failed to deserialize"),
    "a message that is a text": (request(messages=["hi"]), "messages[0]: invalid type: string"),
    "an unknown role": (
        request({"role": "developer", "content": "x"}),
        "messages[2]: unknown variant `developer`",
    ),
    "no content": (request({"role": "user"}), "messages[2]: missing field `content`"),
    "null content": (
        request({"role": "user", "content": None}),
        "messages[2]: invalid type: null, expected a string",
    ),
    "a result in parts": (
        request(calling("a"), result("a") | {"content": []}),
        "messages[3]: invalid type: sequence, expected a string",
    ),
    "content that is an object": (request({"role": "user", "content": {}}), "invalid type: map"),
    "content that is a number": (request({"role": "user", "content": 7}), "invalid type: number `7`"),
    "content that is a boolean": (request({"role": "user", "content": True}), "invalid type: boolean `true`"),
    "a result without id": (request({"role": "tool", "content": "x"}), "missing field `tool_call_id`"),
    "odd reasoning": (request(answer("x", reasoning_content=1)), "`reasoning_content`"),
    "calls by the user": (
        request({"role": "user", "content": "x", "tool_calls": []}),
        "expected no `tool_calls`",
    ),
    "a call without id": (request(calling("", "b")), "tool_calls[0]: missing field `id`"),
    "a call of another type": (
        request(calling("a", tool_calls=[{"id": "a", "type": "custom"}])),
        "unknown variant `custom`, expected `function`",
    ),
    "arguments as an object": (request(stored({})), "function: invalid type: map, expected a string"),
    "no arguments": (
        request(calling("a", tool_calls=[{"id": "a", "type": "function"}])),
        "missing field `name`",
    ),
    "arguments that don't parse": (
        request(stored('{"a": 1'), result("a")),
        "invalid tool call arguments: Expecting",
    ),
    "arguments with NaN": (request(stored('{"a": NaN}'), result("a")), "invalid tool call arguments: NaN"),
    "arguments that are a list": (
        request(stored("[]"), result("a")),
        "invalid tool call arguments: not an object",
    ),
    "another model": (
        request(model="gpt-9"),
        "The supported API model names are deepseek-flash, deepseek-v4-pro, but",
    ),
    "too much output": (request(max_tokens=10_000_000), "the valid range of max_tokens is [1, 393216]"),
    "no output": (request(max_tokens=0), "Invalid max_tokens value"),
    "stream options alone": (request(stream=False), "stream_options should be set along with stream = true"),
    "no tools in a list": (request(tools=[]), validation.EMPTY_TOOLS),
    "too many tools": (request(tools=[TOOL] * 129), "Invalid 'tools': array too long"),
    "a tool of another type": (
        request(tools=[{"type": "custom"}]),
        "tools[0].type: unknown variant `custom`",
    ),
    "a tool's odd name": (
        request(tools=[TOOL, {"type": "function", "function": {"name": "a b"}}]),
        "Invalid 'tools[1].function.name': string does not match pattern",
    ),
    "a choice while thinking": (request(tool_choice="required"), validation.TOOL_CHOICE),
    "a named choice": (request(tool_choice={"type": "function"}), validation.TOOL_CHOICE),
    "an odd effort": (
        request(reasoning_effort="none"),
        "unknown variant `none`, expected one of `high`, `low`",
    ),
    "an odd thinking": (request(thinking={"type": "on"}), "thinking.type: unknown variant `on`"),
    "json mode without the word": (request(response_format={"type": "json_object"}), validation.NO_JSON_WORD),
    "a message's shape before the model": (
        request({"role": "user"}, model="gpt-9"),
        "messages[2]: missing field `content`",
    ),
    "a tool's type before the model": (
        request(tools=[{"type": "custom"}], model="gpt-9"),
        "tools[0].type: unknown variant `custom`",
    ),
    "an earlier fault wins": (
        request(result("gone"), model="gpt-9", tools=[]),
        "The supported API model names",
    ),
}


@pytest.mark.parametrize(("body", "words"), SHAPES.values(), ids=SHAPES)
async def test_a_request_of_the_wrong_shape_is_refused_in_the_real_words(
    body: Json | bytes, words: str
) -> None:
    status, message = await answered(body)
    assert status == 400
    assert words in message


async def test_messages_and_reply_must_fit_the_window_together() -> None:
    script = Script(steps=(Step(text="fine"),), window=1_200)
    assert (await answered(request(), script))[0] == 200
    status, message = await answered(request({"role": "user", "content": "x" * 1_000}), script)
    assert status == 400
    assert message.startswith("This model's maximum context length is 1200 tokens. However, you requested ")
    assert "1000 in the completion" in message


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "auth header format should be Bearer sk-..."),
        ("Basic eDp5", "auth header format should be Bearer sk-..."),
        ("Bearer sk-wrong-9999", "Your api key: ****9999 is invalid"),
    ],
)
async def test_a_key_that_is_asked_for_is_checked(header: str, words: str) -> None:
    script = Script(steps=(Step(text="fine"),), key="sk-right")
    status, message = await answered(request(), script, Authorization=header)
    assert status == 401
    assert words in message
    assert (await answered(request(), script, Authorization="Bearer sk-right"))[0] == 200


async def test_a_lenient_script_plays_to_anything_that_is_a_request() -> None:
    script = Script(steps=(Step(text="fine"),), validate=False)
    assert (await answered(request(result("gone"), tools=[]), script))[0] == 200


async def test_a_refused_request_leaves_the_conversation_where_it_was() -> None:
    script = Script(steps=(Step(text="one"), Step(text="two")))
    async with serve({"main": script}) as server, httpx.AsyncClient() as http:
        played = Played(http, server.url())
        assert "one" in (await played.send(request())).text
        assert (await played.send(request(answer("one"), result("x")))).status_code == 400
        changed = request(answer("one"), {"role": "user", "content": "go on"})
        assert "two" in (await played.send(changed)).text
        assert [recorded.step for recorded in server.requests()] == [1, 0, 2]
        assert server.requests()[1].refusal == grammar.ORPHAN


async def test_a_known_beginning_is_not_trusted_when_it_changes() -> None:
    script = Script(steps=(Step(text="one"),), repeat_last=True)
    async with serve({"main": script}) as server, httpx.AsyncClient() as http:
        played = Played(http, server.url())
        begun = [calling("a"), result("a"), answer("one"), USER]
        assert (await played.send(request(*begun))).status_code == 200
        assert (await played.send(request(*begun, calling("a"), result("a")))).status_code == 400
        assert (await played.send(request(*begun[2:], calling("a"), result("a")))).status_code == 200
        assert (await played.send(request(*begun, calling("b"), result("b")))).status_code == 200
