"""The store against its bounds: reading the file once (P21), and one bare `write`.

P21's live context is what one session still sends: here the last of several compacted stretches.
"""

import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.row import Measured
from protocol.conversation import Answer, Calls, Message, Pair, ToolCall, ToolResult, User
from supervisor.store.load import load
from supervisor.store.transcript import Transcript

_SIZE = 100_000_000
_STRETCH = 2_000_000
"""Bytes between two compactions: about 600,000 tokens."""


def _write(path: Path, size: int) -> None:
    transcript = Transcript(path)
    text = ("def function(argument):\n    return argument + 1  # a line of a program\n" * 150)[:10_000]
    turn, since = 0, 0
    while transcript.seq == 0 or path.stat().st_size < size:
        turn += 1
        for message in _exchange(turn, text):
            transcript.message(message, turn=turn, round=turn)
        since += len(text)
        if since > _STRETCH:
            transcript.compaction(Pair(User.says("so far"), (), Answer.by("model", "all")), 1, transcript.seq)
            since = 0
    transcript.close()


def _exchange(number: int, text: str) -> list[Message]:
    call = ToolCall(f"call_{number}", "read_file", '{"path":"a.py"}')
    return [User.says("go on"), Calls((call,)), ToolResult(call.id, text), Answer.by("model", "done")]


def _seconds(what: Callable[[], object]) -> float:
    gc.collect()
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


def resume() -> Measured:
    """Reading a transcript of 100 MB, once plain and once into a conversation, alternating."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "t.jsonl"
        _write(path, _SIZE)
        bound = subject = float("inf")
        for _ in range(3):
            bound = min(bound, _seconds(path.read_bytes))
            subject = min(subject, _seconds(lambda: load(path)))
    return ("P21 resume of 100 MB", bound, subject, "s", "<= 3 x")


def append() -> Measured:
    """A line of about 1 kB, once as a bare `write` and once as a message."""
    lines = 5000
    with tempfile.TemporaryDirectory() as directory:
        descriptor = os.open(Path(directory) / "bare", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        transcript = Transcript(Path(directory) / "t.jsonl")
        message = ToolResult("call_1", "x" * 800)
        line = b"x" * 950 + b"\n"

        def bare() -> None:
            for _ in range(lines):
                os.write(descriptor, line)

        def ours() -> None:
            for _ in range(lines):
                transcript.message(message, turn=1, round=1)

        bound = subject = float("inf")
        for _ in range(3):
            bound = min(bound, _seconds(bare) / lines)
            subject = min(subject, _seconds(ours) / lines)
        os.close(descriptor)
        transcript.close()
    return ("transcript: one line of 1 kB", bound * 1e6, subject * 1e6, "µs", "<= 10 µs")


ROWS = [append, resume]
