"""The model's door against its bounds: building requests (P7), reading a stream of small chunks (P8).

Bound and subject alternate, the medians are compared; all values are CPU seconds of this process. The
scripted server runs in a process of its own, so what it costs is not counted.
"""

import json
import statistics
import time
from collections.abc import Awaitable, Callable

import httpx
import msgspec
import trio
from msgspec import Struct

from bench.ground import agent_run, environment, play, serving
from bench.row import Measured
from protocol.conversation import Answer, Calls, Message, ToolCall, ToolResult, User
from protocol.tools.catalog import TOOLS, schema
from supervisor.model.chat import ChatModel
from supervisor.model.dialect import DEEPSEEK, encode_message
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.model.request import Request

PAIRS = 5
ROUNDS = 200
ROUND_BYTES = 10_000
CHUNKS = 20_000


def building() -> Measured:
    """P7: the bodies of 200 requests that grow to 2 MB; the bound dumps each whole request."""
    bounds, subjects = [], []
    for _ in range(PAIRS):
        bounds.append(_cpu(_dump_each))
        subjects.append(_cpu(_append_each))
    return "P7 building 200 requests up to 2 MB", *_medians(bounds, subjects), "CPU s", "<= 0.04"


def streaming() -> list[Measured]:
    """P8: a reply of 20,000 chunks of 4 characters.  The bound reads, splits, decodes and keeps nothing, in
    this process; against it the model's door alone, here too, and the whole of `agent run`, less what `agent
    run` costs with a reply of one chunk."""
    script = {"steps": [{"text": "abc " * CHUNKS, "chunk": 4}], "repeat_last": True}
    with serving({"long": script, "short": {"steps": [{"text": "abc "}], "repeat_last": True}}) as (url, _):
        bound, door = trio.run(_stream_each, f"{url}/long")
        whole = statistics.median(
            play(agent_run(f"{url}/long"), environment()).cpu
            - play(agent_run(f"{url}/short"), environment()).cpu
            for _ in range(PAIRS)
        )
    return [
        ("P8 20,000 chunks of 4 characters, agent run", bound, whole, "CPU s", "<= 2.0"),
        ("P8 the same, the model's door alone", bound, door, "CPU s", "<= 2.0"),
    ]


ROWS = [building, streaming]


def _round(number: int) -> list[Message]:
    call = ToolCall(f"call_{number}", "read_file", json.dumps({"path": f"src/file_{number}.py"}))
    line = "    return {key: value for key, value in pairs.items() if value is not None}\n"
    return [
        Calls((call,), "Reading on.", "What next?"),
        ToolResult(call.id, line * (ROUND_BYTES // len(line))),
    ]


def _dump_each() -> None:
    plain = [{"role": "system", "content": "You are a foreman."}]
    tools = [schema(tool) for tool in TOOLS.values()]
    for number in range(ROUNDS):
        plain += [json.loads(encode_message(message, DEEPSEEK)) for message in _round(number)]
        body = {"model": "deepseek-flash", "messages": plain, "tools": tools, "stream": True}
        started = time.process_time()
        json.dumps(body).encode()
        _spent[0] += time.process_time() - started


def _append_each() -> None:
    tools = [schema(tool) for tool in TOOLS.values()]
    request = Request(DEEPSEEK, "deepseek-flash", "You are a foreman.", tools, 32_000)
    request.append([User.says("read it all"), Answer.by("model", "Yes.")])
    for number in range(ROUNDS):
        messages = _round(number)
        started = time.process_time()
        request.append(messages)
        request.body()
        _spent[0] += time.process_time() - started


_spent = [0.0]


def _cpu(work: Callable[[], None]) -> float:
    """What `work` counts as its own."""
    _spent[0] = 0.0
    work()
    return _spent[0]


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta


class _Chunk(Struct):
    choices: list[_Choice]


async def _stream_each(url: str) -> tuple[float, float]:
    messages: list[dict[str, str]] = [{"role": "user", "content": "go"}]
    body = msgspec.json.encode({"model": "deepseek-flash", "messages": messages, "stream": True})
    endpoint = Endpoint(base_url=url)
    bounds, subjects = [], []
    async with open_client(endpoint) as http:
        chat = ChatModel(http, endpoint)
        for _ in range(PAIRS):
            bounds.append(await _cpu_of(lambda: _read_barely(http, endpoint, body)))
            subjects.append(await _cpu_of(lambda: _read_wholly(chat, body)))
    return _medians(bounds, subjects)


async def _read_barely(http: httpx.AsyncClient, endpoint: Endpoint, body: bytes) -> int:
    decoder = msgspec.json.Decoder(_Chunk)
    characters = 0
    tail = b""
    async with http.stream("POST", endpoint.url, content=body, headers=endpoint.headers()) as response:
        async for data in response.aiter_raw():
            *blocks, tail = (tail + data).split(b"\n\n")
            for block in blocks:
                if block != b"data: [DONE]":
                    characters += len(decoder.decode(block[6:]).choices[0].delta.content or "")
    return characters


async def _read_wholly(chat: ChatModel, body: bytes) -> int:
    characters = 0

    def count(delta: object) -> None:
        nonlocal characters
        characters += 1

    return len((await chat.complete(body, count, lambda _: None)).text)


async def _cpu_of(work: Callable[[], Awaitable[int]]) -> float:
    started = time.process_time()
    characters = await work()
    spent = time.process_time() - started
    if characters != 4 * CHUNKS:
        raise RuntimeError(f"read {characters} characters of {4 * CHUNKS}")
    return spent


def _medians(bounds: list[float], subjects: list[float]) -> tuple[float, float]:
    return statistics.median(bounds), statistics.median(subjects)
