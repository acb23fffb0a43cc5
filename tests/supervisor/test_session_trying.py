"""Dry runs in whole sessions: the model's and the user's own, with somebody to ask and with nobody."""

import re
from pathlib import Path

import msgspec
import pytest

from protocol.events import PermissionAnswered, PermissionAsked, ToolFinished
from supervisor.choices.tables import RulesChoices, SandboxChoices
from supervisor.permits.asking import Answer, Scope
from supervisor.rehearsal.script import Step
from tests.supervisor.asking import ScriptedAsker
from tests.supervisor.house import House, calling, command, house, say

DONE = Step(text="Done.")


def results(home: House) -> list[str]:
    return [str(line["content"]) for line in home.messages() if line["role"] == "tool"]


async def test_the_model_s_dry_run_is_applied_when_the_user_says_so(tmp_path: Path) -> None:
    asker = ScriptedAsker(Answer(Scope.ONCE, "fine"))
    line = "mkdir d; cd d; echo x > x"
    async with house(tmp_path, command(line, dry_run=True, why="it is risky"), command("pwd"), DONE) as home:
        async with home.session(asker=asker) as session:
            await say(session, "try")
    (question,) = asker.asked
    assert (question.subject, question.why) == (line, "it is risky")
    assert (question.yes, question.no) == ("apply", "discard")
    assert re.fullmatch(r"a dry run is over: exit 0 in [\d.]+ s, 0 lines; 2 created", question.reason)
    assert question.notes == ("created: d/", "created: d/x, 2 bytes")
    assert question.beside == ("created: d/",)
    assert not question.own
    assert "+x" in question.diff
    assert (home.workspace / "d/x").read_text() == "x\n"
    first, second = results(home)
    assert "the user wants this: it was applied to the workspace; they said: fine" in first
    assert second.strip() == str(home.workspace)
    (asked,) = [event for event in home.told if isinstance(event, PermissionAsked)]
    assert asked.choices == ("apply",)
    (answered,) = [event for event in home.told if isinstance(event, PermissionAnswered)]
    assert (answered.allowed, answered.by, answered.scope) == (True, "user", "once")
    assert answered.dry_run


async def test_what_was_discarded_is_not_run_for_real_in_the_same_turn(tmp_path: Path) -> None:
    asker = ScriptedAsker(Answer(None, "keep it"))
    async with house(
        tmp_path,
        command("rm -f keep", dry_run=True),
        command("rm -f keep"),
        DONE,
        command("rm -f keep"),
        DONE,
    ) as home:
        (home.workspace / "keep").touch()
        async with home.session(asker=asker) as session:
            await say(session, "try")
            assert (home.workspace / "keep").exists()
            await say(session, "now I mean it")
    assert "the user discarded this, the workspace is as it was: keep it" in results(home)[0]
    assert "the user discarded what it did in a dry run: keep it" in results(home)[1]
    assert not (home.workspace / "keep").exists()


async def test_where_nobody_is_there_it_is_discarded_and_the_result_says_what_to_do(tmp_path: Path) -> None:
    async with house(tmp_path, command("touch x", dry_run=True), DONE) as home:
        async with home.session() as session:
            await say(session, "try")
    assert not (home.workspace / "x").exists()
    assert "run the command without dry_run" in results(home)[0]
    (finished,) = [event for event in home.told if isinstance(event, ToolFinished)]
    assert finished.display.summary.endswith("1 created; discarded")


async def test_the_user_s_own_dry_run_is_known_to_the_model_only_where_it_was_applied(tmp_path: Path) -> None:
    asker = ScriptedAsker(Answer(None), Answer(Scope.ONCE))
    steps = (command("true"), DONE, command("true"), DONE)
    async with house(tmp_path, *steps) as home:
        async with home.session(asker=asker) as session:
            await session.try_command("touch discarded")
            await session.try_command("touch kept")
            await say(session, "go on")
            await say(session, "and on")
    assert all(question.own for question in asker.asked)
    assert [path.name for path in home.workspace.iterdir()] == ["kept"]
    notes = [str(line["content"]) for line in home.messages() if line["role"] == "user"]
    assert any("the user ran this themselves: touch kept; applied: 1 created" in note for note in notes)
    assert not any("discarded" in note for note in notes)


@pytest.mark.parametrize(
    ("arguments", "sandbox", "words"),
    [
        ({"background": True}, {}, "can't go on in the background"),
        ({"needs": ["unconfined"]}, {}, "an unconfined command can't be kept from the workspace"),
        ({}, {"mode": "read-only"}, "there is nothing to try"),
        ({}, {"mode": "unconfined"}, "nothing confines commands here"),
    ],
)
async def test_what_can_t_be_tried_is_refused_with_the_reason(
    tmp_path: Path, arguments: dict[str, object], sandbox: dict[str, str], words: str
) -> None:
    chosen = msgspec.convert(sandbox, SandboxChoices)
    async with house(tmp_path, command("touch x", dry_run=True, **arguments), DONE) as home:
        async with home.session(asker=ScriptedAsker(), sandbox=chosen) as session:
            await say(session, "try")
    assert words in results(home)[0]
    assert not (home.workspace / "x").exists()


async def test_rules_hold_for_dry_runs_too_and_a_chore_is_no_tool(tmp_path: Path) -> None:
    steps = (command("rm -rf x", dry_run=True), calling(("chore:apply", {"layered": True})), DONE)
    async with house(tmp_path, *steps) as home:
        async with home.session(rules=RulesChoices(deny=("run_command rm*",))) as session:
            await say(session, "try")
            await session.try_command("rm -rf x")
    refused, unknown = results(home)
    assert "forbids it" in refused
    assert "can't be the name of a tool" in unknown
