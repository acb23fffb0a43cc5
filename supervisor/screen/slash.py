"""The REPL's own commands: what a line means before it is a turn.  Pure.

`/x` is a command, `//x` sends `/x` to the model, an empty line is nothing.
"""

import difflib
from dataclasses import dataclass

COMMANDS = {
    "help": "what can be typed here",
    "context": "what the next request holds, in tokens",
    "compact": "[focus]  replace the conversation so far by a summary",
    "sandbox": "[MODE | revoke WORD]  what confines commands, and how to change it",
    "trust": "what this project's settings widen, and whether you trust it",
    "try": "[CMD]  run a command on a view of the workspace, see what it does, apply it or not",
    "new": "leave this conversation and begin a new one",
    "exit": "leave (also Ctrl-D)",
}
"""Name and one line of help.  An `[argument]` at the front of the help shows that one is taken."""


@dataclass(frozen=True)
class Nothing:
    """An empty line."""


@dataclass(frozen=True)
class Say:
    """A turn's line."""

    text: str


@dataclass(frozen=True)
class Command:
    """A known command and the rest of its line."""

    name: str
    argument: str = ""


@dataclass(frozen=True)
class Unknown:
    """No command of ours; `nearest` is one that may have been meant, or empty.  `extra`: words behind a
    command that takes none."""

    name: str
    nearest: str = ""
    extra: str = ""


def meaning(line: str) -> Nothing | Say | Command | Unknown:
    """What a line of the editor means."""
    text = line.strip()
    if not text:
        return Nothing()
    if text.startswith("//"):
        return Say(text[1:])
    if not text.startswith("/"):
        return Say(line.rstrip())
    name, _, argument = text[1:].partition(" ")
    if name in COMMANDS and argument.strip() and not COMMANDS[name].startswith("["):
        return Unknown(name, extra=argument.strip())
    if name in COMMANDS:
        return Command(name, argument.strip())
    return Unknown(name, next(iter(difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)), ""))


def refusal(unknown: Unknown) -> str:
    """What is said of an unknown command."""
    if unknown.extra:
        line = f"//{unknown.name} {unknown.extra}"
        return f"/{unknown.name} takes no words behind it  ({line} sends the line to the model)"
    meant = f"; did you mean /{unknown.nearest}?" if unknown.nearest else "; /help lists them"
    return f"there is no command /{unknown.name}{meant}  (//{unknown.name} sends the line to the model)"


def help_lines() -> list[str]:
    """What /help prints."""
    lines = [f"  {'/' + name:<10} {text}" for name, text in COMMANDS.items()]
    return [
        *lines,
        "  //text     sends /text to the model",
        "  Ctrl-C     interrupts a turn; clears a line; twice at an empty prompt leaves",
    ]
