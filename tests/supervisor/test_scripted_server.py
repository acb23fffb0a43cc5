"""The scripted server over real HTTP: what it plays, what it records."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from supervisor.rehearsal.script import (
    Case,
    Script,
    ScriptedCall,
    ScriptError,
    Stall,
    Status,
    Step,
    load_scripts,
)
from supervisor.rehearsal.server import ScriptedServer, serve

Json = dict[str, object]


def body(*lines: str, stream: bool = False) -> bytes:
    messages = [{"role": "user", "content": line} for line in lines]
    return json.dumps({"model": "deepseek-flash", "messages": messages, "stream": stream}).encode()


class Client:
    def __init__(self, server: ScriptedServer, http: httpx.AsyncClient) -> None:
        self.server = server
        self.http = http

    async def post(self, *lines: str, name: str = "main", stream: bool = False) -> httpx.Response:
        url = self.server.url(name) + "/chat/completions"
        return await self.http.post(url, content=body(*lines, stream=stream))

    async def text(self, *lines: str, name: str = "main") -> object:
        found = (await self.post(*lines, name=name)).json()
        return found["choices"][0]["message"]["content"] if "choices" in found else found["error"]["message"]


@asynccontextmanager
async def running(**scripts: Script) -> AsyncIterator[Client]:
    async with serve(scripts) as server, httpx.AsyncClient() as http:
        yield Client(server, http)


async def test_a_stream_has_the_shape_of_the_real_one() -> None:
    step = Step(
        thinking="Look", text="Checking.", calls=(ScriptedCall("read", {"path": "a.py"}),), keep_alive=1
    )
    async with running(main=Script(steps=(step,))) as client:
        response = await client.post("hi", stream=True)
    assert response.headers["content-type"] == "text/event-stream"
    comment, *events, done, end = response.text.split("\n\n")
    assert (comment, done, end) == (": keep-alive", "data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[:3] == [
        {"role": "assistant", "content": None, "reasoning_content": ""},
        {"content": None, "reasoning_content": "Look"},
        {"content": "Checking.", "reasoning_content": None},
    ]
    (begun,) = deltas[3]["tool_calls"]
    assert begun["id"].startswith("call_00_")
    assert begun["function"] == {"name": "read", "arguments": ""}
    assert deltas[4] == {"tool_calls": [{"index": 0, "function": {"arguments": '{"path":"a.py"}'}}]}
    assert deltas[5] == {"content": "", "reasoning_content": None}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["tool_calls"]
    assert [chunk["usage"] is None for chunk in chunks] == [True] * 5 + [False]


async def test_each_conversation_has_its_own_script_and_record() -> None:
    async with running(one=Script(steps=(Step(text="1"),)), two=Script(steps=(Step(text="2"),))) as client:
        assert await client.text("hi", name="two") == "2"
        assert await client.text("hi", name="one/v1") == "1"
        assert [len(client.server.requests(name)) for name in ("one", "two")] == [1, 1]
        assert client.server.add("three", Script(steps=(Step(text="3"),))) == client.server.url("three")
        assert await client.text("hi", name="three") == "3"


async def test_a_used_up_script_says_so_and_one_that_repeats_does_not_end() -> None:
    async with running(
        main=Script(steps=(Step(text="1"),)), more=Script(steps=(Step(text="1"),), repeat_last=True)
    ) as client:
        await client.text("hi")
        response = await client.post("hi")
        assert response.status_code == 500
        assert "used up: its 1 steps are played" in response.text
        assert [await client.text("hi", name="more") for _ in range(3)] == ["1"] * 3


async def test_a_step_may_expect_words_and_waits_for_them() -> None:
    async with running(main=Script(steps=(Step(text="yes", expect="sesame"),))) as client:
        assert "expects the last message to contain 'sesame' at step 1; it is 'open'" in str(
            await client.text("open")
        )
        assert await client.text("open sesame") == "yes"


async def test_each_line_of_the_user_begins_a_case_chosen_by_its_words() -> None:
    cases = (
        Case("Sandbox", (Step(text="a wall"), Step(text="and a door"))),
        Case("", (Step(text="I am a script."),)),
    )
    async with running(main=Script(steps=(Step(text="hello"),), cases=cases)) as client:
        lines = ("hi", "show the SANDBOX", "anything", "what?", "sandbox")
        said = [await client.text(line) for line in lines]
    assert said == ["hello", "a wall", "I am a script.", "I am a script.", "a wall"]


async def test_a_request_that_is_sent_again_after_a_fault_goes_on_in_its_case() -> None:
    steps = (Step(fault=Status(503)), Step(text="now"))
    async with running(main=Script(cases=(Case("", steps),))) as client:
        assert (await client.post("hi")).status_code == 503
        assert await client.text("hi") == "now"


async def test_requests_are_recorded_byte_for_byte_with_their_times() -> None:
    async with running(main=Script(steps=(Step(text="x", delay=0.02),), repeat_last=True)) as client:
        await client.post("one")
        await client.http.post(
            client.server.url() + "/chat/completions", content=body("twö"), headers={"X-Odd": "Yes"}
        )
        first, second = await client.server.wait_for(2, ended=True)
        assert client.server.connections == 1
    assert (first.body, second.body) == (body("one"), body("twö"))
    assert second.header("X-Odd") == "Yes"
    assert second.header("X-None") == ""
    assert second.json()["model"] == "deepseek-flash"
    assert (first.number, second.number, second.size) == (1, 2, len(second.body))
    assert first.previous_end_ns == 0
    assert second.previous_end_ns == first.end_ns
    assert first.first_byte_ns <= first.last_byte_ns <= first.end_ns - 2e7
    assert first.end_ns <= second.first_byte_ns


async def test_a_client_that_leaves_is_recorded_and_the_server_goes_on() -> None:
    steps = (Step(text="x" * 5_000_000, chunk=1_000), Step(text="y", fault=Stall(after=1)), Step(text="z"))
    async with running(main=Script(steps=steps)) as client:
        url = client.server.url() + "/chat/completions"
        for _ in range(2):
            with trio.CancelScope() as scope:
                async with client.http.stream("POST", url, content=body("hi", stream=True)) as response:
                    async for _ in response.aiter_raw():
                        scope.cancel()
        await client.server.wait_for(2, ended=True)
        assert await client.text("hi") == "z"
        assert [request.cut for request in client.server.requests()] == [True, False, False]


async def test_models_are_listed_and_other_paths_are_unknown() -> None:
    async with running(main=Script(models=("m",)), other=Script()) as client:
        root = f"http://127.0.0.1:{client.server.port}"
        listed = (await client.http.get(root + "/main/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["m"]
        assert (await client.http.get(root + "/models?x=1")).json() == listed
        assert (await client.http.get(root + "/main/other")).status_code == 404
        unknown = await client.http.get(root + "/nobody/models")
        assert unknown.status_code == 404
        assert "there are: main, other" in unknown.text
        assert client.server.requests() == []


async def test_an_error_may_have_any_body_and_headers() -> None:
    faults = (
        Status(429, "slow down", headers={"retry-after": "7"}),
        Status(400, body={"error": "flat"}),
        Status(502, body="<html>bad gateway</html>"),
    )
    async with running(main=Script(steps=tuple(Step(fault=fault) for fault in faults))) as client:
        one, two, three = [await client.post("hi") for _ in faults]
    assert (one.status_code, one.headers["retry-after"]) == (429, "7")
    assert one.json()["error"]["message"] == "slow down"
    assert two.json() == {"error": "flat"}
    assert (three.status_code, three.headers["content-type"]) == (502, "text/html")


async def test_a_whole_reply_may_come_after_empty_lines() -> None:
    async with running(main=Script(steps=(Step(text="x", keep_alive=3),))) as client:
        response = await client.post("hi")
    assert response.content.startswith(b"\n\n\n{")
    assert response.json()["choices"][0]["finish_reason"] == "stop"


async def test_what_is_no_http_and_a_client_that_says_close_end_their_connection_only() -> None:
    async with running(main=Script(steps=(Step(text="x"),), repeat_last=True)) as client:
        stream = await trio.open_tcp_stream("127.0.0.1", client.server.port)
        async with stream:
            await stream.send_all(b"nonsense\r\n\r\n")
            assert await stream.receive_some() == b""
        closed = await client.http.get(client.server.url() + "/models", headers={"Connection": "close"})
        assert closed.status_code == 200
        async with await trio.open_tcp_stream("127.0.0.1", client.server.port) as stream:
            head = "POST /main/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            await stream.send_all(f"{head}Content-Length: {len(body('a'))}\r\n\r\n".encode())
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
            await stream.send_all(body("a"))
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")


STEPS: Json = {
    "steps": [{"text": "hi", "calls": [{"name": "t", "arguments": {"a": 1}}], "fault": {"type": "reset"}}]
}


def test_scripts_are_read_from_json_and_toml(tmp_path: Path) -> None:
    one = tmp_path / "one.json"
    one.write_text(json.dumps(STEPS))
    many = tmp_path / "many.json"
    many.write_text(json.dumps({"scripts": {"a": STEPS, "b": {"repeat_last": True}}}))
    toml = tmp_path / "one.toml"
    toml.write_text(
        '[[steps]]\ntext = "hi"\nfault = {type = "reset"}\n[[steps.calls]]\nname = "t"\narguments = {a = 1}\n'
    )
    assert load_scripts(one)["main"] == load_scripts(toml)["main"] == load_scripts(many)["a"]
    assert load_scripts(many)["b"] == Script(repeat_last=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "truncated"),
        ('{"steps": [{"txt": "hi"}]}', "unknown field `txt` - at `$.steps[0]`"),
        ('{"steps": [{"fault": {"type": "flood"}}]}', "flood"),
        ('{"scripts": {"a": {"steps": 3}}}', "$.scripts[...].steps"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ScriptError) as caught:
        load_scripts(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="No such file"):
        load_scripts(tmp_path / "none.toml")
