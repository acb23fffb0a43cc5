"""P14: memory while a command prints much more than anyone reads."""

import subprocess
import time

import psutil

from bench.ground import agent_run, environment, serving
from bench.row import Measured

SAMPLE_SECONDS = 0.02
BOUND_MB = 10.0


def p14_ten_megabytes() -> Measured:
    return _measured("P14 10 MB of output: peak above idle", 10)


def p14_one_gigabyte() -> Measured:
    return _measured("P14 1 GB of output: peak above idle", 1000)


def _measured(name: str, megabytes: int) -> Measured:
    """Supervisor, zygote and worker together; idle is while a first command sleeps.  `head` and `tr` count
    for nothing: they are the command's own."""
    flood = f"head -c {megabytes}000000 /dev/zero | tr '\\0' x"
    calls = [
        {"calls": [{"name": "run_command", "arguments": {"command": text}}]} for text in ("sleep 1", flood)
    ]
    with serving({"us": {"steps": [*calls, {"text": "Done."}]}}) as (url, _):
        started = time.monotonic()
        with subprocess.Popen(agent_run(f"{url}/us"), env=environment(), stdout=subprocess.DEVNULL) as child:
            idle = peak = 0.0
            while child.poll() is None:
                size = _megabytes(child.pid)
                if time.monotonic() - started < 1.0:
                    idle = max(idle, size)
                peak = max(peak, size)
                time.sleep(SAMPLE_SECONDS)
    if child.returncode:
        raise RuntimeError(f"exit code {child.returncode}")
    return (name, BOUND_MB, peak - idle, "MB", "<= 1.5")


def _megabytes(pid: int) -> float:
    """Resident memory of the process and those of its descendants that run Python."""
    total = 0
    try:
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            if "python" in each.name() or each.pid == pid:
                total += each.memory_info().rss
    except psutil.Error:
        return total / 1e6
    return total / 1e6


ROWS = [p14_ten_megabytes, p14_one_gigabyte]
