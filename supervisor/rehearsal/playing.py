"""One conversation of the scripted server: which step answers which request.  No I/O.

A request that is refused takes no step, so a client that sends a bad one and mends it goes on where it was.
"""

from collections import deque

from msgspec import Struct

from supervisor.rehearsal import streaming
from supervisor.rehearsal.cache import PromptCache, extended
from supervisor.rehearsal.grammar import canonical
from supervisor.rehearsal.refusal import Refusal, RefusedError, refuse
from supervisor.rehearsal.script import Script, Step
from supervisor.rehearsal.validation import Accepted, Prefix, check

SHOWN = 200
"""Characters of a message that a failed expectation quotes."""


class Play(Struct, frozen=True):
    """What is sent for one request."""

    step: Step
    number: int
    """Of the step, from 1."""
    stream: bool
    events: list[bytes]
    whole: bytes


class Playing:
    """A script in progress.  `cache` is shared by all conversations of a server, as it is by an account."""

    def __init__(self, name: str, script: Script, cache: PromptCache) -> None:
        self.name = name
        self.script = script
        self.played = 0
        self._cache = cache
        self._steps = deque(script.steps)
        self._case: deque[Step] = deque()
        self._body = b""
        self._last = script.steps[-1] if script.steps and script.repeat_last else None
        self._prefix = Prefix()

    @property
    def left(self) -> int:
        """Steps that no request has taken yet."""
        return len(self._steps)

    def answer(self, body: bytes, authorization: str) -> Play:
        """The next step as bytes.  Raises RefusedError."""
        accepted = check(body, authorization, self.script, self._prefix)
        step = self._next(accepted, again=body == self._body)
        self._body = body
        self.played += 1
        hit = self._cache.request(accepted.marks)
        calls = streaming.calls_of(step)
        mark = accepted.marks[-1]
        usage = streaming.usage_of(step, calls, mark.tokens, hit)
        if step.fault is None:
            self._cache.reply(extended(mark, canonical(streaming.message_of(step, calls))))
        model = accepted.options.model
        stream = accepted.options.stream
        events = streaming.events_of(step, calls, usage, model) if stream else []
        whole = b"" if stream else streaming.whole_of(step, calls, usage, model)
        return Play(step, self.played, stream, events, whole)

    def _next(self, accepted: Accepted, *, again: bool) -> Step:
        """Takes the step.  Raises RefusedError where there is none, or where it expects another message.

        `again`: the request is the last one once more, a try after a fault.
        """
        if not self._steps and accepted.last_role == "user" and not (again and self._case):
            said = accepted.last_text.lower()
            fitting = (case for case in self.script.cases if case.match.lower() in said)
            # What is left of a case that a turn did not play to its end is over with that turn.
            self._case = deque(next((case.steps for case in fitting), ()))
        queue = self._steps or self._case
        step = queue[0] if queue else self._last
        if step is None:
            raise RefusedError(
                Refusal(
                    f"the script {self.name!r} is used up: its {self.played} steps are played",
                    500,
                    "scripted_server_error",
                    "script_used_up",
                )
            )
        if step.expect not in accepted.last_text:
            raise refuse(
                f"the script {self.name!r} expects the last message to contain {step.expect!r} at step "
                f"{self.played + 1}; it is {accepted.last_text[:SHOWN]!r}"
            )
        if queue:
            queue.popleft()
        return step
