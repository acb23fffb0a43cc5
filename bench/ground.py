"""The ground that rows stand on: an installed wheel, the scripted server as a process, timed children.

`python -m bench` builds the wheel once, installs it into a fresh environment (pip compiles it), and plays the
rows with that environment's Python (`elsewhere`): so `agent`, and whatever rows import of ours, is what users
run and never this checkout.
"""

import atexit
import json
import os
import shutil
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
"""Where `bench` can be imported from: a copy in the scratch directory while rows are played."""
SCRATCH = "POLIER_BENCH_SCRATCH"
"""The variable that tells our own children the directory, since those that are killed can't clean up."""

Request = dict[str, object]


class Ended(NamedTuple):
    """A child that has ended.  Seconds; `cpu` with all of its children that were waited for."""

    started_ns: int
    wall: float
    cpu: float


@cache
def scratch() -> str:
    """A directory for all that a run of the bench writes; whoever made it removes it."""
    made = os.environ.get(SCRATCH)
    if made is None:
        made = os.environ[SCRATCH] = tempfile.mkdtemp(prefix="polier-bench-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def elsewhere(arguments: Sequence[str]) -> int:
    """Play the bench once more, by the environment that the wheel was installed into; its exit code."""
    place = Path(scratch()) / "run"
    shutil.copytree(ROOT / "bench", place / "bench", ignore=shutil.ignore_patterns("results", "__pycache__"))
    command = [str(_install() / "python"), "-m", "bench", *arguments]
    return subprocess.run(command, cwd=place, env=_ours(), check=False).returncode


def _install() -> Path:
    """The `bin` of a fresh environment with our wheel in it, and this one's libraries on its path."""
    place, wheels = Path(scratch()) / "environment", Path(scratch()) / "wheels"
    _quietly([sys.executable, "-m", "venv", "--without-pip", str(place)])
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    _quietly([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(ROOT)])
    (wheel,) = wheels.glob("*.whl")
    _quietly([*pip, "--python", str(place / "bin" / "python"), "install", "--no-deps", str(wheel)])
    (site,) = place.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return place / "bin"


def _quietly(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def installed() -> Path:
    """The `bin` that rows are played from."""
    return Path(sys.executable).parent


def _ours() -> dict[str, str]:
    """The environment without settings of the user's, for us or for Python, and without a measure."""
    strange = ("AGENT_", "PYTHON", "POLIER_MEASURE", "COVERAGE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(strange)}


def environment() -> dict[str, str]:
    """Ours, with a state of its own in the scratch directory."""
    state = tempfile.mkdtemp(dir=scratch(), prefix="state-")
    return _ours() | {"AGENT_HOME": state, "XDG_CONFIG_HOME": state, "DEEPSEEK_API_KEY": "none-needed"}


def workspace() -> str:
    return tempfile.mkdtemp(dir=scratch(), prefix="workspace-")


@contextmanager
def serving(scripts: Mapping[str, object], *, bodies: bool = False) -> Iterator[tuple[str, Path]]:
    """The scripted server in a process of its own: its address without a name, and the file of its record."""
    place = Path(tempfile.mkdtemp(dir=scratch(), prefix="server-"))
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
    return Ended(started, wall, usage.ru_utime + usage.ru_stime)


_SMALL = """
import os, sys
child = os.fork()
if not child:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_mb(command: Sequence[str], env: Mapping[str, str]) -> float:
    """Peak resident size of the largest process of a child that is run to its end.  It is started by a small
    process, since a child counts the size that its parent had at the fork as its own."""
    small = [sys.executable, "-I", "-S", "-c", _SMALL, *command]
    done = subprocess.run(small, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return int(done.stdout) * 1024 / 1e6


def agent_run(url: str, task: str = "go", *options: str) -> list[str]:
    return [str(installed() / "agent"), "run", "--base-url", url, "--workspace", workspace(), *options, task]


def bare_run(url: str, task: str = "go") -> list[str]:
    """The bound, in the same environment as ours."""
    return [str(installed() / "python"), str(ROOT / "bench" / "bare_loop.py"), url, task]
