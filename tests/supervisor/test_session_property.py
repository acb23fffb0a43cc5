"""Random scripts, and something that happens at a random event: an interrupt, a full disk, a kill, a note.

Whatever it was: the strict server refuses nothing, no text that was shown is lost, and the transcript says
what the memory says, also to a later session that goes on.
"""

import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from protocol.conversation import Answer, Calls, Pair, User, flatten, plain
from protocol.events import (
    AnyEvent,
    ReplyFinished,
    ReplyRetried,
    RoundStarted,
    StopReason,
    TextDelta,
)
from supervisor.exits import StopError
from supervisor.model.errors import ModelError
from supervisor.rehearsal.script import Close, Fault, Reset, Script, ScriptedCall, Stall, Status, Step
from supervisor.rehearsal.server import ScriptedServer, serve
from supervisor.session.session import Session
from supervisor.store import round_log
from supervisor.store.conversations import OpenConversation
from supervisor.store.lines import Head
from supervisor.store.load import load
from tests.supervisor.full_disk import full_disk
from tests.supervisor.session_play import body_of, played

CALLS = st.sampled_from(
    [
        ScriptedCall("read_file", {"path": "a"}, "same"),
        ScriptedCall("read_file", {"path": "b"}, "same"),
        ScriptedCall("write_file", {"path": "a", "content": "x"}),
        ScriptedCall("run_command", '{"command": "x", timeout": 5}'),
        ScriptedCall("fly", {}),
    ]
)
FAULTS: st.SearchStrategy[Fault | None] = st.one_of(
    *[st.none()] * 8,
    st.builds(Close, after=st.integers(0, 4)),
    st.builds(Reset, after=st.integers(0, 4)),
    st.builds(Stall, after=st.integers(1, 4)),
    st.just(Status(402, "Insufficient Balance")),
)
STEPS = st.builds(
    Step,
    thinking=st.sampled_from([None, "Let me see."]),
    text=st.sampled_from(["", "Forty-two, I think.", "Done.", " "]),
    calls=st.lists(CALLS, max_size=3).map(tuple),
    chunk=st.sampled_from([4, 100]),
    pause=st.sampled_from([0.0, 0.001]),
    fault=FAULTS,
)


class Happening(Struct, frozen=True):
    """What happens at the event of this number, counted within the turn."""

    kind: str
    event: int


HAPPENINGS = st.builds(
    Happening,
    kind=st.sampled_from(["interrupt", "full disk", "full disk, interrupt", "kill", "kill", "note"]),
    event=st.integers(1, 16),
)
TURNS = st.lists(st.tuples(HAPPENINGS, st.booleans()), min_size=1, max_size=3)
"""What happens in each turn, and whether a compaction comes after it."""


class Stage:
    """One conversation that is played: what was shown of the turn, and what the disk held at a kill."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.killed = place / "killed"
        self.at: dict[int, Callable[[], None]] = {}
        self.whole: list[str] = []
        self.shown: list[str] = []
        self.outlives: list[str] = []
        """What a kill may not take: replies that were told of, and what was shown first of this one."""
        self._heard = 0

    def begin(self) -> None:
        self.whole, self.shown, self._heard = [], [], 0

    def tell(self, event: AnyEvent) -> None:
        self._heard += 1
        if happens := self.at.pop(self._heard, None):
            happens()
        match event:
            case TextDelta(text=text):
                self.shown.append(text)
            case ReplyRetried() | RoundStarted():
                self.shown = []
            case ReplyFinished(text=text):
                self.whole.append(text)
                self.shown = []
            case _:
                pass

    def kill(self) -> None:
        """What a kill at this moment would leave is put aside."""
        if not self.killed.exists():
            shutil.copytree(self.home, self.killed)
            self.outlives = [*self.whole, *self.shown[:1]]


def keeps(shown: list[str], pairs: list[Pair]) -> None:
    """The newest pair holds all that was shown."""
    messages = flatten(pairs[-1].user, pairs[-1].rounds, pairs[-1].answer) if pairs else []
    said = [message.text for message in messages if isinstance(message, Calls)]
    said += [plain(message.parts) for message in messages if isinstance(message, Answer)]
    assert all(text in "\n".join(said) for text in shown if text.strip())


def same(before: list[Pair], now: list[Pair]) -> None:
    assert now == before


def agree(session: Session, store: OpenConversation) -> None:
    """Memory, request and transcript say the same."""
    loaded = load(store.transcript.path)
    assert loaded.notices == ()
    assert loaded.open == ()
    assert list(loaded.conversation.pairs) == session.pairs
    assert loaded.turn == session.turn - 1
    assert session.rounds.request.body() == body_of(session.pairs)
    sent = [row.round for row in round_log.rows(store.rounds.path) if isinstance(row, round_log.Sent)]
    assert sent == sorted(set(sent))


async def play_turn(stage: Stage, session: Session, store: OpenConversation, happening: Happening) -> None:
    stage.begin()
    pairs, refused = len(session.pairs), False
    with ExitStack() as stack:

        def fill() -> None:
            stack.enter_context(full_disk(store.transcript.path.stat().st_size))

        def fill_and_interrupt() -> None:
            fill()
            session.interrupt()

        stage.at = {
            happening.event: {
                "interrupt": session.interrupt,
                "full disk": fill,
                "full disk, interrupt": fill_and_interrupt,
                "kill": stage.kill,
                "note": lambda: session.note("the worker died"),
            }[happening.kind]
        }
        try:
            finished = await session.say(User.says("work"))
        except StopError:
            refused = True
        else:
            assert "refused" not in finished.error
    stage.at = {}
    shown = [text for text in (*stage.whole, "".join(stage.shown)) if text.strip()]
    if len(session.pairs) == pairs:
        assert not shown
    else:
        keeps(shown, session.pairs)
    if not refused:
        agree(session, store)


async def go_on(server: ScriptedServer, home: Path, id: str, finds: Callable[[list[Pair]], None]) -> None:
    """Another session says one more line; `finds` looks at what it finds."""
    async with played(home, server.url("after"), lambda event: None, id) as (session, store):
        finds(session.pairs)
        numbers = [pair.turn for pair in session.pairs if pair.turn]
        assert numbers == list(range(session.turn - len(numbers), session.turn))
        finished = await session.say(User.says("and now?"))
        assert (finished.reason, finished.text) == (StopReason.ANSWERED, "Still here."), finished.error
        agree(session, store)
    with store.transcript.path.open("rb") as file:
        seqs = [msgspec.json.decode(line, type=Head).seq for line in file]
    assert seqs == list(range(1, len(seqs) + 1))


async def play(place: Path, steps: list[Step], turns: list[tuple[Happening, bool]]) -> None:
    stage = Stage(place)
    scripts = {
        "main": Script(steps=(*steps, Step(text="End.")), repeat_last=True),
        "after": Script(steps=(Step(text="Still here."),), repeat_last=True),
    }
    with trio.fail_after(30):
        async with serve(scripts) as server:
            async with played(stage.home, server.url(), stage.tell, idle=0.02) as (session, store):
                for happening, compacts in turns:
                    await play_turn(stage, session, store, happening)
                    if compacts:
                        with suppress(StopError, ModelError):
                            await session.compact()
                stage.begin()
                await session.say(User.says("the last one"))
                agree(session, store)
                assert not [request.refusal for request in server.requests() if request.status == 400]
            await go_on(server, stage.home, store.id, partial(same, session.pairs))
            if stage.killed.exists():
                await go_on(server, stage.killed, store.id, partial(keeps, stage.outlives))


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, max_size=8), TURNS)
def test_whatever_happens_nothing_is_refused_lost_or_told_in_two_ways(
    steps: list[Step], turns: list[tuple[Happening, bool]]
) -> None:
    with TemporaryDirectory() as place:
        trio.run(play, Path(place), steps, turns)
