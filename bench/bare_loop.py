"""The bound of most rows: the smallest honest agent.  One process, one tool, no sandbox, no transcript.

    python -m bench.bare_loop BASE_URL TASK

It streams with httpx, runs commands with subprocess, and encodes the whole list of messages for each request.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import httpx

Object = dict[str, object]

PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [{"type": "function", "function": {"name": "run_command", "parameters": PARAMETERS}}]
FIXED = {"model": "deepseek-flash", "stream": True, "tools": TOOLS, "thinking": {"type": "enabled"}}


def deltas(client: httpx.Client, url: str, messages: list[Object]) -> Iterator[Object]:
    body = json.dumps({**FIXED, "messages": messages}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer none"}
    with client.stream("POST", f"{url}/chat/completions", content=body, headers=headers) as response:
        if response.status_code != 200:
            raise SystemExit(response.read().decode())
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield from (choice["delta"] for choice in json.loads(line[6:])["choices"])


def reply(client: httpx.Client, url: str, messages: list[Object]) -> tuple[Object, list[dict[str, str]]]:
    said = {"content": "", "reasoning_content": ""}
    calls: list[dict[str, str]] = []
    for delta in deltas(client, url, messages):
        for name in said:
            said[name] += str(delta.get(name) or "")
        for part in delta.get("tool_calls") or []:  # type: ignore[attr-defined]  # bare JSON, on purpose
            if part["index"] == len(calls):
                calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
            calls[part["index"]]["arguments"] += part["function"].get("arguments") or ""
    message: Object = {"role": "assistant", **said}
    if calls:
        asked = [{"name": call["name"], "arguments": call["arguments"]} for call in calls]
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": function}
            for call, function in zip(calls, asked, strict=True)
        ]
    return message, calls


def main(url: str, task: str) -> None:
    messages: list[Object] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": task},
    ]
    with httpx.Client(timeout=60) as client:
        while True:
            message, calls = reply(client, url, messages)
            messages.append(message)
            if not calls:
                print(message["content"])
                return
            for call in calls:
                command = json.loads(call["arguments"])["command"]
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
                messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": done.stdout or "(no output)"}
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
