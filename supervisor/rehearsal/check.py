"""The rehearsal without a person: plays the task, verifies each effect, names what does not work here.

Every check looks at the effect itself: the file, the record of the server, the transcript, the processes.
"""

import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct

from protocol.events import AnyEvent, ReplyFinished, SandboxReady, ToolFinished, TurnFinished
from protocol.policy import Rung
from supervisor.exits import ANSWERED, FAILED
from supervisor.machine import children
from supervisor.options import REHEARSAL
from supervisor.rehearsal.play import say, say_how_to_go_on
from supervisor.rehearsal.stage import Played, Stage, play_task, set_up
from supervisor.rehearsal.tour import (
    ANSWER,
    FILES,
    PLANTED,
    REFUSALS,
    RIGHT,
    SECRET,
    TASK_ROUNDS,
    VERDICT,
    WRONG,
)

GONE_SECONDS = 2.0
"""How long what a session started may take to be gone after it; it needs a few hundredths of a second."""

MESSAGES = 2 * TASK_ROUNDS
"""Lines of kind `message`: the user's, a reply and a result for each round but the last, the answer."""


class _Request(Struct):
    """A line of the server's record."""

    body: str
    status: int = 0
    refusal: str = ""


class _Line(Struct):
    """A line of the transcript."""

    kind: str
    role: str = ""


Check = tuple[str, Callable[[Stage, Played], str]]
"""What shall be so, and a function that returns what is wrong with it: empty when nothing is."""


def run() -> int:
    """Play and verify; one line per check.  0 when all is well, else 1."""
    say(REHEARSAL)
    with set_up() as stage:
        played = Played()
        for event in play_task(stage):
            if isinstance(event, Played):
                played = event
        failed = 0
        for what, check in CHECKS:
            wrong = check(stage, played)
            failed += bool(wrong)
            say(f"  failed  {what}: {wrong}" if wrong else f"  ok      {what}")
    answers = [event.text for event in played.events if isinstance(event, TurnFinished)]
    say()
    say("The answer: " + (answers[0] if answers and answers[0] else "none"))
    say_how_to_go_on()
    if failed:
        say(f"{failed} of {len(CHECKS)} checks failed on this machine. {played.complaints}".rstrip())
    return FAILED if failed else ANSWERED


def _worker(stage: Stage, played: Played) -> str:
    ready = next((event for event in played.events if isinstance(event, SandboxReady)), None)
    if ready is None:
        return "no worker became ready"
    return "; ".join(ready.notes) or "no confinement" if ready.rung == Rung.OFF.value else ""


def _tools(stage: Stage, played: Played) -> str:
    ran = [event for event in played.events if isinstance(event, ToolFinished)]
    names = [event.name for event in ran]
    if names != ["read_file", "edit_file", "run_command", "run_command"]:
        return f"ran: {', '.join(names) or 'none'}"
    return "; ".join(f"{event.name}: {event.display.summary}" for event in ran if event.failed)


def _refused(stage: Stage, played: Played) -> str:
    """What the command said of each try, and whether one left something."""
    ran = [event for event in played.events if isinstance(event, ToolFinished) if event.name == "run_command"]
    lines = ran[0].display.preview.splitlines() if ran else []
    wrong = [f"{what}: not refused" for what in REFUSALS if f"{what}: refused" not in lines]
    if (stage.workspace.parent / PLANTED).exists():
        wrong.append("a file was written beside the workspace")
    if SECRET in _text(stage.requests):
        wrong.append("a secret went to the model's server")
    return "; ".join(wrong)


def _edited(stage: Stage, played: Played) -> str:
    text = _text(stage.workspace / "total.sh")
    return "" if text == FILES["total.sh"].replace(WRONG, RIGHT) else f"it holds {text!r}"


def _ran(stage: Stage, played: Played) -> str:
    text = _text(stage.workspace / "verdict.txt")
    return "" if text == VERDICT + "\n" else f"verdict.txt holds {text!r}"


def _answered(stage: Stage, played: Played) -> str:
    replies = [
        event.text for event in played.events if isinstance(event, ReplyFinished) if event.kind == "answer"
    ]
    if replies != [ANSWER]:
        return f"the answers were {replies}; {_error(played.events)}"
    return "" if played.exit_code == ANSWERED else f"exit code {played.exit_code}"


def _requests(stage: Stage, played: Played) -> str:
    requests = [msgspec.json.decode(line, type=_Request) for line in _text(stage.requests).splitlines()]
    refused = [request.refusal for request in requests if request.refusal]
    if refused or len(requests) != TASK_ROUNDS:
        return f"{len(requests)} requests; refused: {refused or 'none'}"
    for earlier, later in pairwise(requests):
        # All up to the end of the earlier one's messages comes again, byte for byte.
        prefix = earlier.body[: earlier.body.rindex('],"tools":')]
        if not later.body.startswith(prefix):
            return "a request does not begin with the messages of the one before"
    return ""


def _transcript(stage: Stage, played: Played) -> str:
    found = list(stage.home.glob("sessions/*/myagent_conversation_*.jsonl"))
    if len(found) != 1:
        return f"{len(found)} transcripts in {stage.home}"
    lines = [msgspec.json.decode(line, type=_Line) for line in _text(found[0]).splitlines()]
    roles = [line.role for line in lines if line.kind == "message"]
    return "" if len(roles) == MESSAGES and "system" not in roles else f"roles: {', '.join(roles)}"


def _private(stage: Stage, played: Played) -> str:
    open_to_others = [
        str(path.relative_to(stage.home)) for path in stage.home.rglob("*") if path.lstat().st_mode & 0o077
    ]
    return f"others may look at {', '.join(open_to_others[:3])}" if open_to_others else ""


def _nothing_left(stage: Stage, played: Played) -> str:
    """What the child's processes leave becomes ours, since this process adopts orphans."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        _reap(stage)
        left = [pid for pid in children(os.getpid()) if pid != stage.server]
        if not left or time.monotonic() > deadline:
            return f"still there: {', '.join(map(str, left))}" if left else ""
        time.sleep(0.01)


def _reap(stage: Stage) -> None:
    for pid in children(os.getpid()):
        if pid != stage.server:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _error(events: list[AnyEvent]) -> str:
    return next((event.error for event in events if isinstance(event, TurnFinished)), "the turn did not end")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        return f"({error.strerror})"


CHECKS: tuple[Check, ...] = (
    ("a worker process is ready and confined", _worker),
    ("it executed read_file, edit_file and run_command", _tools),
    (
        "the sandbox refused to write beside the workspace, to read a secret there, to use the network",
        _refused,
    ),
    ("the file was changed as the script asked, and nothing else in it", _edited),
    ("the command really ran", _ran),
    ("the answer came over HTTP, exit code 0", _answered),
    ("each request begins with the messages of the one before, byte for byte", _requests),
    ("the transcript has one line per message, none of them the system's", _transcript),
    ("nobody else can read the state directory", _private),
    ("no process is left over", _nothing_left),
)
