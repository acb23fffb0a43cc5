"""An independent oracle for the grammar: a history is spelled as a word, a regular expression judges it.

    U user line      1 2 3 a reply with that many calls      0 calls that reuse an id of this turn
    r a result of a call that is open      x any other result      n note      A answer
    t untold() was called

Nothing here calls the product's own decisions: it only looks at the messages.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from protocol.conversation import Answer, Calls, Message, Note, ToolCall, ToolResult, User

_ROUND = "(?:1t*r|2t*rt*r|3t*rt*rt*r)n*t*"
_OPEN = "(?:1t*|2t*(?:rt*)?|3t*(?:rt*){0,2})"
TURN = re.compile(f"Ut*(?:{_ROUND})*(?:At*|{_OPEN})?")
"""Every beginning of a legal turn."""

_PLAIN_ROUND = "(?:[01]r|[02]rr|[03]rrr)n*"
_PLAIN_OPEN = "(?:[01]|[02]r?|[03]r{0,2})"
HISTORY = re.compile(f"(?:U(?:{_PLAIN_ROUND})*A)*(?:U(?:{_PLAIN_ROUND})*{_PLAIN_OPEN}?)?")
"""Every beginning of a legal sequence of pairs (`parse` lets ids come again in a later round)."""


@dataclass(frozen=True)
class Told:
    """Stands in a history where `untold` was called."""


Step = Message | Told

TOLD = Told()
ONE = Calls((ToolCall("a", "read_file", "{}"),))
TWO = Calls((ToolCall("b", "read_file", "{}"), ToolCall("c", "search", "{}")), "two", "why")
RESULTS = tuple(ToolResult(id_, f"result {id_}") for id_ in ("a", "b", "c", "unknown"))
NOTE = Note(User.says("and be quick").parts)
ANSWER = Answer.by("model", "done")
ALPHABET: tuple[Step, ...] = (ONE, TWO, *RESULTS, NOTE, ANSWER, TOLD)


def letters(history: Sequence[Step], *, reuse: bool) -> str:
    """The word of a history.  `reuse`: ids may come again, so `0` is never written."""
    return "".join(_letters(history, reuse))


def _letters(history: Sequence[Step], reuse: bool) -> Iterator[str]:
    open_ids: list[str] = []
    used: set[str] = set()
    for step in history:
        match step:
            case User():
                used = set()
                yield "U"
            case Calls():
                ids = [call.id for call in step.calls]
                again = not reuse and bool(used & set(ids))
                if not again and not open_ids:
                    open_ids = list(ids)
                used.update(ids)
                yield "0" if again else str(len(ids))
            case ToolResult():
                known = step.call_id in open_ids
                if known:
                    open_ids.remove(step.call_id)
                yield "r" if known else "x"
            case Note():
                yield "n"
            case Answer():
                yield "A"
            case Told():
                yield "t"
            case _ as never:
                assert_never(never)


def may_follow(history: Sequence[Step], step: Step) -> bool:
    """Whether this step is legal in a turn after this legal history."""
    return TURN.fullmatch(letters([*history, step], reuse=False)) is not None


def first_fault(messages: Sequence[Message]) -> int | None:
    """The index of the first message that can't stand where it stands, or None."""
    for end in range(1, len(messages) + 1):
        if HISTORY.fullmatch(letters(messages[:end], reuse=True)) is None:
            return end - 1
    return None


def in_call_order(history: Sequence[Step]) -> list[Message]:
    """The messages of a legal history, the results of each reply sorted into the order of its calls."""
    ordered: list[Message] = []
    place: dict[str, int] = {}
    waiting: list[tuple[int, ToolResult]] = []
    for step in history:
        match step:
            case ToolResult():
                waiting.append((place[step.call_id], step))
            case User() | Calls() | Note() | Answer():
                ordered += [result for _, result in sorted(waiting, key=first)]
                waiting = []
                ordered.append(step)
                if isinstance(step, Calls):
                    place = {call.id: index for index, call in enumerate(step.calls)}
            case Told():
                pass
    return [*ordered, *(result for _, result in sorted(waiting, key=first))]


def first(placed: tuple[int, ToolResult]) -> int:
    return placed[0]
