"""How a reply's bytes are handed on: by network read, and only while somebody listens."""

import json

import pytest
import trio

from supervisor.model.assembly import Delta
from supervisor.model.chat import ChatModel
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.rehearsal.script import Script, Step
from tests.supervisor.talking import asking, talking


def chunk(content: str) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": content}}]})


async def test_what_one_network_read_brings_is_one_delta_and_a_lone_piece_comes_at_once() -> None:
    events = [f"data: {chunk(letter)}\n\n".encode() for letter in "abcdef"] + [b"data: [DONE]\n\n"]
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    deltas: list[str] = []
    arrived = trio.Event()

    async def at_one_go(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(head + chunks[0])
            await arrived.wait()
            await stream.send_all(b"".join(chunks[1:]) + b"0\r\n\r\n")

    def hear(delta: Delta) -> None:
        deltas.append(delta.text)
        arrived.set()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, at_one_go, [listener])
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{listener.socket.getsockname()[1]}")
        async with open_client(endpoint) as http:
            await ChatModel(http, endpoint).complete(asking(), hear, deltas.append)
        nursery.cancel_scope.cancel()
    assert deltas == ["a", "bcdef"]


async def test_what_a_listener_raises_comes_out_as_it_is_and_the_connection_is_closed() -> None:
    def refuse(_: object) -> None:
        raise BrokenPipeError("nobody reads")

    async with talking(Script(steps=(Step(text="abc", chunk=1, pause=0.01), Step(text="again")))) as talk:
        with pytest.raises(BrokenPipeError, match="nobody reads"):
            await talk.chat.complete(asking(), refuse, talk.heard.retries.append)
        assert (await talk.ask()).text == "again"
