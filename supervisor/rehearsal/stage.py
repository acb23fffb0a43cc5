"""Where a rehearsal takes place: a scratch directory, the scripted server and the product as processes.

Nothing of the user's takes part: state, settings and workspace are in the scratch directory, which is
removed at the end, and no key is passed on.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from protocol.events import AnyEvent
from supervisor.exits import StopError
from supervisor.rehearsal.tour import BESIDE, FILES, PORT_FILE, SECRET, SECRET_FILE, TASK, script

PROGRAM = Path(__file__).parents[2]
"""What has to be on the path of a Python that shall find these packages."""

SETTINGS = 'show_tool_results = "preview"\n'
"""A person who watches shall see what a command printed, not only that it did."""

_decoder = msgspec.json.Decoder(AnyEvent)


class _Serving(Struct):
    url: str


class Stage(Struct, frozen=True):
    """One rehearsal's surroundings.  `requests`: the file where the server records them as JSON lines."""

    workspace: Path
    home: Path
    requests: Path
    base_url: str
    environment: dict[str, str]
    server: int
    """The server's process id."""


class Played(Struct):
    """What the child that played the task left; filled in while its events are read."""

    pid: int = 0
    exit_code: int = -1
    events: list[AnyEvent] = []
    complaints: str = ""


@contextmanager
def set_up() -> Iterator[Stage]:
    """A stage for as long as the block runs.  Raises StopError where it can't be built."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix="polier-rehearsal-")).resolve()
    except OSError as error:
        raise StopError(f"no scratch directory can be made: {error.strerror}; set TMPDIR") from error
    try:
        workspace = scratch / "workspace"
        workspace.mkdir()
        for name, text in FILES.items():
            (workspace / name).write_text(text, encoding="utf-8")
        (scratch / SECRET_FILE).write_text(SECRET + "\n", encoding="utf-8")
        (scratch / BESIDE).mkdir()
        settings = scratch / "config" / "polier" / "settings.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS, encoding="utf-8")
        plan = scratch / "script.json"
        plan.write_bytes(msgspec.json.encode(script()))
        requests = scratch / "requests.jsonl"
        environment = _environment(scratch)
        with _serving([str(plan), "--record", str(requests)], environment) as (base_url, server):
            (workspace / PORT_FILE).write_text(f"{urlsplit(base_url).port}\n", encoding="utf-8")
            yield Stage(workspace, scratch / "state", requests, base_url, environment, server)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def play_task(stage: Stage) -> Iterator[AnyEvent | Played]:
    """Play the task by `agent run --json` in a child process: its events as they come, last what is left."""
    command = [*_python(), "supervisor", "run", "--json", "--base-url", stage.base_url]
    command += ["--workspace", str(stage.workspace), TASK]
    played = Played()
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            command,
            env=stage.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
        ) as child,
    ):
        played.pid = child.pid
        for line in child.stdout or ():
            event = _decoder.decode(line)
            played.events.append(event)
            yield event
        played.exit_code = child.wait()
        complaints.seek(0)
        played.complaints = complaints.read().decode("utf-8", "replace").strip()
    yield played


@contextmanager
def _serving(arguments: list[str], environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The scripted server in a process of its own, which ends with its stdin; its URL and process id."""
    command = [*_python(), "supervisor.rehearsal.server", *arguments]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        line = server.stdout.readline() if server.stdout is not None else b""
        try:
            serving = msgspec.json.decode(line, type=_Serving)
        except msgspec.DecodeError as error:
            raise StopError("the scripted server did not start; is loopback (127.0.0.1) usable?") from error
        yield serving.url, server.pid


def _python() -> list[str]:
    """This interpreter; -P keeps a `supervisor.py` of the current directory from being taken for ours."""
    return [sys.executable, "-P", "-m"]


def _environment(scratch: Path) -> dict[str, str]:
    """The user's environment without keys and settings of ours, and with places in the scratch directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
    kept.pop("DEEPSEEK_API_KEY", None)
    kept["AGENT_HOME"] = str(scratch / "state")
    kept["AGENT_REHEARSAL"] = "1"
    kept["XDG_CONFIG_HOME"] = str(scratch / "config")
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PROGRAM), kept.get("PYTHONPATH", ""))))
    return kept
