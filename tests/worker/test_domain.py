"""The walls around one command: others, and the worker, are out of its reach; its own children are not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.sandbox import landlock

pytestmark = pytest.mark.skipif(
    landlock.version() < landlock.SCOPES_SINCE, reason="this kernel's Landlock keeps no signals"
)

WORKER = """
import json, os, sys
from pathlib import Path
from protocol.policy import Limits, Means, SandboxPolicy
from worker.processes import shell
from worker.processes.starter import Starter
from worker.sandbox import prctl
from worker.sandbox.confine import confine
workspace, apart, script = sys.argv[1:]
prctl.adopt_orphans()
system = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", sys.prefix, sys.base_prefix)
policy = SandboxPolicy(workspace, readable=system, tmp=workspace)
confined = confine(policy, Limits(), Means.NONE)
assert not confined.ready.refuse_commands, confined.ready
inside = Starter(confined.enter).start if apart == "apart" else lambda start: start()
environment = {"PATH": os.environ["PATH"], "TMPDIR": workspace, **dict(confined.environment)}
environment |= {"WORKER": str(os.getpid()), "PYTHON": sys.executable}
other = shell.start(b"sleep 60; :", workspace, environment, inside, with_input=False)
environment["OTHER"] = str(other.pid)
one = shell.start(script.encode(), workspace, environment, inside, with_input=False)
os.set_blocking(one.output, True)
code = one.reap()
printed = os.read(one.output, 65536).decode()
alive = not other.ended()
os.killpg(other.pid, 9)
print("\\n" + json.dumps({"code": code, "printed": printed, "alive": alive, "ended": other.reap()}))
"""


@pytest.fixture
def workspace() -> Iterator[Path]:
    made = Path("/tmp") / f"polier-test-{os.getpid()}-{os.urandom(4).hex()}"
    made.mkdir()
    yield made
    subprocess.run(["rm", "-r", made], check=True)


def played(workspace: Path, script: str, apart: str = "apart") -> dict[str, Any]:
    """What became of a script beside another command's shell, under the same worker."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, workspace, apart, script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "script",
    [
        "kill -0 $WORKER",
        "kill -TERM $OTHER",
        "cat /proc/$OTHER/environ > /dev/null",
        "head -c 1 /proc/$WORKER/mem; cat /proc/$WORKER/maps > /dev/null",
        "echo forged > /proc/$WORKER/fd/1",
        "ls -l /proc/$OTHER/fd/ > /dev/null",
    ],
)
def test_a_command_can_t_reach_the_worker_or_another_command(workspace: Path, script: str) -> None:
    apart = played(workspace, script)
    assert apart["code"] != 0
    assert apart["alive"]
    assert apart["ended"] == -9, "the worker still ends it"
    assert played(workspace, script, "together")["code"] == 0


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60 & kill $!; wait $!; [ $? = 143 ]",
        "sleep 60 & cat /proc/$!/environ > /dev/null; kill -9 $!",
        "(sleep 60; :) & kill -STOP $! && kill -KILL -- $!",
        "mkdir a b && echo x > a/f && mv a/f b/f && ln b/f a/g && rm -r a b",
        "$PYTHON -c 'import threading; t = threading.Thread(target=print); t.start(); t.join()'",
        "$PYTHON -c 'import os; os.nice(1)'; ulimit -n 100",
    ],
)
def test_a_command_reaches_what_it_started_and_works_as_usual(workspace: Path, script: str) -> None:
    played_out = played(workspace, script)
    assert played_out["code"] == 0, played_out["printed"]


@pytest.mark.skipif(not Path("/usr/bin/gdb").exists(), reason="gdb is not installed")
def test_a_debugger_works_on_its_own_child(workspace: Path) -> None:
    assert (
        played(workspace, "gdb -q -batch -ex run --args true 2>&1 | grep -q 'exited normally'")["code"] == 0
    )


@pytest.mark.parametrize(
    "script",
    [
        """$PYTHON -c "import resource; resource.prlimit($OTHER, resource.RLIMIT_NOFILE, (512, 512))" """,
        "renice -n 1 -p $OTHER",
    ],
)
def test_limits_and_priorities_of_others_stay(workspace: Path, script: str) -> None:
    assert played(workspace, script)["code"] != 0
    assert played(workspace, script, "together")["code"] == 0
