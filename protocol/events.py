"""What a session tells its fronts, and what `agent run --json` prints: one event per line.

Each event has `type`, `v` (the version of this schema), `seq` (counts the events of this process from 1)
and `agent` ("main", or a subagent's id).  Fields may be added within a version; readers ignore what they
don't know.  Text in events is raw: whoever prints it to a terminal makes it harmless first.
"""

import json
from enum import Enum

import msgspec
from msgspec import Struct

from protocol.display import Display

SCHEMA = 1
"""The version of this file.  It changes when a field is removed or means something else."""


class StopReason(Enum):
    """Why a turn ended."""

    ANSWERED = "answered"
    INTERRUPTED = "interrupted"
    ROUNDS = "rounds"
    """The round limit; the answer is the summary that was asked for."""
    FAILED = "failed"
    """The provider or the program failed; `error` says how."""
    WITHDRAWN = "withdrawn"
    """Nothing of a reply had arrived, so nothing has happened; `error` says why."""


class Event(Struct, frozen=True, kw_only=True, tag_field="type"):
    """What all events share.  `seq` is filled in by who writes them out; 0 before that."""

    v: int = SCHEMA
    seq: int = 0
    agent: str = "main"


class Usage(Struct, frozen=True):
    """Tokens as the provider reported them.  `cached` is part of `prompt`, `reasoning` of `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )


class SessionStarted(Event, frozen=True, kw_only=True, tag="session_started"):
    """`rehearsal`: a script plays the model's part."""

    conversation: str
    workspace: str
    model: str
    resumed: bool = False
    rehearsal: bool = False


class SandboxReady(Event, frozen=True, kw_only=True, tag="sandbox"):
    """A worker is ready: the rung, and one line for each thing that is not enforced."""

    rung: str
    notes: tuple[str, ...] = ()


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started"):
    turn: int
    text: str


class RoundStarted(Event, frozen=True, kw_only=True, tag="round_started"):
    """A request is on its way.  `share`: calibrated part of the budget that it uses, 0..1."""

    turn: int | None
    round: int
    share: float


class TextDelta(Event, frozen=True, kw_only=True, tag="text"):
    """Text of the reply, as it arrives."""

    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning"):
    text: str


class ReplyRetried(Event, frozen=True, kw_only=True, tag="reply_retried"):
    """What was shown of this reply is replaced by another try; `why` says what happened."""

    why: str


class ReplyFinished(Event, frozen=True, kw_only=True, tag="reply_finished"):
    """`kind`: "answer" for a reply without calls, "narration" for text beside calls."""

    kind: str
    text: str
    round: int
    usage: Usage | None = None
    finish_reason: str = ""


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool_started"):
    call_id: str
    name: str
    arguments: str
    """JSON text."""


class ToolOutputDelta(Event, frozen=True, kw_only=True, tag="tool_output"):
    """Text that a running command has just printed."""

    call_id: str
    text: str


class Denial(Struct, frozen=True):
    """What the sandbox kept a call from.  `permission`: the words for what would allow it, or empty; `sure`:
    false where it is only likely."""

    what: str
    permission: str = ""
    sure: bool = True


class PermissionAsked(Event, frozen=True, kw_only=True, tag="permission_asked"):
    """A call waits for the user.  `reason` is the program's; `why` is the model's claim."""

    question: int
    call_id: str
    name: str
    subject: str
    """The command, or the arguments of another tool."""
    permissions: tuple[str, ...]
    reason: str
    why: str = ""
    choices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class PermissionAnswered(Event, frozen=True, kw_only=True, tag="permission_answered"):
    """Whether a call may have what it needs.  `question`: null where nobody was asked.  `by`: who decided;
    `scope`: for how long, empty for a no; `words`: the user's, or why not; `dry_run`: it was about applying
    what a dry run did."""

    question: int | None
    call_id: str
    name: str
    subject: str
    permissions: tuple[str, ...]
    allowed: bool
    by: str
    scope: str = ""
    words: str = ""
    dry_run: bool = False


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool_finished"):
    """`status`: see protocol.wire.Status.  `bytes`: size of what the model gets.  `limit`: which limit ended
    it, or empty."""

    call_id: str
    name: str
    status: str
    failed: bool
    seconds: float
    bytes: int
    display: Display
    denials: tuple[Denial, ...] = ()
    limit: str = ""


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """A line by the program for the user: a warning, a repair, a setting that was not read."""

    text: str
    level: str = "info"
    """info | warning | error"""


class Compacted(Event, frozen=True, kw_only=True, tag="compacted"):
    """Calibrated tokens of the next request before and after, and how many pairs were replaced."""

    pairs: int
    before: int
    after: int


class TurnFinished(Event, frozen=True, kw_only=True, tag="turn_finished"):
    """`text`: the answer; empty where there is none.  `turns`: turns of the conversation so far."""

    turn: int
    reason: StopReason
    text: str
    rounds: int
    usage: Usage
    seconds: float
    error: str = ""


class SessionClosed(Event, frozen=True, kw_only=True, tag="session_closed"):
    """The last line.  `exit_code` is the process's own."""

    exit_code: int
    conversation: str
    turns: int
    rounds: int
    usage: Usage


AnyEvent = (
    SessionStarted
    | SandboxReady
    | TurnStarted
    | RoundStarted
    | TextDelta
    | ReasoningDelta
    | ReplyRetried
    | ReplyFinished
    | ToolStarted
    | ToolOutputDelta
    | PermissionAsked
    | PermissionAnswered
    | ToolFinished
    | Notice
    | Compacted
    | TurnFinished
    | SessionClosed
)

_encoder = msgspec.json.Encoder()


def encode(event: AnyEvent) -> bytes:
    """The event as one line of JSON, with its line break.  A lone surrogate becomes a question mark."""
    try:
        return _encoder.encode(event) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(event), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace") + b"\n"
