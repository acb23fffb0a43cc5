"""P4, P5, P6, P13: what 200 rounds with a command that does nothing cost, measured by the server."""

from pathlib import Path
from statistics import median

from bench.ground import agent_run, bare_run, environment, peak_mb, play, recorded, serving
from bench.row import Measured

REPEATS = 5
ROUNDS = 200
EDGE = 20
"""Rounds at each end that are compared for growth."""


def script(command: str) -> dict[str, object]:
    call = {"name": "run_command", "arguments": {"command": command}}
    return {"steps": [*({"thinking": "Next.", "calls": [call]} for _ in range(ROUNDS)), {"text": "Done."}]}


def p4_p5_p6_rounds() -> list[Measured]:
    """200 rounds with the command `true` by `agent run`, sandbox on, against the bare loop.  P4: from the
    last byte of a reply to the first of the next request, by the server's clock, the median; P5: that of the
    last 20 rounds by that of the first 20; P6: the whole process with its children, wall clock and CPU."""
    with serving({"bare": script("true"), "us": script("true")}) as (url, record):
        bare = play(bare_run(f"{url}/bare"), environment())
        us = play(_us(f"{url}/us"), environment())
        bare_gaps, gaps = _gaps(record, "bare"), _gaps(record, "us")
    growth = median(gaps[-EDGE:]) / median(gaps[:EDGE])
    return [
        ("P4 overhead per round", median(bare_gaps), median(gaps), "ms", "<= 2.0"),
        ("P5 its growth over 200 rounds", 1.0, growth, "x", "<= 1.15"),
        ("P6 200 rounds: wall", bare.wall, us.wall, "s", "<= 2.0"),
        ("P6 200 rounds: CPU", bare.cpu, us.cpu, "s", "<= 2.0"),
    ]


def p13_memory() -> Measured:
    """Peak resident size of the largest process (ours: the supervisor) in a run with 200 results of 10 kB,
    against the bare loop's."""
    command = "printf '%10000s' x"
    with serving({"bare": script(command), "us": script(command)}) as (url, _):
        bare = peak_mb(bare_run(f"{url}/bare"), environment())
        us = peak_mb(_us(f"{url}/us"), environment())
    return ("P13 memory after 200 results of 10 kB", bare, us, "MB", "<= 2")


def _us(url: str) -> list[str]:
    return agent_run(url, "go", "--max-tool-rounds", str(ROUNDS + 1))


def _gaps(record: Path, name: str) -> list[float]:
    """Milliseconds from the last byte of a reply to the first of the next request."""
    requests = recorded(record, name)
    if len(requests) != ROUNDS + 1:
        raise RuntimeError(f"{name}: {len(requests)} requests instead of {ROUNDS + 1}")
    return [
        (int(str(request["first_byte_ns"])) - int(str(request["previous_end_ns"]))) / 1e6
        for request in requests[1:]
    ]


ROWS = [p4_p5_p6_rounds, p13_memory]
