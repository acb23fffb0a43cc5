"""Replies over real HTTP: how pieces become one completion."""

import json

import pytest
import trio

from protocol.conversation import Answer, Calls, Text, ToolResult, User
from protocol.events import Usage
from supervisor.model.assembly import RawCall
from supervisor.model.chat import ChatModel
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.model.reply import to_reply
from supervisor.rehearsal.script import Raw, Script, ScriptedCall, ScriptedUsage, Stall, Step
from supervisor.rehearsal.server import serve
from tests.supervisor.talking import asking, new_request, raw, talking

A = '{"path":"a"}'
B = '{"path":"b"}'


def chunk(finish: str | None = None, **delta: object) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call(arguments: object, **fields: object) -> dict[str, object]:
    """A fragment of a call; `name` in fields goes where it belongs."""
    name = fields.pop("name", None)
    function = {"arguments": arguments} | ({"name": name} if name is not None else {})
    return {**fields, "function": function}


END = chunk("stop")


async def test_a_reply_of_thinking_text_and_calls_arrives_whole_and_in_pieces() -> None:
    step = Step(
        thinking="Let me look at it.",
        text="Reading both.",
        calls=(
            ScriptedCall("read_file", {"path": "a"}, id="call_a"),
            ScriptedCall("read_file", {"path": "b"}, id="call_b"),
        ),
        usage=ScriptedUsage(prompt=374, completion=61, cached=256, reasoning=17),
        chunk=3,
        keep_alive=2,
    )
    async with talking(Script(steps=(step,))) as talk:
        whole = await talk.ask()
    assert whole.text == talk.heard.text == "Reading both."
    assert whole.reasoning == talk.heard.reasoning == "Let me look at it."
    assert whole.calls == (RawCall("call_a", "read_file", A), RawCall("call_b", "read_file", B))
    assert whole.usage == Usage(prompt=374, completion=61, cached=256, reasoning=17)
    assert whole.finish_reason == "tool_calls"
    assert [name for delta in talk.heard.deltas for name in delta.calls] == ["read_file", "read_file"]


async def test_a_conversation_goes_on_over_one_connection_and_its_reasoning_comes_back() -> None:
    steps = (
        Step(thinking="Look first.", calls=(ScriptedCall("read_file", {"path": "a"}),)),
        Step(thinking="", text="It says x."),
        Step(text="You are welcome.", expect="thanks"),
    )
    request = new_request([User.says("what is in a?")])
    async with talking(Script(steps=steps)) as talk:
        first = to_reply(await talk.ask(request.body()), ())
        assert isinstance(first, Calls)
        request.append([first, ToolResult(first.calls[0].id, "x")])
        second = to_reply(await talk.ask(request.body()), (first.calls[0].id,))
        assert second == Answer((Text("It says x.", "model"),), "")
        request.append([second, User.says("thanks")])
        await talk.ask(request.body())
        recorded = talk.server.requests()
        assert talk.server.connections == 1
    sent = recorded[2].json()["messages"]
    assert isinstance(sent, list)
    assert [m.get("reasoning_content") for m in sent if m["role"] == "assistant"] == ["Look first.", ""]
    tail = len(request.tail())
    assert recorded[1].body.startswith(recorded[0].body[:-tail])
    assert recorded[2].body.startswith(recorded[1].body[:-tail])


@pytest.mark.parametrize(
    ("event", "reasoning"),
    [
        (chunk(content="hi"), None),
        (chunk(content="hi", reasoning_content=None), None),
        (chunk(content="hi", reasoning_content=""), ""),
    ],
)
async def test_no_reasoning_and_empty_reasoning_are_told_apart(event: str, reasoning: str | None) -> None:
    async with talking(raw(event, END)) as talk:
        assert (await talk.ask()).reasoning == reasoning


FRAGMENTS = {
    "as it should be": [
        call('{"pat', index=0, id="a", name="t"), call('h":"a"}', index=0),
        call(B, index=1, id="b", name="t"),
    ],
    "id in each fragment": [
        call('{"pat', index=0, id="a", name="t"), call('h":"a"}', index=0, id="a", name="t"),
        call(B, index=1, id="b", name="t"),
    ],
    "blank id behind": [
        call('{"pat', index=0, id="a", name="t"), call('h":"a"}', index=0, id=""),
        call(B, index=1, id="b", name="t"),
    ],
    "index always 0": [call(A, index=0, id="a", name="t"), call(B, index=0, id="b", name="t")],
    "index one late": [
        call(A, index=0, id="a", name="t"), call('{"pat', index=0, id="b", name="t"),
        call('h":"b"}', index=1),
    ],
    "no index": [
        call('{"pat', id="a", name="t"), call('h":"a"}'), call(B, id="b", name="t"),
    ],
    "no index and no id": [call(A, name="t"), call(B, name="t")],
    "no id": [call(A, index=0, name="t"), call(B, index=1, name="t")],
    "one id for both": [call(A, index=0, id="a", name="t"), call(B, index=1, id="a", name="t")],
    "arguments as an object": [
        call({"path": "a"}, index=0, id="a", name="t"), call({"path": "b"}, index=1, id="b", name="t"),
    ],
    "interleaved": [
        call('{"pat', index=0, id="a", name="t"), call('{"pat', index=1, id="b", name="t"),
        call('h":"a"}', index=0), call('h":"b"}', index=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("fragments", FRAGMENTS.values(), ids=FRAGMENTS)
@pytest.mark.parametrize("together", [True, False], ids=["one event", "an event each"])
async def test_however_two_calls_are_numbered_they_are_two_with_ids_of_their_own(
    fragments: list[dict[str, object]], together: bool
) -> None:
    groups = [fragments] if together else [[fragment] for fragment in fragments]
    events = [chunk(tool_calls=group) for group in groups]
    async with talking(raw(*events, END)) as talk:
        reply = to_reply(await talk.ask(), ())
    assert isinstance(reply, Calls)
    assert [c.arguments for c in reply.calls] == [A, B]
    assert [c.name for c in reply.calls] == ["t", "t"]
    assert not any(c.problem for c in reply.calls)


async def test_arguments_that_are_no_json_are_stored_so_that_a_strict_server_takes_them() -> None:
    steps = (
        Step(calls=(ScriptedCall("run_command", '{"command": "ls", timeout": 5}'),)),
        Step(text="Sorry, again.", expect="character"),
    )
    request = new_request([User.says("list")])
    async with talking(Script(steps=steps)) as talk:
        reply = to_reply(await talk.ask(request.body()), ())
        assert isinstance(reply, Calls)
        (bad,) = reply.calls
        assert 'timeout"' in bad.problem
        request.append([reply, ToolResult(bad.id, bad.problem, failed=True)])
        assert (await talk.ask(request.body())).text == "Sorry, again."


@pytest.mark.parametrize(
    "usages",
    [
        [END[:-1] + ', "usage": {"prompt_tokens": 9, "completion_tokens": 2}}'],
        [END, '{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}'],
        [END, '{"choices": null, "usage": {"prompt_tokens": 9.0, "completion_tokens": "2"}}'],
        [
            chunk(content="")[:-1] + ', "usage": {"prompt_tokens": 9, "completion_tokens": 1}}',
            END[:-1] + ', "usage": {"prompt_tokens": 9, "completion_tokens": 2}}',
        ],
    ],
    ids=["finish chunk", "trailing chunk", "floats and strings", "each chunk"],
)
async def test_usage_is_read_wherever_it_stands_and_the_last_one_counts(usages: list[str]) -> None:
    async with talking(raw(chunk(content="hi"), *usages)) as talk:
        assert (await talk.ask()).usage == Usage(prompt=9, completion=2)


async def test_usage_of_zeros_is_no_usage_and_cached_tokens_are_read_in_either_place() -> None:
    zeros = END[:-1] + ', "usage": {"prompt_tokens": 0, "completion_tokens": 0}}'
    details = '"prompt_tokens_details": {"cached_tokens": 128}, "completion_tokens_details": null'
    detailed = END[:-1] + ', "usage": {"prompt_tokens": 200, "completion_tokens": 1, ' + details + "}}"
    async with talking(raw(chunk(content="hi"), zeros)) as talk:
        assert (await talk.ask()).usage is None
    async with talking(raw(chunk(content="hi"), detailed)) as talk:
        assert (await talk.ask()).usage == Usage(prompt=200, completion=1, cached=128)


async def test_odd_events_of_a_sound_stream_are_survived() -> None:
    events = (
        '{"choices": [{"index": 0, "delta": null}]}',
        '{"choices": [{"index": 0}], "usage": null, "later": {"deep": [1]}}',
        chunk(content="half \ud83d and whole \ud83d\ude00, "),
        '{"choices": [{"delta": {"content": "line\u2028sep, "}, "logprobs": NaN}]}',
        chunk(content=None, reasoning_content=None, tool_calls=None),
        chunk("stop", content="end"),
    )
    async with talking(raw(*events)) as talk:
        assert (await talk.ask()).text == "half \ufffd and whole \U0001f600, line\u2028sep, end"


async def test_a_stream_cut_at_each_byte_is_read_the_same() -> None:
    event = '{"choices": [{"delta": {"content": "Füße \U0001f600\u2028x"}}]}'
    text = "data:" + event + "\r\n\r\ndata: " + END + "\r\rdata: [DONE]"
    script = Script(steps=(Step(fault=Raw(text, piece=1)),))
    async with talking(script) as talk:
        assert (await talk.ask()).text == "Füße \U0001f600\u2028x"


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_one_json_object_instead_of_a_stream_is_a_reply_too(content_type: str) -> None:
    message = {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "Hm.",
        "tool_calls": [call(A, id="c", name="t")],
    }
    body = json.dumps(
        {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5}}
    )
    script = Script(steps=(Step(fault=Raw("\n\n" + body, content_type=content_type, piece=20)),))
    async with talking(script) as talk:
        whole = await talk.ask()
    assert (whole.text, whole.reasoning, whole.calls) == ("4", "Hm.", (RawCall("c", "t", A),))
    assert whole.usage == Usage(prompt=5)
    assert talk.heard.text == "4"


@pytest.mark.parametrize("then", ["end", "reset", "hold"])
async def test_after_a_finish_reason_the_reply_is_whole_however_the_stream_ends(then: str) -> None:
    async with talking(raw(chunk(content="all of it"), END, then=then, done=False), trailer=0.2) as talk:
        whole = await talk.ask()
    assert (whole.text, whole.finish_reason, talk.heard.retries) == ("all of it", "stop", [])


async def test_done_without_a_finish_reason_is_an_end() -> None:
    async with talking(raw(chunk(content="all of it"))) as talk:
        assert (await talk.ask()).text == "all of it"


async def test_a_cancelled_completion_closes_its_connection_and_the_next_one_works() -> None:
    steps = (Step(text="one two three", chunk=4, fault=Stall(after=3)), Step(text="again"))
    async with talking(Script(steps=steps)) as talk, trio.open_nursery() as nursery:
        told = trio.Event()
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_when, told, scope)
            await talk.chat.complete(asking(), lambda _: told.set(), talk.heard.retries.append)
        assert scope.cancelled_caught
        (first,) = await talk.server.wait_for(1, ended=True)
        assert (await talk.ask()).text == "again"
        assert first.step == 1


async def _cancel_when(told: trio.Event, scope: trio.CancelScope) -> None:
    await told.wait()
    scope.cancel()


async def test_many_conversations_run_at_once_over_one_client() -> None:
    texts: dict[str, str] = {}
    scripts = {name: Script(steps=(Step(text=name * 5, chunk=1, pause=0.001),)) for name in "abcd"}
    async with serve(scripts) as server, open_client(Endpoint(base_url=server.url("a"))) as http:

        async def converse(name: str) -> None:
            chat = ChatModel(http, Endpoint(base_url=server.url(name) + "/v1/"))
            texts[name] = (await chat.complete(asking(), lambda _: None, lambda _: None)).text

        async with trio.open_nursery() as nursery:
            for name in scripts:
                nursery.start_soon(converse, name)
    assert texts == {name: name * 5 for name in "abcd"}
