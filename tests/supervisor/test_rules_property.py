"""No command that is allowed runs what no rule allows: made up at random, with bash as the witness."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.tools.run_command import RunCommand
from supervisor.choices.tables import RulesChoices
from supervisor.permits.judgement import Verdict
from supervisor.permits.rules import Where, judge
from tests.supervisor.bash_oracle import Witness, made_up
from worker.sandbox import landlock

pytestmark = pytest.mark.skipif(
    landlock.version() < 1, reason="made-up commands are run only where Landlock keeps them to a directory"
)

COMMANDS = 250
NAMES = (
    "ls", "cat", "echo", "env", "xargs", "timeout", "command", "time", "nohup", "sh", "bash", "eval", "exec",
    "trap", "find", ":", "true", "[", "export", "f",
)  # fmt: skip
LISTED = RulesChoices(allow=tuple(f"run_command {name}" for name in NAMES), deny=("run_command rm",))
FORBIDDEN = RulesChoices(deny=("run_command rm",))
WHERE = Where(workspace="/w", home="/home/u")

Judge = Callable[[RulesChoices, str], bool]
"""Whether the command may run without a question."""


def judged(rules: RulesChoices, command: str) -> bool:
    otherwise = Verdict.ASK if rules.allow else Verdict.NONE
    found = judge(rules, "run_command", RunCommand(command=command), WHERE, otherwise)
    return found.verdict in (Verdict.ALLOW, Verdict.NONE)


def escapes(place: Path, seed: int, may_run: Judge, commands: int = COMMANDS) -> Iterator[str]:
    """The commands that may run, and run what they may not."""
    source, witness = random.Random(seed), Witness(place)
    for _ in range(commands):
        command = made_up(source)
        listed, unforbidden = may_run(LISTED, command), may_run(FORBIDDEN, command)
        if listed or unforbidden:
            ran = witness.ran(command)
            if (listed and ran & {"rm", "curl"}) or (unforbidden and "rm" in ran):
                yield command


@pytest.mark.parametrize("seed", range(4))
def test_what_may_run_runs_nothing_else(tmp_path: Path, seed: int) -> None:
    assert list(escapes(tmp_path, seed, judged)) == []


def test_commands_are_allowed_often_enough_for_that_to_say_something() -> None:
    source = random.Random(5)
    allowed = sum(judged(LISTED, made_up(source)) for _ in range(COMMANDS))
    assert allowed > COMMANDS / 10


def by_first_word(rules: RulesChoices, command: str) -> bool:
    words = command.split()
    name = words[0] if words else ""
    return f"run_command {name}" in rules.allow if rules.allow else f"run_command {name}" not in rules.deny


def by_separators(rules: RulesChoices, command: str) -> bool:
    for separator in ("&&", "||", "|", "&", "\n"):
        command = command.replace(separator, ";")
    return all(by_first_word(rules, part) for part in command.split(";") if part.strip())


def by_search(rules: RulesChoices, command: str) -> bool:
    return by_separators(rules, command) and "$(" not in command and "`" not in command


@pytest.mark.parametrize("fault", [by_first_word, by_separators, by_search])
def test_a_judge_that_looks_less_closely_is_found_out(tmp_path: Path, fault: Judge) -> None:
    assert next(escapes(tmp_path, 1, fault, commands=2000), None) is not None
