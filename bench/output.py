"""P14: memory while a command prints much more than anyone reads.

No sampling: the kernel keeps each process's peak (VmHWM).  While a first command sleeps, the present size of
supervisor, zygote and worker is taken and their peaks are reset; while a last one sleeps, the peaks are read.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.ground import agent_run, environment, serving
from bench.row import Measured

REPEATS = 3
BOUND_MB = 10.0
DEADLINE = 120.0
BEFORE, AFTER = "sleep 2.01", "sleep 2.02"
"""Commands during which the processes are looked at."""
RESET_PEAK = "5"
"""What /proc/PID/clear_refs takes it for."""


def p14_ten_megabytes() -> Measured:
    """Peak above idle with 10 MB of output: the sum over supervisor, zygote and worker of how far each one's
    peak lay above its size before, so never less than their common peak.  Against those 10 MB.  Root only,
    as workers close themselves to others."""
    return _measured("P14 10 MB of output: peak above idle", 10)


def p14_one_gigabyte() -> Measured:
    """The same with 1 GB, against 10 MB as well."""
    return _measured("P14 1 GB of output: peak above idle", 1000)


def _measured(name: str, megabytes: int) -> Measured:
    flood = f"head -c {megabytes}000000 /dev/zero | tr '\\0' x"
    calls = [
        {"calls": [{"name": "run_command", "arguments": {"command": text}}]}
        for text in (BEFORE, flood, AFTER)
    ]
    with (
        serving({"us": {"steps": [*calls, {"text": "Done."}]}}) as (url, _),
        subprocess.Popen(
            agent_run(f"{url}/us"),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # what the sandbox lacks
        ) as child,
    ):
        ours = _while_sleeping(child, BEFORE)
        idle = sum(_kilobytes(pid, "VmRSS") for pid in ours)
        for pid in ours:
            Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
        again = _while_sleeping(child, AFTER)
        if again != ours:
            raise RuntimeError(f"the processes were {ours} and became {again}")
        peak = sum(_kilobytes(pid, "VmHWM") for pid in ours)
        child.wait(DEADLINE)
    if child.returncode:
        raise RuntimeError(f"exit code {child.returncode}")
    return (name, BOUND_MB, (peak - idle) * 1024 / 1e6, "MB", "<= 1.5")


def _while_sleeping(child: subprocess.Popen[bytes], command: str) -> list[int]:
    """Wait until this command sleeps; the supervisor, the zygote and the worker, without the command."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline and child.poll() is None:
        zygotes = _children(child.pid)
        workers = [worker for zygote in zygotes for worker in _children(zygote)]
        below = [each for worker in workers for each in psutil.Process(worker).children(recursive=True)]
        if any(_words(each) == command.split() for each in below):
            return [child.pid, *zygotes, *workers]
        time.sleep(0.02)
    raise RuntimeError(f"`{command}` was not seen")


def _children(pid: int) -> Sequence[int]:
    try:
        return sorted(each.pid for each in psutil.Process(pid).children())
    except psutil.NoSuchProcess:
        return []


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _kilobytes(pid: int, field: str) -> int:
    """A line of the process's status.  1 kB is 1024 bytes there."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise RuntimeError(f"no {field} of process {pid}")


ROWS = [p14_ten_megabytes, p14_one_gigabyte]
