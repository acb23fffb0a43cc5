"""P22: the part of a request that is the same every time: the system prompt and the tools' schemas."""

import json

from bench.ground import agent_run, environment, play, recorded, serving
from bench.row import Measured


def p22_fixed_part() -> Measured:
    """Bytes of JSON of the system message and the tools, in the request that `agent run` really sent."""
    with serving({"us": {"steps": [{"text": "Done."}]}}, bodies=True) as (url, record):
        play(agent_run(f"{url}/us"), environment())
        body = json.loads(str(recorded(record, "us")[0]["body"]))
    system = len(json.dumps(body["messages"][0], ensure_ascii=False).encode())
    tools = len(json.dumps(body["tools"], ensure_ascii=False, separators=(",", ":")).encode())
    return ("P22 fixed part of a request", 12_000, system + tools, "bytes", "<= 12000 bytes")


ROWS = [p22_fixed_part]
