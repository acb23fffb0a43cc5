"""The rehearsal as a person sees it: the task is played, then what to set to get a real model."""

import errno
import os
import socket
import sys
from contextlib import suppress

from protocol.events import (
    AnyEvent,
    Notice,
    ReplyFinished,
    ReplyRetried,
    SandboxReady,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from supervisor.exits import FAILED, HUNG_UP
from supervisor.options import REHEARSAL
from supervisor.rehearsal.stage import Played, Stage, play_task
from supervisor.rehearsal.tour import KNOWN
from supervisor.streams import encoded

LOCAL_SERVERS = {11434: "Ollama", 8080: "llama.cpp", 8000: "vLLM", 1234: "LM Studio"}
"""Usual ports on loopback.  What listens there is named, never taken unasked."""

LOOK_SECONDS = 0.2
"""How long a port on loopback may take to answer: it does so at once or not at all."""


def say(text: str = "") -> None:
    """One line or several on stdout, whatever its encoding.  Ends the program where the terminal is gone."""
    left = encoded(text + "\n", getattr(sys.stdout, "encoding", None))
    while left:
        try:
            left = left[os.write(1, left) :]
        except OSError as error:
            if error.errno == errno.EIO:
                raise SystemExit(HUNG_UP) from error
            raise


def run(stage: Stage) -> int:
    """Play the task and show it; the exit code."""
    say(REHEARSAL)
    say("The task is real, and so are the files, the worker and its sandbox; only the model is a script.")
    for event in play_task(stage):
        if isinstance(event, Played):
            return _close(event)
        for line in shown(event):
            say(line)
    return FAILED


def shown(event: AnyEvent) -> list[str]:
    """An event as lines for a person; none for what only a program needs."""
    match event:
        case TurnStarted():
            return ["", f"You: {event.text}"]
        case SandboxReady():
            return [f"  [worker ready, confined by: {event.rung}]", *(f"  [{note}]" for note in event.notes)]
        case ReplyFinished(kind="narration") if event.text:
            return [event.text]
        case ToolFinished():
            body = event.display.diff or event.display.preview
            return [
                f"  {event.name} · {event.display.summary}",
                *(f"    {line}" for line in body.splitlines()),
            ]
        case Notice():
            return [f"  [{event.text}]"]
        case ReplyRetried():
            return [f"  [the reply is asked for again: {event.why}]"]
        case TurnFinished():
            return [line for line in ("", event.text, event.error) if line or event.text]
        case _:
            return []


def say_how_to_go_on() -> None:
    """What to set to get a real model."""
    say()
    say(f"{REHEARSAL}. To get a real one:")
    say("  export DEEPSEEK_API_KEY=...                  then: agent")
    say("  agent --base-url URL --model NAME            any compatible server")
    for port, name in local_servers().items():
        say(f"  agent --base-url http://127.0.0.1:{port}/v1   something answers there ({name}'s usual port)")


def say_what_it_knows() -> None:
    """For the REPL that follows."""
    say()
    say("Now you can type. The script knows: " + "; ".join(KNOWN) + ". Ctrl-D leaves.")


def local_servers() -> dict[int, str]:
    """The usual ports on which something listens here.  Nothing is sent to it."""
    found = {}
    for port, name in LOCAL_SERVERS.items():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), LOOK_SECONDS):
            found[port] = name
    return found


def _close(played: Played) -> int:
    if played.exit_code:
        say(f"The task ended with exit code {played.exit_code}. {played.complaints}")
        say("agent rehearse --check says what does not work on this machine.")
    return played.exit_code
