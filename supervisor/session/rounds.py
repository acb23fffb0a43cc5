"""The session's `Model` port: one request, one reply, and what is written down of both.

It keeps the encoded conversation as it is *sent* and adds to it what is new; nothing here is in proportion
to the whole conversation but the bytes that go out.  The limit on rounds is kept here too: when a turn's
rounds are used up, the last request offers no tools and carries a volatile line that is stored nowhere.
"""

from collections.abc import Callable, Sequence

import trio

from protocol.conversation import MODEL, PROGRAM, Answer, Calls, Message, Reply, Text, plain
from protocol.events import (
    AnyEvent,
    Notice,
    ReasoningDelta,
    ReplyFinished,
    ReplyRetried,
    RoundStarted,
    TextDelta,
    Usage,
)
from supervisor.context.budget import Budget
from supervisor.masks import mask_shapes
from supervisor.model.assembly import Completion, Delta
from supervisor.model.chat import ChatModel
from supervisor.model.errors import EmptyReplyError, ModelError
from supervisor.model.reply import to_reply
from supervisor.model.request import Request
from supervisor.store.round_log import RoundLog, Sent, Settled
from supervisor.store.texts import Texts

WRAP_UP = (
    "[The program: this turn's limit of tool rounds is reached, and no tools are offered any more. "
    "Answer now: what was done, what was found, what is still open.]"
)

PARTIAL_SECONDS = 0.5
"""How often the text that has arrived is written down: a kill loses at most this much of shown text."""

CUT = {
    "length": "it reached the output limit (max_output_tokens), or the model's window is full",
    "content_filter": "the server's filter stopped it",
}
"""Why an answer that has text may lack its end, by the provider's word for it."""


class Rounds:
    """`loop.Model` for the main conversation.  `number` is the last round that was drawn."""

    def __init__(
        self,
        request: Request,
        chat: ChatModel,
        log: RoundLog,
        texts: Texts,
        budget: Budget,
        tell: Callable[[AnyEvent], None],
        max_rounds: int,
        number: int,
    ) -> None:
        self.request = request
        self.budget = budget
        self.number = number
        self.usage = Usage()
        """Of this session."""
        self._chat = chat
        self._log = log
        self._texts = texts
        self._tell = tell
        self._max_rounds = max_rounds
        self._ids: set[str] = set()
        self._text: list[str] = []
        self._call_began = False
        self._written = 0.0
        self.start_turn(None)

    def start_turn(self, turn: int | None) -> None:
        """The counters of a turn begin anew."""
        self._turn = turn
        self.rounds = 0
        self.turn_usage = Usage()
        self.wrapped_up = False
        self._forget_partial()

    def remember(self, messages: Sequence[Message]) -> None:
        """Add what was said without asking: a resumed conversation, the answer that closed a turn."""
        self._ids.update(
            call.id for message in messages if isinstance(message, Calls) for call in message.calls
        )
        self.request.append(messages)

    @property
    def share(self) -> float:
        """The calibrated part of the budget that the next request uses, before the next line."""
        return self.budget.share(self.request.size)

    async def reply(self, added: Sequence[Message]) -> Reply:
        self.request.append(added)
        self.rounds += 1
        last = self.rounds > self._max_rounds
        volatile = WRAP_UP if last else ""
        self._forget_partial()
        kind = "wrap-up" if last else "turn"
        completion = await self.ask(self.request, kind, self._arrived, tools=not last, volatile=volatile)
        if completion.usage is not None and not last:
            self.budget = self.budget.settled(self.request.size, completion.usage.prompt)
        reply = to_reply(completion, self._ids)
        if reply is None:
            raise EmptyReplyError("the model said nothing; ask again, or try another model")
        if last:
            self.wrapped_up = True
            reply = _closing(reply)
        if isinstance(reply, Calls):
            self._ids.update(call.id for call in reply.calls)
        self._tell(
            ReplyFinished(
                kind="narration" if isinstance(reply, Calls) else "answer",
                text=reply.text if isinstance(reply, Calls) else plain(reply.parts),
                round=self.number,
                usage=completion.usage,
                finish_reason=completion.finish_reason or "",
            )
        )
        if isinstance(reply, Answer) and (cut := CUT.get(completion.finish_reason or "")):
            self._tell(Notice(text=f"the answer may be incomplete: {cut}", level="warning"))
        self._forget_partial()
        return reply

    async def ask(
        self,
        request: Request,
        kind: str,
        on_delta: Callable[[Delta], None],
        *,
        tools: bool = False,
        volatile: str = "",
    ) -> Completion:
        """One model call of any kind: numbered, logged as sent and as settled.  Raises ModelError."""
        self.number += 1
        started = trio.current_time()
        body = request.body(tools=tools, volatile=volatile)
        # What the provider reported is of the conversation; it says nothing of another request's size.
        used = self.budget.used(len(body)) if request is self.request else self.budget.tokens(len(body))
        turn = self._turn if kind != "compaction" else None
        self._log.sent(
            Sent(
                round=self.number,
                turn=turn,
                kind=kind,
                body_sha256=request.digest(tools=tools, volatile=volatile),
                bytes=len(body),
                head=self._texts.put(request.head),
                ending=self._texts.put(request.ending(tools=tools, volatile=volatile)),
                estimate=used,
            )
        )
        if kind != "compaction":
            self._tell(RoundStarted(turn=turn, round=self.number, share=round(used / self.budget.total, 4)))
        usage, reason, failure = None, "", "cancelled"
        try:
            completion = await self._chat.complete(body, on_delta, self._retried)
            usage, reason, failure = completion.usage, completion.finish_reason or "", ""
        except ModelError as error:
            failure = mask_shapes(str(error))
            raise
        finally:
            seconds = round(trio.current_time() - started, 3)
            self._log.settled(
                Settled(round=self.number, usage=usage, finish_reason=reason, seconds=seconds, error=failure)
            )
        if usage is not None:
            self.usage += usage
            self.turn_usage += usage
        return completion

    def take_partial(self) -> tuple[str, bool]:
        """The text of a reply that did not end, and whether a call of it had begun.  Forgets both."""
        found = "".join(self._text), self._call_began
        self._forget_partial()
        return found

    def _arrived(self, delta: Delta) -> None:
        if delta.reasoning:
            self._tell(ReasoningDelta(text=delta.reasoning))
        if delta.text:
            self._text.append(delta.text)
            self._tell(TextDelta(text=delta.text))
        self._call_began = self._call_began or bool(delta.calls)
        now = trio.current_time()
        if self._text and now - self._written >= PARTIAL_SECONDS:
            self._written = now
            self._log.partial(self.number, "".join(self._text))

    def _retried(self, why: str) -> None:
        if self._text:
            self._log.partial(self.number, "")  # what was shown is void, after a kill too
        self._forget_partial()
        self._tell(ReplyRetried(why=why))

    def _forget_partial(self) -> None:
        self._text = []
        self._call_began = False
        self._written = 0.0


def _closing(reply: Reply) -> Answer:
    """The reply to a request without tools as an answer, though it may have asked for tools all the same."""
    if isinstance(reply, Answer):
        return reply
    if reply.text.strip():
        return Answer((Text(reply.text, MODEL),), reply.reasoning)
    return Answer.by(PROGRAM, "[the round limit ended this turn; the model gave no summary]")
