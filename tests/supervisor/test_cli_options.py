"""The two parsers of the command line, which share one table, say the same; and what they refuse."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor import commands
from supervisor.exits import USAGE, StopError
from supervisor.options import (
    BARE_OPTIONS,
    RUN_OPTIONS,
    Continue,
    Fork,
    Kind,
    New,
    ReplOptions,
    Resume,
    RunOptions,
    plain_bare,
    plain_run,
    with_resumed,
)

Parsed = RunOptions | ReplOptions | str
"""What a parser made of a line; a text is the words of its refusal."""


def words_of(stop: StopError) -> str:
    assert stop.exit_code == USAGE
    return str(stop)


def by_typer(arguments: list[str]) -> Parsed:
    seen: list[Parsed] = []

    def see(options: RunOptions | ReplOptions) -> int:
        seen.append(options)
        return 0

    try:
        commands.play(arguments, see, see)
    except StopError as stop:
        return words_of(stop)
    return seen[0]


def plainly(parse: Callable[[list[str]], Parsed | None], arguments: list[str]) -> Parsed | None:
    try:
        return parse(arguments)
    except StopError as stop:
        return words_of(stop)


VECTORS = [
    [],
    ["task"],
    ["-"],
    ["--json", "task"],
    ["task", "--json", "--timeout", "2.5"],
    ["--timeout=3", "--max-tool-rounds=7", "task"],
    ["--timeout", "0", "task"],
    ["--timeout", "nan", "task"],
    ["--timeout", "soon", "task"],
    ["--timeout", "-1", "task"],
    ["--max-tool-rounds", "0", "task"],
    ["--max-tool-rounds", "1.5", "task"],
    ["--max-tool-rounds", "12", "task"],
    ["--file", "f.md"],
    ["--file", "f.md", "task"],
    ["--file", ""],
    ["--continue", "task"],
    ["--continue", "--resume", "ab", "task"],
    ["--resume", "ab", "task"],
    ["--fork=ab", "task"],
    ["--model", "a", "--model", "b", "task"],
    ["--base-url", "http://127.0.0.1:1/v1", "--workspace", "/tmp", "task"],
    ["--workspace", "", "task"],
    ["--json=yes", "task"],
    ["--jso", "task"],
    ["--nope", "task"],
    ["--model"],
    ["--model", "--json", "task"],
    ["one", "two"],
    ["--", "--task"],
    ["-x", "task"],
    ["täsk mit ❯"],
    ["--allow", "git-write", "task", "--allow=run_command git push*"],
    ["--allow", "", "task"],
    ["--sandbox=read-only", "task"],
    ["--sandbox=", "task"],
]


@pytest.mark.parametrize("arguments", VECTORS, ids=" ".join)
def test_the_plain_parser_of_run_agrees_with_the_other_or_steps_back(arguments: list[str]) -> None:
    plain = plainly(plain_run, arguments)
    assert plain is None or plain == by_typer(["run", *arguments])


WORDS = [option.flag for option in RUN_OPTIONS] + [
    "task",
    "7",
    "2.5",
    "-",
    "--timeout=4",
    "--help-me",
    "--resume=x",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=5))
def test_no_line_is_read_in_two_ways(words: list[str]) -> None:
    plain = plainly(plain_run, words)
    assert plain is None or plain == by_typer(["run", *words])
    flags = [word for word in words if word != "task"]
    bare = plainly(lambda line: plain_bare(with_resumed(line)), flags)
    assert bare is None or bare == by_typer(flags)


def test_the_plain_parser_takes_every_option_of_the_table() -> None:
    sample = {Kind.TEXT: ["x"], Kind.SECONDS: ["1"], Kind.COUNT: ["1"], Kind.SWITCH: [], Kind.WORDS: ["x"]}
    for option in RUN_OPTIONS:
        task = [] if option.field == "file" else ["task"]
        assert plain_run([option.flag, *sample[option.kind], *task]) not in (None, RunOptions(task="task"))
    for option in BARE_OPTIONS:
        assert plain_bare([option.flag, *sample[option.kind]]) not in (None, ReplOptions())


def test_what_is_allowed_may_be_said_more_than_once() -> None:
    arguments = ["--allow", "git-write", "--allow", "read:/x"]
    assert plain_bare(arguments) == ReplOptions(allow=("git-write", "read:/x")) == by_typer(arguments)


def test_an_empty_word_allows_nothing() -> None:
    with pytest.raises(StopError, match="--allow is empty"):
        plain_run(["--allow", " ", "task"])


def test_where_a_conversation_starts_is_one_of_four() -> None:
    assert plain_bare([]) == ReplOptions(start=New())
    assert plain_bare(["--continue"]) == ReplOptions(start=Continue())
    assert plain_bare(["--resume", "ab"]) == ReplOptions(start=Resume("ab"))
    assert plain_bare(["--fork", "ab"]) == ReplOptions(start=Fork("ab"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--resume"], ["--continue"]),
        (["--resume", "--model", "m"], ["--continue", "--model", "m"]),
        (["--resume", "ab"], ["--resume", "ab"]),
        (["--model", "m"], ["--model", "m"]),
    ],
)
def test_resume_without_an_id_means_the_newest(given: list[str], meant: list[str]) -> None:
    assert with_resumed(given) == meant


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--nope", "x"], "--nope"),
        (["run", "--continue", "--fork", "a", "x"], "exclude each other"),
        (["run", "x", "--file", "y"], "exclude each other"),
        (["run"], "no task"),
        (["run", "--timeout", "soon", "x"], "--timeout"),
        (["--model", "m", "run", "x"], "belongs after `run`"),
        (["frobnicate"], "frobnicate"),
        (["sessions", "--some"], "--some"),
    ],
)
def test_a_usage_error_is_one_line_that_names_it(arguments: list[str], words: str) -> None:
    said = by_typer(arguments)
    assert isinstance(said, str)
    assert words in said
    assert "\n" not in said
