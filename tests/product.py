"""The product as a child process, as users start it: by its module, with a state directory of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-P", "-m", "supervisor"]
SECONDS = 30.0
"""A deadline, not a measure: what works is done in a second or two."""

STRAY = "agent: ended a stray process of a run that is over"

Event = dict[str, object]


class Product:
    """A home, a workspace, and the command line in them."""

    def __init__(self, place: Path, base_url: str = "") -> None:
        self.home = place / "home"
        self.workspace = place / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_", "LC_"))}
        kept.pop("DEEPSEEK_API_KEY", None)
        kept.pop("PYTHONUNBUFFERED", None)  # users don't set it, and it hides what a buffer does at exit
        self.environ = kept | {
            "AGENT_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(place / "config"),
            "PYTHONPATH": str(ROOT),
        }
        if base_url:
            self.environ["AGENT_BASE_URL"] = base_url

    def start(
        self,
        *arguments: str,
        stdin: int | None = subprocess.DEVNULL,
        environ: Mapping[str, str] | None = None,
        stdout: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.workspace,
            env={**self.environ, **(environ or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )

    def run(
        self,
        *arguments: str,
        given: bytes | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; `given` on stdin, else /dev/null."""
        stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
        with self.start(*arguments, stdin=stdin, environ=environ) as child:
            out, err = child.communicate(given, timeout=SECONDS)
        return subprocess.CompletedProcess(
            child.args, child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )

    def events(self, *arguments: str) -> tuple[list[Event], int]:
        """The events of `agent run --json`, and the exit code."""
        done = self.run("run", "--json", *arguments)
        return [json.loads(line) for line in done.stdout.splitlines()], done.returncode

    def transcript(self) -> list[Event]:
        """All lines of the only conversation."""
        (path,) = self.home.glob("sessions/*/myagent_conversation_*.jsonl")
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def messages(self) -> list[Event]:
        return [line for line in self.transcript() if line["kind"] == "message"]


def one_line(text: str, words: Sequence[str]) -> None:
    """Assert that this is one line for a person, with these words, and no traceback.

    Strays that a test beside this one has left on purpose are ended, and named, by whoever starts next.
    """
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(STRAY)]
    assert len(lines) == 1, text
    assert lines[0].startswith("agent: "), text
    assert lines[0].endswith("\n"), text
    assert "Traceback" not in text
    for word in words:
        assert word in lines[0]


def end(child: subprocess.Popen[bytes], number: signal.Signals) -> tuple[int, str, str]:
    """Send a signal and wait: exit code, stdout, stderr."""
    child.send_signal(number)
    out, err = child.communicate(timeout=SECONDS)
    return child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
