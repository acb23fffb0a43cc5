"""The loop of a turn and its two ports.  The main turn and a subagent's turn run these very lines.

The loop knows neither processes nor providers: streaming, budget, retries, pipes and approvals are ways to
implement a port.  It has no limit of its own either: a `Model` whose rounds are used up asks for a last
reply without tools.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from protocol.conversation import Message, Note, Pair, Reply, ToolCall, ToolResult
from protocol.turn import Event, OpenTurn, State


class Model(Protocol):
    """Where replies come from."""

    async def reply(self, added: Sequence[Message]) -> Reply:
        """The model's reply.  `added` is what was said since the last call; keeping the rest is the
        port's business.  Must not touch the turn."""
        ...


class Tools(Protocol):
    """Where results come from."""

    async def run(self, calls: Sequence[ToolCall], deliver: Callable[[ToolResult], None]) -> None:
        """Deliver one result per call, each as soon as it is there, in any order.  A failing tool is a
        failed result, never an exception."""
        ...


def nothing_to_add() -> Sequence[Note]:
    """The boundary between rounds at which nobody has anything to say."""
    return ()


async def run_turn(
    turn: OpenTurn,
    model: Model,
    tools: Tools,
    take: Callable[[Event], None] | None = None,
    boundary: Callable[[], Sequence[Note]] = nothing_to_add,
) -> Pair:
    """Fetch what the turn is missing until it misses nothing.

    `take` receives each event; it must pass it on to `turn.receive` and may write it down.  `boundary` is
    asked before each request but the first for notes to hand in.  On cancellation the turn keeps every
    result that had arrived; whoever cancelled closes it with `OpenTurn.interrupt`.
    """
    take = take or turn.receive
    while turn.state is not State.CLOSED:
        if turn.state is State.AWAITING_MODEL:
            if turn.rounds:
                for note in boundary():
                    take(note)
            take(await model.reply(turn.untold()))
        else:
            await tools.run(turn.pending, take)
            if turn.pending:
                raise RuntimeError("Tools.run must deliver one result per call")
    return turn.close()
