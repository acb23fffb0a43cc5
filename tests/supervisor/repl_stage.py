"""A program for the tests of the REPL: the real REPL, played against a session that follows a script.

The line says what happens; what it can say is the match in `_play`.
"""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio
from msgspec import Struct
from msgspec.structs import replace

from protocol.conversation import User, plain
from protocol.display import Display
from protocol.events import (
    Compacted,
    Notice,
    PermissionAnswered,
    ReasoningDelta,
    ReplyFinished,
    ReplyRetried,
    RoundStarted,
    SandboxReady,
    SessionStarted,
    StopReason,
    TextDelta,
    ToolFinished,
    ToolOutputDelta,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    Usage,
)
from protocol.policy import Limits, Mode, Network, Rung
from protocol.wire import Ready
from supervisor.exits import StopError
from supervisor.harmless import harmless
from supervisor.options import ReplOptions
from supervisor.permits.asking import Asker, Question, Questions, Scope
from supervisor.permits.grants import Granted
from supervisor.permits.standing import InForce
from supervisor.permits.trust import Offered
from supervisor.screen.port import Parts as OpenParts
from supervisor.screen.port import Prepared, Tell
from supervisor.screen.repl import run_repl

DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n keep\n-old\n+new\n"
LONG = "".join(f"row {number}\n" for number in range(60))


class Report(Struct, frozen=True):
    parts: tuple[tuple[str, int], ...] = (("system prompt", 1200), ("turn 1: hello \x1b[31m", 34))
    used: int = 440_000
    budget: int = 500_000
    estimated: bool = False


class Scripted:
    def __init__(self, id: str, tell: Tell, asker: Asker) -> None:
        self.id = id
        self.turn = 1
        self.share = 0.0
        self._tell = tell
        self._questions = Questions(asker, tell)
        self._scope = trio.CancelScope()

    def interrupt(self) -> None:
        self._scope.cancel()

    async def say(self, user: User) -> TurnFinished:
        line = plain(user.parts)
        self._tell(TurnStarted(turn=self.turn, text=line))
        reason, error = StopReason.ANSWERED, ""
        with trio.CancelScope() as self._scope:
            reason, error = await self._play(line)
        if self._scope.cancelled_caught:
            reason, error = StopReason.INTERRUPTED, "interrupted by the user"
            if line == "silence":
                reason = StopReason.WITHDRAWN
        finished = TurnFinished(
            turn=self.turn, reason=reason, text="", rounds=1, usage=Usage(), seconds=0.1, error=error
        )
        if reason is not StopReason.WITHDRAWN:
            self.turn += 1
        self._tell(finished)
        return finished

    async def _play(self, line: str) -> tuple[StopReason, str]:
        self._tell(RoundStarted(turn=self.turn, round=1, share=0.1))
        match line:
            case "silence":
                self._tell(ReasoningDelta(text="hm"))
                await trio.sleep_forever()
            case "forever":
                self._tell(TextDelta(text="half an "))
                self._tell(TextDelta(text="answer"))
                await trio.sleep_forever()
            case "tools":
                self._use_tools()
                self._answer("Done: both lines.")
            case "command":
                self._tell(ToolStarted(call_id="9", name="run_command", arguments='{"command": "make"}'))
                self._tell(ToolOutputDelta(call_id="9", text="compiling a.c\n"))
                await trio.sleep_forever()
            case "ask" | "ask twice" | "ask long" | "ask evil":
                await self._ask(line)
            case "retry":
                self._tell(TextDelta(text="lost words"))
                self._tell(ReplyRetried(why="the stream broke"))
                self._answer("second try")
            case "evil":
                for piece in ("A\x1b", "]52;c;eA==", "\x07B\x9b2J", "C\u202eD"):
                    self._tell(TextDelta(text=piece))
                self._answer("")
            case "long":
                self._tell(TextDelta(text=LONG))
                self._answer("the end")
            case "share":
                self.share = 0.9
                self._answer("much")
            case "red":
                self.share = 0.976
                self._answer("too much")
            case "fail":
                return StopReason.FAILED, "the server is gone"
            case "rounds":
                self._answer("as far as I came")
                return StopReason.ROUNDS, ""
            case "full":
                raise StopError("the disk is full; nothing was written")
            case "late":
                self._tell(TextDelta(text="begun "))
                self._tell(Notice(text="job 1 ended", level="info"))
                self._answer("and ended")
            case _ if line.startswith("length "):
                self._answer(f"{len(line.removeprefix('length '))} characters")
            case _:
                self._answer(f"you said {line}")
        return StopReason.ANSWERED, ""

    async def _ask(self, how: str) -> None:
        question = Question(
            call_id="7",
            tool="run_command",
            subject="make install",
            reason="it needs more than the sandbox allows",
            permissions=("write:/opt",),
            cwd="/w",
            why="the user wants it there",
            scopes=(Scope.ONCE, Scope.SESSION, Scope.PROJECT),
        )
        if how == "ask long":
            question = replace(question, subject="".join(f"echo line {n}\n" for n in range(40)))
        if how == "ask evil":
            question = replace(
                question,
                subject="ls\x1b[2K\x1b[1A\t#\u200b\u202e",
                why="ok\n[o]nce  [n]o\x1b[H",
                scopes=(Scope.ONCE,),
            )
        async with trio.open_nursery() as nursery:
            for _ in range(2 if how == "ask twice" else 1):
                nursery.start_soon(self._ask_one, question)

    async def _ask_one(self, question: Question) -> None:
        self._tell(ToolStarted(call_id="7", name="run_command", arguments='{"command": "make install"}'))
        number, answer = await self._questions.ask(question, lambda: None)
        self._tell(
            PermissionAnswered(
                question=number,
                call_id="7",
                name="run_command",
                subject=question.subject,
                permissions=question.permissions,
                allowed=answer.scope is not None,
                by="user",
                scope=answer.scope.value if answer.scope else "",
                words=answer.words,
            )
        )
        self._answer(f"the answer was {answer.scope.value if answer.scope else 'no'} {answer.words!r}")

    def _use_tools(self) -> None:
        self._tell(TextDelta(text="I look at it."))
        self._tell(ReplyFinished(kind="narration", text="I look at it.", round=1))
        displays = {
            "read_file": ('{"path": "a.py"}', Display("read 40 lines")),
            "edit_file": ('{"path": "a.py", "edits": []}', Display("1 edit", diff=DIFF, path="a.py")),
            "run_command": ('{"command": "ls"}', Display("exit 0 in 0.1 s", preview=LONG)),
            "search": ('{"pattern": "x"}', Display("nothing was found")),
        }
        for number, (name, (arguments, display)) in enumerate(displays.items()):
            self._tell(ToolStarted(call_id=str(number), name=name, arguments=arguments))
            self._tell(
                ToolFinished(
                    call_id=str(number),
                    name=name,
                    status="failed" if name == "search" else "done",
                    failed=name == "search",
                    seconds=0.1,
                    bytes=10,
                    display=display,
                )
            )

    def _answer(self, text: str) -> None:
        if text:
            self._tell(TextDelta(text=text))
        self._tell(ReplyFinished(kind="answer", text=text, round=2))

    async def try_command(self, command: str) -> None:
        """As if it had been run."""
        if command == "forever":
            await trio.sleep_forever()
        if command == "full":
            raise StopError("the disk is full; nothing was written")
        lines = tuple(f"created: file {number}, 3 bytes" for number in range(60 if command == "many" else 2))
        await self._ask_one(
            Question(
                call_id="try-1",
                tool="run_command",
                subject=command,
                reason="a dry run is over: 2 created",
                notes=(*lines, "changed: ev\x1b[2Kil, 1 bytes"),
                beside=lines[1:] if command == "mine" else None,
                own=command == "mine",
                yes="apply",
                no="discard",
                diff="= src/a.py  changed +1 -1\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\x1b[2K\n"
                "= b  created +1 -0\n@@ -0,0 +1 @@\n+= no heading",
            )
        )

    async def compact(self, focus: str = "") -> Compacted:
        if focus == "forever":
            await trio.sleep_forever()
        if focus == "never":
            raise StopError("there is nothing to compact yet")
        done = Compacted(pairs=3, before=40_000, after=2_000)
        self._tell(done)
        return done

    def context(self) -> Report:
        return Report()


class Confined:
    """A sandbox that does as it is told; `/sandbox read-only` finds jobs."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.mode = Mode.WORKSPACE_WRITE
        self.session: tuple[str, ...] = ("write:/opt",)

    async def in_force(self) -> InForce:
        rung = Rung.OFF if self.mode is Mode.UNCONFINED else Rung.LANDLOCK
        return InForce(
            mode=self.mode,
            ready=Ready(rung, notes=("the network is not confined",)),
            network=Network.LISTED,
            hosts=("pypi.org:443",),
            readable=("/srv/data",),
            writable=(),
            given=("git-write",),
            session=self.session,
            project=(Granted("read:/etc/x", "2026-01-01T00:00:00+00:00", "cat /etc/x\x1b[2J"),),
            approved=(),
            quiet=(),
            limits=Limits(memory_bytes=1 << 31),
            behind=self.mode is Mode.READ_ONLY,
        )

    def change_mode(self, mode: Mode) -> bool:
        self.mode = mode
        if mode is Mode.UNCONFINED:
            self._tell(SandboxReady(rung="off"))
        elif mode is Mode.WORKSPACE_WRITE:
            self._tell(SandboxReady(rung="full"))
        return mode is not Mode.READ_ONLY

    def revoke(self, word: str) -> tuple[str, ...]:
        if word not in self.session:
            raise StopError(f"{word} was not granted; granted: write:/opt")
        self.session = ()
        return (word,)


class Parts(Struct):
    session: Scripted
    sandbox: Confined


class Opener:
    """Opens conversations one after the other; the first argument of the program says how."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.opened = 0

    @asynccontextmanager
    async def open(self, tell: Tell, asker: Asker) -> AsyncIterator[OpenParts]:
        self.opened += 1
        if self.how == "refused":
            raise StopError("no such conversation", 2)
        if self.how == "never":
            await trio.sleep_forever()
        if self.how.startswith("/"):
            async with await trio.open_file(self.how):  # a FIFO: it opens when the test opens it
                pass
        session = Scripted(f"abc{self.opened}", tell, asker)
        tell(SessionStarted(conversation=session.id, workspace="/w", model="m", rehearsal=True))
        async with trio.open_nursery() as nursery:
            tell(SandboxReady(rung="landlock", notes=("the network is not confined",)))
            yield Parts(session, Confined(tell))
            nursery.cancel_scope.cancel()
        tell(Notice(text=f"closed {session.id}"))


def look() -> Offered:
    """What a project's file asks for that has just been cloned."""
    return Offered(
        home=Path(sys.argv[3]),
        root=Path("/w"),
        project="key",
        path=Path("/w/.agent/settings.toml"),
        digest="d",
        lines=('sandbox.network = "on"',),
        is_trusted=False,
    )


@contextmanager
def prepared() -> Iterator[Prepared]:
    how, show = sys.argv[1], sys.argv[2]
    opener = Opener(how)
    yield Prepared(opener.open, opener.open, harmless, show, look, notices=("a setting was ignored",))


if __name__ == "__main__":
    try:
        code = run_repl(ReplOptions(rehearsal=sys.argv[1] == "rehearsal"), prepared)
    except StopError as stop:
        print(f"agent: {stop}", file=sys.stderr)
        code = stop.exit_code
    sys.exit(code)
