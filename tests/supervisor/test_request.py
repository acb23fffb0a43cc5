"""The bytes of a request."""

import json

from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation import Answer, Calls, Image, Message, Note, Text, ToolCall, ToolResult, User
from supervisor.model.dialect import DEEPSEEK, NO_OUTPUT, Dialect, encode_message
from tests.supervisor.talking import TOOL, new_request

CALLS = Calls((ToolCall("call_1", "read_file", '{"path": "a"}', "a problem"),), "Looking.", "Hm.")


def wire(message: Message, dialect: Dialect = DEEPSEEK) -> object:
    found: object = json.loads(encode_message(message, dialect))
    return found


def test_each_kind_of_message_has_its_shape_on_the_wire() -> None:
    assert wire(User.says("hi")) == {"role": "user", "content": "hi"}
    assert wire(CALLS) == {
        "role": "assistant",
        "content": "Looking.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "a"}'},
            }
        ],
    }
    assert wire(ToolResult("call_1", "text", failed=True)) == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "text",
    }
    assert wire(Note((Text("go on", "program"),))) == {"role": "user", "content": "go on"}


def test_parts_are_joined_and_a_picture_is_named() -> None:
    user = User((Text("look", "user"), Image("image/png", "a.png", "user"), Text("data", "program")))
    assert wire(user) == {"role": "user", "content": "look\n\n[picture a.png]\n\ndata"}


def test_every_assistant_message_carries_its_reasoning_and_an_empty_one_where_there_was_none() -> None:
    assert wire(Answer((Text("4", "model"),), "Two and two.")) == {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "Two and two.",
    }
    assert wire(Answer.by("program", "[interrupted]")) == {
        "role": "assistant",
        "content": "[interrupted]",
        "reasoning_content": "",
    }
    assert wire(Calls(CALLS.calls)) == wire(Calls(CALLS.calls, "", ""))


def test_a_dialect_without_echo_sends_no_reasoning() -> None:
    plain = Dialect(echo_reasoning=False)
    assert wire(Answer((Text("4", "model"),), "Hm."), plain) == {"role": "assistant", "content": "4"}


def test_an_empty_result_is_said_to_be_empty() -> None:
    assert wire(ToolResult("call_1", " \n")) == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": NO_OUTPUT,
    }


def test_half_a_surrogate_pair_never_reaches_the_wire() -> None:
    assert wire(User.says("a\ud83d b \ud83d\ude00")) == {"role": "user", "content": "a\ufffd b \U0001f600"}
    calls = Calls((ToolCall("c", "t", '{"a":"\udc80"}'),), "\ud83d")
    assert b"\\ud83d" not in encode_message(calls, DEEPSEEK)


def test_a_body_holds_the_messages_and_then_what_never_changes() -> None:
    request = new_request([User.says("hi")])
    assert json.loads(request.body()) == {
        "model": "deepseek-flash",
        "messages": [
            {"role": "system", "content": "You are a foreman."},
            {"role": "user", "content": "hi"},
        ],
        "tools": [TOOL],
        "stream": True,
        "stream_options": {"include_usage": True},
        "thinking": {"type": "enabled"},
        "reasoning_effort": "high",
        "max_tokens": 1_000,
    }


def test_without_tools_the_key_is_left_out_and_the_volatile_line_is_in_one_body_only() -> None:
    request = new_request([User.says("hi")])
    last = json.loads(request.body(tools=False, volatile="Sum up."))
    assert "tools" not in last
    assert last["messages"][-1] == {"role": "user", "content": "Sum up."}
    assert b"Sum up." not in request.body()


def test_append_says_how_many_bytes_it_adds_and_restart_keeps_position_0() -> None:
    request = new_request()
    empty = request.body()
    added = request.append([User.says("hi"), CALLS])
    assert len(request.body()) == len(empty) + added
    assert request.size == len(request.body())
    request.restart()
    assert request.body() == empty
    assert request.system in empty


messages = st.one_of(
    st.text(max_size=20).map(User.says),
    st.text(max_size=20).map(lambda text: ToolResult("c", text)),
    st.builds(
        lambda text, thought: Answer((Text("x" + text, "model"),), thought), st.text(), st.none() | st.text()
    ),
    st.text(st.characters(), max_size=5).map(lambda text: Calls((ToolCall("c", "t", "{}"),), text)),
)


@given(st.lists(messages, max_size=8), st.booleans())
def test_each_body_begins_with_the_one_before_byte_for_byte(said: list[Message], tools: bool) -> None:
    request = new_request()
    before = request.body()[: -len(request.tail())]
    for message in said:
        request.append([message])
        body = request.body(tools=tools)
        json.loads(body)
        begun = body[: len(body) - len(request.tail(tools=tools))]
        assert begun.startswith(before)
        before = begun
