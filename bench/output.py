"""P14: memory while a command prints much more than anyone reads."""

import subprocess
import time
from contextlib import suppress

import psutil

from bench.ground import agent_run, environment, serving
from bench.row import Measured

SAMPLE_SECONDS = 0.02
BOUND_MB = 10.0
COMMANDS = ("bash", "sh", "sleep", "head", "tr")
"""What the command itself consists of."""


def p14_ten_megabytes() -> Measured:
    return _measured("P14 10 MB of output: peak above idle", 10)


def p14_one_gigabyte() -> Measured:
    return _measured("P14 1 GB of output: peak above idle", 1000)


def _measured(name: str, megabytes: int) -> Measured:
    """Supervisor, zygote and worker together; idle is while a first command sleeps."""
    flood = f"head -c {megabytes}000000 /dev/zero | tr '\\0' x"
    calls = [
        {"calls": [{"name": "run_command", "arguments": {"command": text}}]} for text in ("sleep 1", flood)
    ]
    idle = peak = 0.0
    with serving({"us": {"steps": [*calls, {"text": "Done."}]}}) as (url, _):
        with subprocess.Popen(agent_run(f"{url}/us"), env=environment(), stdout=subprocess.DEVNULL) as child:
            while child.poll() is None:
                size, sleeps = _megabytes(child.pid)
                idle = max(idle, size) if sleeps else idle
                peak = max(peak, size)
                time.sleep(SAMPLE_SECONDS)
    if child.returncode:
        raise RuntimeError(f"exit code {child.returncode}")
    return (name, BOUND_MB, peak - idle, "MB", "<= 1.5")


def _megabytes(pid: int) -> tuple[float, bool]:
    """Resident memory of the process and those below it that run Python; whether a `sleep` is among them."""
    total, sleeps = 0, False
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                name = each.name()
                sleeps = sleeps or name == "sleep"
                if name not in COMMANDS:
                    total += each.memory_info().rss
    return total / 1e6, sleeps


ROWS = [p14_ten_megabytes, p14_one_gigabyte]
