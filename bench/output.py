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
    idle: dict[int, int] = {}
    peak = 0
    with (
        serving({"us": {"steps": [*calls, {"text": "Done."}]}}) as (url, _),
        subprocess.Popen(agent_run(f"{url}/us"), env=environment(), stdout=subprocess.DEVNULL) as child,
    ):
        while child.poll() is None:
            sizes, sleeps = _sizes(child.pid)
            if sleeps:
                idle = sizes
            # What is not there when idle is a command, or a worker's copy on its way to become one.
            peak = max(peak, sum(size for pid, size in sizes.items() if pid in idle))
            time.sleep(SAMPLE_SECONDS)
    if child.returncode:
        raise RuntimeError(f"exit code {child.returncode}")
    return (name, BOUND_MB, (peak - sum(idle.values())) / 1e6, "MB", "<= 1.5")


def _sizes(pid: int) -> tuple[dict[int, int], bool]:
    """Resident bytes of the process and those below it without commands; whether a `sleep` is among them."""
    sizes: dict[int, int] = {}
    sleeps = False
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                name = each.name()
                sleeps = sleeps or name == "sleep"
                if name not in COMMANDS:
                    sizes[each.pid] = each.memory_info().rss
    return sizes, sleeps


ROWS = [p14_ten_megabytes, p14_one_gigabyte]
