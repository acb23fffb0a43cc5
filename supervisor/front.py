"""Where the events of a session without a person go: as text or as JSON lines, on stdout and stderr.

What is *not* here: the session, signals and the clock (headless.py), and how bytes get out (flow.py).
"""

from typing import assert_never

import msgspec

from protocol.events import (
    AnyEvent,
    Compacted,
    Notice,
    PermissionAnswered,
    PermissionAsked,
    ReasoningDelta,
    ReplyFinished,
    ReplyRetried,
    RoundStarted,
    SandboxReady,
    SessionClosed,
    SessionStarted,
    StopReason,
    TextDelta,
    ToolFinished,
    ToolOutputDelta,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    Usage,
    encode,
)
from protocol.policy import Rung
from supervisor.flow import Stdout
from supervisor.harmless import harmless_line
from supervisor.streams import complain, encoded, report

SHOWN = 200
"""Characters of a withdrawn task that its error names."""


class Front:
    """Where the session's events go.  Keeps what `session_closed` reports."""

    def __init__(self, json: bool) -> None:
        self.out = Stdout()
        self._json = json
        self._seq = 0
        self._conversation = ""
        self._task = ""
        self._turns = 0
        self._rounds = 0
        self._usage = Usage()
        self._lacks = ""
        """What the sandbox does not enforce, until somebody was told."""
        self._used_tools = False
        self._refused: set[str] = set()
        """Calls of which was told why they are not allowed."""

    def tell(self, event: AnyEvent) -> None:
        """Show the event; numbered here, since the front has notices of its own."""
        self._seq += 1
        event = msgspec.structs.replace(event, seq=self._seq)
        self._count(event)
        if self._json:
            line = encode(event)
            self.out.write(_visible(line) if self.out.is_terminal else line)
        else:
            self._print(event)

    def notice(self, text: str, level: str = "info") -> None:
        self.tell(Notice(text=text, level=level))

    def close(self, code: int) -> None:
        self.tell(
            SessionClosed(
                exit_code=code,
                conversation=self._conversation,
                turns=self._turns,
                rounds=self._rounds,
                usage=self._usage,
            )
        )

    def _count(self, event: AnyEvent) -> None:
        match event:
            case SessionStarted():
                self._conversation = event.conversation
            case TurnStarted():
                self._task = event.text if len(event.text) <= SHOWN else event.text[: SHOWN - 1] + "…"
            case TurnFinished():
                self._turns += event.reason is not StopReason.WITHDRAWN
                self._rounds += event.rounds
                self._usage += event.usage
            case _:
                pass

    def _print(self, event: AnyEvent) -> None:
        match event:
            case TurnFinished():
                text = event.text.rstrip("\n")
                if event.reason in (StopReason.ANSWERED, StopReason.ROUNDS):
                    self.out.write(encoded(text + "\n", self.out.encoding))
                elif text:  # no answer, so it is not for whoever reads stdout
                    report(text)
                withdrawn = f"; the task was withdrawn: {self._task}"
                if event.error:
                    complain(event.error + withdrawn * (event.reason is StopReason.WITHDRAWN))
            case Notice():
                complain(event.text)
            case PermissionAnswered():
                self._permission(event)
            case ReplyRetried():
                complain(f"the reply is asked for again: {event.why}")
            case SandboxReady():
                # Where nothing is enforced a notice has said so.
                lacks = event.notes if event.rung != Rung.OFF.value else ()
                self._lacks = f"sandbox {event.rung}: {'; '.join(lacks)}" if lacks else ""
                self._warn()
            case ToolStarted():
                self._used_tools = True
                self._warn()
            case ToolFinished():
                failed = f" ({event.status})" if event.failed else ""
                # Why it was not allowed has just been said.
                summary = "" if event.call_id in self._refused else f" · {event.display.summary}"
                report(harmless_line(f"  {event.name}{failed}{summary}"))
                for denial in event.denials:
                    likely = "" if denial.sure else "likely "
                    report(harmless_line(f"    {likely}blocked: {denial.what}"))
            case ReplyFinished() if event.kind == "narration" and event.text:
                report(event.text.rstrip("\n"))
            case (
                SessionStarted() | TurnStarted() | RoundStarted() | TextDelta() | ReasoningDelta()
                | ReplyFinished() | ToolOutputDelta() | PermissionAsked() | Compacted() | SessionClosed()
            ):  # fmt: skip
                pass
            case _ as never:
                assert_never(never)

    def _permission(self, event: PermissionAnswered) -> None:
        """Who allowed what; a no is told too, since it may be what the run is missing."""
        what = ", ".join(event.permissions) or event.subject
        if event.allowed:
            report(harmless_line(f"  allowed: {what} ({event.by})"))
        else:
            self._refused.add(event.call_id)
            complain(event.words.removeprefix("not run: "))

    def _warn(self) -> None:
        """Say what the sandbox lacks, once, and only where a tool is used: else it matters to nobody."""
        if self._used_tools and self._lacks:
            complain(self._lacks)
            self._lacks = ""


def _visible(line: bytes) -> bytes:
    """A line of JSON for a terminal: characters that control one are escaped, as JSON allows."""
    text = line.decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text).encode()


def _escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
