"""A session: plays turns one at a time, remembers them, makes room.

Each message is on disk before the next step.  What a session does not know: processes (pool), HTTP (model),
screens (they are told events).
"""

from collections.abc import Callable

import trio
from msgspec import Struct

from protocol.conversation import PROGRAM, Message, Note, Pair, Text, User, flatten, plain
from protocol.events import AnyEvent, Compacted, StopReason, TurnFinished, TurnStarted
from protocol.loop import run_turn
from protocol.turn import Event, OpenTurn, State
from supervisor.context import compaction
from supervisor.exits import StopError, causes, first_stop
from supervisor.model.errors import ModelError
from supervisor.model.request import Request
from supervisor.session.backlog import Backlog
from supervisor.session.calls import SessionTools, StopTurnError
from supervisor.session.ending import closing
from supervisor.session.rounds import Rounds
from supervisor.session.summariser import Summariser
from supervisor.store.conversations import OpenConversation
from supervisor.store.repair import UNKNOWN_EFFECT

NOTES = 100
"""Lines by the program that wait for a boundary; ends of jobs can come by the thousand."""

DISK_FAILED = "interrupted: the conversation could not be written to the disk"


class ContextReport(Struct, frozen=True):
    """What the next request holds: parts with calibrated tokens, their sum and the budget."""

    parts: tuple[tuple[str, int], ...]
    used: int
    budget: int
    estimated: bool
    """True while the provider has reported nothing yet."""


class Session:
    """One run of a conversation.  `turn` is the number that the next turn will have."""

    def __init__(
        self,
        store: OpenConversation,
        rounds: Rounds,
        tools: SessionTools,
        summariser: Summariser,
        tell: Callable[[AnyEvent], None],
        max_turns: int,
        sync: Callable[[], None],
    ) -> None:
        self.id = store.id
        self.turn = store.loaded.turn + 1
        self.turns = 0
        """Turns of this session, for the limit."""
        self.pairs: list[Pair] = list(store.loaded.conversation.pairs)
        self._spans: list[tuple[int, int]] = list(store.loaded.spans)
        self._store = store
        self._backlog = Backlog(store.transcript)
        self._rounds = rounds
        self._tools = tools
        self._summariser = summariser
        self._tell = tell
        self._max_turns = max_turns
        self._sync = sync
        self._notes: list[Note] = []
        self._scope: trio.CancelScope | None = None
        self._why = ""
        self._finished: TurnFinished | None = None
        for pair in self.pairs:
            rounds.remember(flatten(pair.user, pair.rounds, pair.answer))

    @property
    def share(self) -> float:
        return self._rounds.share

    @property
    def rounds(self) -> Rounds:
        return self._rounds

    def note(self, text: str) -> None:
        """A line by the program that the model is handed at the next boundary between rounds.  When no
        further round comes it is dropped."""
        waiting = len(self._notes)
        if waiting < NOTES:
            words = text if waiting < NOTES - 1 else "more lines like these are left out"
            self._notes.append(Note((Text(f"[{words}]", PROGRAM),)))

    def interrupt(self, why: str = "interrupted by the user") -> None:
        """End the turn that runs, if one does; `say` returns soon after.  `why` stands in the answer."""
        if self._scope is not None:
            self._why = why
            self._scope.cancel()

    async def say(self, user: User) -> TurnFinished:
        """Play one turn.  A provider's failure and an interrupt are ways to end, never an exception.

        Raises StopError where the disk fails or the session's limit of turns is reached.  Where it fails in
        the middle, the turn is closed as an interrupted one, and what could not be written is written before
        the next line.
        """
        if self.turns >= self._max_turns:
            raise StopError(
                f"the limit of this session is reached: {self._max_turns} turn(s), max_turns_per_session; "
                f"go on with: agent --resume {self.id}"
            )
        self._backlog.write()
        turn = OpenTurn(user, self.turn)
        mark = self._rounds.request.mark()
        first = self._store.transcript.message(user, turn=self.turn, round=None)
        self._sync()
        self._rounds.start_turn(self.turn)
        self._tools.start_turn()
        self._why = "interrupted"
        self._finished = None
        self._scope = scope = trio.CancelScope()  # before anybody hears of the turn, so that all can end it
        self._tell(TurnStarted(turn=self.turn, text=plain(user.parts)))
        with scope:
            self._finished = await self._play(turn, first, mark)
        self._sync()
        if self._finished is None:
            raise RuntimeError("a turn ended without being told of")
        return self._finished

    async def _play(self, turn: OpenTurn, first: int, mark: int) -> TurnFinished:
        """Run the turn to its end, or end it.  From the end of `run_turn` on nothing is awaited, so what is
        committed is committed whoever cancels."""
        started = trio.current_time()
        reason, error = StopReason.ANSWERED, ""
        try:
            await run_turn(turn, self._rounds, self._tools, self._taker(turn), self._take_notes)
            if self._rounds.wrapped_up:
                reason = StopReason.ROUNDS
        except (ModelError, StopTurnError) as failure:
            reason, error = StopReason.FAILED, str(failure)
        except (trio.Cancelled, StopError, BaseExceptionGroup) as ended:
            # A nursery on the way (trio's own, while it connects) hands a cancellation on as a group.
            if not all(isinstance(cause, trio.Cancelled | StopError) for cause in causes(ended)):
                raise
            stop = first_stop(ended)
            why = DISK_FAILED if stop else self._why
            seconds = trio.current_time() - started
            self._finished = self._end(turn, first, mark, StopReason.INTERRUPTED, why, seconds)
            if stop is not None:
                raise stop from None
            raise
        finally:
            self._scope = None
        return self._end(turn, first, mark, reason, error, trio.current_time() - started)

    def _taker(self, turn: OpenTurn) -> Callable[[Event], None]:
        """What receives each event of the turn: first the grammar, then the disk."""

        def take(event: Event) -> None:
            turn.receive(event)
            self._backlog.message(event, turn.number, self._rounds.number)
            self._backlog.write()

        return take

    def _take_notes(self) -> list[Note]:
        notes, self._notes = self._notes, []
        return notes

    def _end(
        self, turn: OpenTurn, first: int, mark: int, reason: StopReason, error: str, seconds: float
    ) -> TurnFinished:
        """Close or withdraw the turn, remember it, write it, tell of it; where StoreError is raised too."""
        number = self.turn
        pair = self._commit(turn, first, mark, error)
        finished = TurnFinished(
            turn=number,
            reason=reason if pair else StopReason.WITHDRAWN,
            text=plain(pair.answer.parts) if pair else "",
            rounds=self._rounds.rounds,
            usage=self._rounds.turn_usage,
            seconds=round(seconds, 3),
            error=error,
        )
        try:
            self._backlog.write()
        finally:
            self._tell(finished)
        return finished

    def _commit(self, turn: OpenTurn, first: int, mark: int, error: str) -> Pair | None:
        """Close the turn and remember it: its pair, or None where it is withdrawn.

        Writes nothing yet, so that it can't stop half-way.
        """
        if error and turn.state is not State.CLOSED:
            answer = closing(turn, *self._rounds.take_partial(), error)
            if answer is None:
                self._backlog.withdrawn(self.turn, first, error)
                self._rounds.request.rollback(mark)
                return None
            for event in turn.interrupt(UNKNOWN_EFFECT, answer):
                self._backlog.message(event, self.turn, self._rounds.number)
        self._notes.clear()
        pair = turn.close()
        self._rounds.remember([*turn.untold(), pair.answer])
        self.pairs.append(pair)
        self._spans.append((first, self._backlog.seq))
        self.turn += 1
        self.turns += 1
        return pair

    async def try_command(self, command: str) -> None:
        """The user's own dry run: its effects are shown, then applied or discarded.  The model learns of it
        only where something was applied.  Raises StopError."""
        applied = await self._tools.try_command(command)
        if applied:
            self.note(f"the user ran this themselves: {command}; {applied}")

    async def compact(self, focus: str = "") -> Compacted:
        """Replace the closed pairs by a summary, which costs a round and no turn.

        Raises StopError where there is nothing to replace, or the summary is empty or not smaller; ModelError
        where the summariser fails.  Then nothing has changed.
        """
        if not self.pairs:
            raise StopError("there is nothing to compact yet")
        self._backlog.write()
        request, budget = self._rounds.request, self._rounds.budget
        budget = budget.rewritten()  # before and after in one measure
        before = budget.used(request.size)
        summary = await self._summariser.summarise(self.pairs, focus)
        pair = compaction.summary_pair(self.pairs, summary)
        messages: list[Message] = flatten(pair.user, pair.rounds, pair.answer)
        smaller = request.sized(messages)
        if smaller >= request.conversation_size:
            raise StopError(
                f"the summary is no smaller than what it would replace ({budget.tokens(smaller)} against "
                f"{budget.tokens(request.conversation_size)} tokens); nothing was changed"
            )
        span = (self._spans[0][0], self._spans[-1][1])
        seq = self._store.transcript.compaction(pair, *span)
        replaced = len(self.pairs)
        self.pairs = [pair]
        self._spans = [(span[0], seq)]
        request.restart()
        self._rounds.remember(messages)
        self._rounds.budget = budget
        self._sync()
        event = Compacted(pairs=replaced, before=before, after=self._rounds.budget.used(request.size))
        self._tell(event)
        return event

    def context(self) -> ContextReport:
        """What the next request would hold, before the next line."""
        request, budget = self._rounds.request, self._rounds.budget
        parts = [(name, budget.tokens(size)) for name, size in request.fixed_parts()]
        parts += [(_label(pair), budget.tokens(_size(request, pair))) for pair in self.pairs]
        return ContextReport(tuple(parts), budget.used(request.size), budget.total, not budget.anchor)


def _size(request: Request, pair: Pair) -> int:
    return request.sized(flatten(pair.user, pair.rounds, pair.answer))


def _label(pair: Pair) -> str:
    words = " ".join(plain(pair.user.parts).split())
    short = words if len(words) <= 40 else words[:39] + "…"
    return f"turn {pair.turn}: {short}" if pair.turn else f"summary: {short}"
