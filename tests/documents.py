"""What is printed in a document for people to type, taken out of it so that it can be run."""

import os
import re
import shlex
from pathlib import Path

from supervisor import commands
from supervisor.options import ReplOptions, RunOptions
from tests.product import COMMAND


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def command_lines(text: str) -> list[str]:
    """Each line of shell that runs `agent`."""
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    return [line for line in lines if re.search(r"(^|\| )agent( |$)", line)]


def options_of(line: str) -> list[RunOptions | ReplOptions]:
    """What the command line makes of an example that plays a turn or opens the REPL, without doing it."""
    seen: list[RunOptions | ReplOptions] = []

    def see(options: RunOptions | ReplOptions) -> int:
        seen.append(options)
        return 0

    commands.play(shlex.split(line.rpartition("| ")[2])[1:], see, see)
    return seen


def path_with_agent(place: Path) -> str:
    """A PATH on which `agent` is this checkout's."""
    shim = place / "bin" / "agent"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\nexec " + shlex.join(COMMAND) + ' "$@"\n')
    shim.chmod(0o755)
    return f"{shim.parent}:{os.environ['PATH']}"
