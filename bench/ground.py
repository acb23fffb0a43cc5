"""The ground that rows stand on: an installed wheel, the scripted server as a process, timed children."""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SCRATCH = tempfile.TemporaryDirectory(prefix="polier-bench-")

Request = dict[str, object]


class Ended(NamedTuple):
    """A child that has ended.  Seconds; `cpu` and `peak_mb` with all of its children that were waited for."""

    started_ns: int
    wall: float
    cpu: float
    peak_mb: float


@cache
def installed() -> Path:
    """The `bin` of a fresh environment with our wheel in it, and this one's libraries on its path."""
    place = Path(SCRATCH.name) / "environment"
    wheels = Path(SCRATCH.name) / "wheels"
    _quietly([sys.executable, "-m", "venv", "--without-pip", str(place)])
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    _quietly([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(ROOT)])
    (wheel,) = wheels.glob("*.whl")
    python = place / "bin" / "python"
    _quietly([*pip, "--python", str(python), "install", "--no-deps", str(wheel)])
    (site,) = place.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return place / "bin"


def _quietly(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def environment() -> dict[str, str]:
    """Ours without settings of the user's; the state in the scratch directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
    state = tempfile.mkdtemp(dir=SCRATCH.name, prefix="state-")
    return kept | {"AGENT_HOME": state, "XDG_CONFIG_HOME": state, "DEEPSEEK_API_KEY": "none-needed"}


def workspace() -> str:
    return tempfile.mkdtemp(dir=SCRATCH.name, prefix="workspace-")


@contextmanager
def serving(scripts: Mapping[str, object], *, bodies: bool = False) -> Iterator[tuple[str, Path]]:
    """The scripted server in a process of its own: its address without a name, and the file of its record."""
    place = Path(tempfile.mkdtemp(dir=SCRATCH.name, prefix="server-"))
    plan, record = place / "scripts.json", place / "requests.jsonl"
    plan.write_text(json.dumps({"scripts": scripts}), encoding="utf-8")
    command = [sys.executable, "-m", "supervisor.rehearsal.server", str(plan), "--record", str(record)]
    if not bodies:
        command.append("--no-bodies")
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        line = server.stdout.readline() if server.stdout is not None else b""
        url = str(json.loads(line)["url"])
        yield url.rpartition("/")[0], record


def recorded(record: Path, name: str) -> list[Request]:
    """What was sent to this conversation, in order."""
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["name"] == name]


def play(command: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> Ended:
    """Run to the end.  Raises RuntimeError with what it said where it fails."""
    with tempfile.TemporaryFile() as said:
        started = time.monotonic_ns()
        child = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall = (time.monotonic_ns() - started) / 1e9
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise RuntimeError(f"{command[:3]} ended with {child.returncode}: {said.read()[-300:]!r}")
    return Ended(started, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def agent_run(url: str, task: str = "go", *options: str) -> list[str]:
    return [str(installed() / "agent"), "run", "--base-url", url, "--workspace", workspace(), *options, task]


def bare_run(url: str, task: str = "go") -> list[str]:
    """The bound, in the same environment as ours."""
    return [str(installed() / "python"), str(ROOT / "bench" / "bare_loop.py"), url, task]
