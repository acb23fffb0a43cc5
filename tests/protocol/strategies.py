"""Hypothesis strategies for what is said."""

from hypothesis import strategies as st

from protocol.conversation import (
    Answer,
    Calls,
    Image,
    Message,
    Note,
    Pair,
    Part,
    Round,
    Text,
    ToolCall,
    ToolResult,
    User,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
authors = st.sampled_from(["user", "program", "model", "agent-7"])
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, texts, authors), st.builds(Image, st.just("image/png"), st.just("p.png"), authors)
)
part_tuples = st.lists(parts, min_size=1, max_size=3).map(tuple)
users = st.builds(User, part_tuples)
notes = st.builds(Note, part_tuples)
answers = st.builds(
    lambda text, more, reasoning: Answer((Text(text, "model"), *more), reasoning),
    texts.filter(lambda text: bool(text.strip())),
    st.lists(parts, max_size=2),
    st.none() | texts,
)
ids = st.sampled_from([f"call_{number}" for number in range(6)])


def calls_of(names: list[str], text: str, reasoning: str | None) -> Calls:
    return Calls(tuple(ToolCall(name, "read_file", "{}") for name in names), text, reasoning)


calls = st.builds(
    calls_of, st.lists(ids, min_size=1, max_size=3, unique=True), texts, st.none() | st.just("thinking")
)
results = st.builds(ToolResult, ids, texts, st.booleans())


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    reply = draw(calls)
    answered = tuple(ToolResult(call.id, draw(texts), draw(st.booleans())) for call in reply.calls)
    return Round(reply, answered, tuple(draw(st.lists(notes, max_size=2))))


pairs = st.builds(Pair, users, st.lists(rounds(), max_size=3).map(tuple), answers, st.none() | st.integers(1))
messages: st.SearchStrategy[Message] = st.one_of(users, calls, results, notes, answers)
