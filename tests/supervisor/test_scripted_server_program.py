"""The scripted server as a program of its own, and in a thread."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from supervisor.rehearsal.script import Script, Step
from supervisor.rehearsal.server import main
from supervisor.rehearsal.thread import ServerThread

SECONDS = 20.0
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"steps": [{"text": "hello"}], "models": [], "repeat_last": True}))
    return path


@contextmanager
def program(script: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The program as a child, and its base URL."""
    command = [sys.executable, "-m", "supervisor.rehearsal.server", str(script), *arguments]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as child:
        try:
            assert child.stdout is not None
            yield child, json.loads(child.stdout.readline())["url"]
        finally:
            child.kill()


def test_the_program_prints_its_url_records_and_ends_when_told(script: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    odd = BODY.replace(b"hi", b"\xff")
    with program(script, "--record", str(record)) as (child, url):
        reply = httpx.post(url + "/chat/completions", content=BODY).json()
        assert reply["choices"][0]["message"]["content"] == "hello"
        assert httpx.post(url + "/chat/completions", content=odd).status_code == 400
        child.send_signal(signal.SIGTERM)
        assert child.wait(SECONDS) == 0
    first, second = [json.loads(line) for line in record.read_text().splitlines()]
    assert (first["body"], first["name"], first["number"], first["step"]) == (BODY.decode(), "main", 1, 1)
    assert first["first_byte_ns"] <= first["last_byte_ns"] <= first["end_ns"]
    assert base64.b64decode(second["body_base64"]) == odd


def test_the_record_holds_no_key_and_is_its_owners_alone(script: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    with program(script, "--record", str(record)) as (child, url):
        httpx.post(url + "/chat/completions", content=BODY, headers={"Authorization": "Bearer sk-secret"})
        child.send_signal(signal.SIGTERM)
        assert child.wait(SECONDS) == 0
    assert "sk-secret" not in record.read_text()
    assert "[masked]" in record.read_text()
    assert record.stat().st_mode & 0o777 == 0o600


def test_a_port_that_is_none_is_refused(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(script), "--port", "99999"])
    assert "99999 is no port" in capsys.readouterr().err


def test_the_program_ends_when_who_started_it_closes_its_stdin(script: Path) -> None:
    with program(script, "--no-bodies") as (child, url):
        assert httpx.get(url + "/models").json()["data"] == []
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert httpx.get(url + "/models").status_code == 200
        child.stdin.close()
        assert child.wait(SECONDS) == 0


def test_a_stdin_that_says_nothing_does_not_end_it(script: Path) -> None:
    command = [sys.executable, "-m", "supervisor.rehearsal.server", str(script)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=root) as child:
        assert child.stdout is not None
        url = json.loads(child.stdout.readline())["url"]
        assert httpx.get(url + "/models").status_code == 200
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(SECONDS) == 0


def test_a_bad_script_and_a_taken_port_are_one_clear_line(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.json")]) == 2
    assert "none.json: No such file" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main([str(script), "--port", str(taken.getsockname()[1])]) == 1
    assert "in use" in capsys.readouterr().err


def test_a_server_in_a_thread_serves_a_program_that_is_not_async() -> None:
    before = threading.active_count()
    with ServerThread({"main": Script(steps=(Step(text="a"),), models=())}) as server:
        url = server.add("more", Script(steps=(Step(text="b"),), models=()))
        for base in (server.url(), url):
            httpx.post(base + "/chat/completions", content=BODY).raise_for_status()
        (request,) = server.wait_for(1, "more", ended=True)
        assert request.body == BODY
        assert [r.step for r in server.requests()] == [1]
        assert server.left() == 0
        with pytest.raises(TimeoutError, match="1 of 2 requests"):
            server.wait_for(2, seconds=0.05)
    assert threading.active_count() == before
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_server_that_is_not_running_says_so() -> None:
    with pytest.raises(RuntimeError, match="with"):
        ServerThread({}).url()
