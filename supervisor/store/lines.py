"""The lines of a transcript: `{kind, v, seq, time, turn, round, ...}`, and messages as such lines.

Kind `message` has what the API needs of it (`role`, `content`, `tool_calls`, `tool_call_id`,
`reasoning_content`) with the `author` of its content, or `parts` that have an author each; beside them
`note`, `failed` and a call's `problem`, which are never sent.  Pure: bytes and values, no files.
"""

import json
from typing import Literal, assert_never

import msgspec
from msgspec import Struct

from protocol.conversation import (
    MODEL,
    PROGRAM,
    Answer,
    Calls,
    Message,
    Note,
    Part,
    Text,
    ToolCall,
    ToolResult,
    User,
    plain,
)

VERSION = 1
"""It changes when a reader of the old form would misread the new one.  New kinds and fields don't."""

TITLE_LENGTH = 80
"""Characters of a conversation's title: about a line of a terminal."""


class Line(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What all lines have.  `seq` is unique in the conversation; `turn`, `round`: null where none is."""

    v: int
    seq: int
    time: str
    turn: int | None
    round: int | None


class StoredFunction(Struct, frozen=True):
    name: str
    arguments: str


class StoredCall(Struct, frozen=True, omit_defaults=True):
    """A call in the form of the API."""

    id: str
    function: StoredFunction
    type: Literal["function"] | None = None
    problem: str = ""


class MessageLine(Line, frozen=True, kw_only=True, tag="message"):
    role: Literal["user", "assistant", "tool"]
    author: str = ""
    content: str | None = None
    parts: tuple[Part, ...] = ()
    note: bool = False
    reasoning_content: str | None = None
    tool_calls: tuple[StoredCall, ...] = ()
    tool_call_id: str = ""
    failed: bool = False


class SessionLine(Line, frozen=True, kw_only=True, tag="session"):
    """A process begins to work on the conversation.  `project`: the project's key."""

    workspace: str
    project: str
    model: str
    resumed: bool = False


class WithdrawnLine(Line, frozen=True, kw_only=True, tag="withdrawn"):
    """The turn whose user line has the seq `first` has not happened."""

    first: int
    why: str


class CompactionLine(Line, frozen=True, kw_only=True, tag="compaction"):
    """The pairs between these seqs, both included, are replaced by a pair of these parts."""

    first: int
    last: int
    user: tuple[Part, ...]
    answer: tuple[Part, ...]


class StubLine(Line, frozen=True, kw_only=True, tag="stub"):
    """The result at seq `target` is sent as `text`."""

    target: int
    text: str


class RetractLine(Line, frozen=True, kw_only=True, tag="retract"):
    """The compaction or the stub at seq `target` is undone."""

    target: int


class PermissionLine(Line, frozen=True, kw_only=True, tag="permission"):
    """What was decided about a call beyond what the sandbox allows by itself.  A record: nothing follows from
    it.  `by`, `scope`: as in the event `permission_answered`."""

    call_id: str
    name: str
    subject: str
    permissions: tuple[str, ...]
    allowed: bool
    by: str
    scope: str = ""
    words: str = ""


AnyLine = MessageLine | SessionLine | WithdrawnLine | CompactionLine | StubLine | RetractLine | PermissionLine


class Head(Struct, frozen=True):
    """What can be read of a line of any kind."""

    kind: str = ""
    v: int = 0
    seq: int = 0


_encoder = msgspec.json.Encoder()


def encode(line: Struct) -> bytes:
    """The line with its line break, in UTF-8.  A lone surrogate becomes a question mark."""
    try:
        return _encoder.encode(line) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(line), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace") + b"\n"


def of_message(message: Message, seq: int, time: str, turn: int | None, round_: int | None) -> MessageLine:
    """The message as a line."""
    role: Literal["user", "assistant", "tool"]
    author = MODEL
    content: str | None = None
    parts: tuple[Part, ...] = ()
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    call_id, failed = "", False
    match message:
        case User(said) | Note(said):
            role = "user"
            author, content, parts = _said(said)
        case Calls(calls, text, reasoning):
            role, content = "assistant", text or None
        case ToolResult(call_id, content, failed):
            role, author = "tool", PROGRAM
        case Answer(said, reasoning):
            role = "assistant"
            author, content, parts = _said(said)
        case _ as never:
            assert_never(never)
    return MessageLine(
        v=VERSION,
        seq=seq,
        time=time,
        turn=turn,
        round=round_,
        role=role,
        author=author,
        content=content,
        parts=parts,
        note=isinstance(message, Note),
        reasoning_content=reasoning,
        tool_calls=tuple(_stored(call) for call in calls),
        tool_call_id=call_id,
        failed=failed,
    )


def _stored(call: ToolCall) -> StoredCall:
    return StoredCall(call.id, StoredFunction(call.name, call.arguments), "function", call.problem)


def to_message(line: MessageLine) -> Message:
    """The message of a line.  Raises ValueError where the line holds none."""
    parts = line.parts or (Text(line.content or "", line.author),)
    match line.role:
        case "user":
            return Note(parts) if line.note else User(parts)
        case "assistant" if line.tool_calls:
            calls = tuple(
                ToolCall(call.id, call.function.name, call.function.arguments, call.problem)
                for call in line.tool_calls
            )
            return Calls(
                calls, plain(line.parts) if line.parts else line.content or "", line.reasoning_content
            )
        case "assistant":
            return Answer(parts, line.reasoning_content)
        case "tool":
            return ToolResult(line.tool_call_id, plain(parts), line.failed)
        case _ as never:
            assert_never(never)


def title_of(text: str) -> str:
    """The first line of what was said that is not blank, cut to TITLE_LENGTH."""
    line = next((line.strip() for line in text[:4000].splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _said(parts: tuple[Part, ...]) -> tuple[str, str | None, tuple[Part, ...]]:
    """Author and content where there is one text, else the parts."""
    match parts:
        case (Text(text, author),):
            return author, text, ()
        case _:
            return "", None, parts
