"""What is said, as a tree: a conversation has pairs, a pair has rounds, a round has calls and their results.

A wrong boundary between messages would make every later request illegal, so the shapes below can't hold
one: a closed pair always ends with an answer, and a round always has exactly one result per call, in the
order of the calls.  `flatten` turns the tree into the flat list that model APIs expect, `parse` builds it
again from messages in the order of their arrival.

    user -> (calls -> result per call -> note*)* -> answer

What is *not* here: how a message is written to disk (supervisor/store) or to a provider (supervisor/model).
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

USER = "user"
PROGRAM = "program"
MODEL = "model"
"""Authors.  A subagent's id is an author too, so an author is a `str`, not an enum."""


class Text(Struct, frozen=True, tag="text", tag_field="type"):
    """A piece of a message, and who wrote it."""

    text: str
    author: str


class Image(Struct, frozen=True, tag="image", tag_field="type"):
    """A picture in a message: its media type, and the name of the file that holds its bytes."""

    media_type: str
    name: str
    author: str


Part = Text | Image


class User(Struct, frozen=True, tag="user"):
    """The line that opens a pair: what stands in the user's place, in parts by their authors."""

    parts: tuple[Part, ...]

    @classmethod
    def says(cls, line: str) -> "User":
        return cls((Text(line, USER),))


class ToolCall(Struct, frozen=True):
    """The model's request to run a tool.

    `arguments` is the JSON text that is sent back to the provider, so it always parses; `problem` says why
    the model's own text could not be used, and such a call is never run.
    """

    id: str
    name: str
    arguments: str
    problem: str = ""


class Calls(Struct, frozen=True, tag="calls"):
    """A reply that asks for tools before it will answer.  `reasoning` is None where the reply had none."""

    calls: tuple[ToolCall, ...]
    text: str = ""
    reasoning: str | None = None

    def __post_init__(self) -> None:
        ids = [call.id for call in self.calls]
        if not ids or len(set(ids)) != len(ids):
            raise ValueError(f"a reply with calls needs distinct ids, at least one: {ids}")


class ToolResult(Struct, frozen=True, tag="result"):
    """What came of a call.  `failed` is for the screen and the counters; the model reads `text`."""

    call_id: str
    text: str
    failed: bool = False


class Note(Struct, frozen=True, tag="note"):
    """A line of role user that is handed in at a boundary between rounds."""

    parts: tuple[Part, ...]


class Answer(Struct, frozen=True, tag="answer"):
    """A reply that asks for nothing and so closes the pair.  It never is empty: servers refuse that."""

    parts: tuple[Part, ...]
    reasoning: str | None = None

    def __post_init__(self) -> None:
        if not plain(self.parts).strip():
            raise ValueError("an answer needs some text")

    @classmethod
    def by(cls, author: str, text: str) -> "Answer":
        return cls((Text(text, author),))


class Round(Struct, frozen=True):
    """A reply that called tools, one result per call in call order, and the notes that came after."""

    reply: Calls
    results: tuple[ToolResult, ...]
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        asked = [call.id for call in self.reply.calls]
        answered = [result.call_id for result in self.results]
        if asked != answered:
            raise ValueError(f"asked for {asked}, got results for {answered}")


class Pair(Struct, frozen=True):
    """One complete exchange.  `turn` is None for a pair without a turn (a summary, a merged report)."""

    user: User
    rounds: tuple[Round, ...]
    answer: Answer
    turn: int | None = None


class Conversation(Struct, frozen=True):
    """The closed pairs, oldest first.  A pair that is still open is held by `turn.OpenTurn`."""

    pairs: tuple[Pair, ...] = ()


Reply = Calls | Answer
Message = User | Calls | ToolResult | Note | Answer


class Parsed(Struct, frozen=True):
    """What `parse` found: closed pairs, and the messages of the one that was open, if any."""

    pairs: tuple[Pair, ...]
    open: tuple[Message, ...] = ()


class GrammarError(ValueError):
    """The messages can't be a conversation.  `index` is the place of the first one that can't stand there."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"message {index}: {why}")
        self.index = index


def plain(parts: Iterable[Part]) -> str:
    """The text of a message as one string: its parts, a blank line between them; a picture is named."""
    return "\n\n".join(p.text if isinstance(p, Text) else f"[picture {p.name}]" for p in parts)


def flatten(user: User, rounds: Sequence[Round], answer: Answer | None = None) -> list[Message]:
    """The exchange as a flat list of messages."""
    messages: list[Message] = [user]
    for done in rounds:
        messages += [done.reply, *done.results, *done.notes]
    return messages if answer is None else [*messages, answer]


def parse(messages: Sequence[Message], turns: Sequence[int | None] = ()) -> Parsed:
    """Closed pairs and the open remainder, from messages in order of arrival.

    `turns` holds the number of the turn of each message, where known.  Results may stand in any order
    after their calls.  Raises GrammarError where no conversation can have these messages.
    """
    pairs: list[Pair] = []
    start = 0
    for index, message in enumerate(messages):
        if isinstance(message, User) and index > start:
            _exchange(messages, start, index, whole=False)  # an earlier fault is the one to name
            raise GrammarError(index, "a user line before the pair is closed")
        if isinstance(message, Answer):
            user, rounds = _exchange(messages, start, index)
            turn = turns[start] if start < len(turns) else None
            pairs.append(Pair(user, rounds, message, turn))
            start = index + 1
    rest = tuple(messages[start:])
    if rest:
        _exchange(messages, start, len(messages), whole=False)
    return Parsed(tuple(pairs), rest)


def _exchange(
    messages: Sequence[Message], start: int, end: int, *, whole: bool = True
) -> tuple[User, tuple[Round, ...]]:
    """The user line and rounds of messages[start:end]; `whole`: each call must have its result."""
    user = messages[start]
    if not isinstance(user, User):
        raise GrammarError(start, "a pair begins with a user line")
    rounds: list[Round] = []
    at = start + 1
    while at < end:
        reply = messages[at]
        if not isinstance(reply, Calls):
            raise GrammarError(at, "expected a reply with calls")
        at, done = _round(messages, at, end, reply, whole)
        if done is not None:
            rounds.append(done)
    return user, tuple(rounds)


def _round(
    messages: Sequence[Message], at: int, end: int, reply: Calls, whole: bool
) -> tuple[int, Round | None]:
    """The round that starts at `at`, and the index after it; None for an open one that may be open."""
    open_ids = {call.id for call in reply.calls}
    results: dict[str, ToolResult] = {}
    notes: list[Note] = []
    at += 1
    while at < end:
        match messages[at]:
            case ToolResult(call_id=call_id) as result if call_id in open_ids:
                open_ids.discard(call_id)
                results[call_id] = result
            case Note() as note if not open_ids:
                notes.append(note)
            case Calls() if not open_ids:
                break
            case _:
                raise GrammarError(at, "neither a result of an open call nor a note after all results")
        at += 1
    if open_ids:
        if whole:
            raise GrammarError(at, f"calls without a result: {sorted(open_ids)}")
        return at, None
    return at, Round(reply, tuple(results[call.id] for call in reply.calls), tuple(notes))
