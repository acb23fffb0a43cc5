"""What a call may do, in whole sessions: real workers, a scripted model, and somebody (or nobody) to ask."""

import json
import os
import signal
from pathlib import Path

import pytest
import trio

from protocol.events import Notice, PermissionAnswered, PermissionAsked, ToolFinished
from protocol.permission import parse
from protocol.policy import Mode, Rung
from supervisor.choices.tables import RulesChoices, SandboxChoices
from supervisor.exits import StopError
from supervisor.options import Continue
from supervisor.permits.asking import Answer, Question, Scope
from supervisor.rehearsal.script import Step
from tests.supervisor.asking import ScriptedAsker
from tests.supervisor.house import House, calling, command, house, say

DONE = Step(text="Done.")


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A directory outside of the workspace."""
    (tmp_path / "beside").mkdir()
    return tmp_path / "beside"


def writing(path: Path, *needs: str, line: str = "echo x >> {}/file", **more: object) -> Step:
    return command(line.format(path), needs=list(needs), why="the test wants it", **more)


def answered(home: House) -> list[tuple[bool, str, str]]:
    return [
        (event.allowed, event.by, event.scope) for event in home.told if isinstance(event, PermissionAnswered)
    ]


def results(home: House) -> list[str]:
    return [str(line["content"]) for line in home.messages() if line["role"] == "tool"]


async def test_a_yes_for_once_lets_this_call_write_there_and_no_other(tmp_path: Path, beside: Path) -> None:
    asker = ScriptedAsker(Answer(Scope.ONCE))
    async with house(tmp_path, writing(beside, f"write:{beside}"), writing(beside), DONE) as home:
        async with home.session(asker=asker) as session:
            await say(session, "write")
    (question,) = asker.asked
    assert question.subject == f"echo x >> {beside}/file"
    assert question.permissions == (f"write:{beside}",)
    assert (question.why, question.agent, question.number) == ("the test wants it", "main", 1)
    assert question.cwd == str(home.workspace)
    assert question.scopes == (Scope.ONCE, Scope.SESSION, Scope.PROJECT)
    assert (beside / "file").read_text() == "x\n"
    assert answered(home) == [(True, "user", "once")]
    first, second = results(home)
    assert "exit code 0" in first
    assert "exit code 1" in second


async def test_a_yes_for_the_session_holds_for_all_later_commands(tmp_path: Path, beside: Path) -> None:
    asker = ScriptedAsker(Answer(Scope.SESSION))
    steps = (
        command("cd sub"),
        writing(beside, f"write:{beside}"),
        writing(beside),
        command("pwd"),
        writing(beside, f"write:{beside}/file"),
        DONE,
    )
    async with house(tmp_path, *steps) as home:
        (home.workspace / "sub").mkdir()
        async with home.session(asker=asker) as session:
            await say(session, "write")
    assert len(asker.asked) == 1
    assert (beside / "file").read_text() == "x\nx\nx\n"
    assert results(home)[3] == str(home.workspace / "sub")
    assert answered(home) == [(True, "user", "session"), (True, "grant", "session")]


async def test_a_grant_is_served_beside_living_jobs_and_widens_all_when_they_have_ended(
    tmp_path: Path, beside: Path
) -> None:
    steps = (
        command("until [ -e go ]; do sleep 0.02; done", background=True),
        writing(beside, f"write:{beside}"),
        writing(beside),
        writing(beside, f"write:{beside}"),
        calling(("jobs", {"action": "list"})),
        command("touch go"),
        calling(("jobs", {"action": "wait", "id": "j1", "timeout": 20})),
        writing(beside),
        DONE,
    )
    async with house(tmp_path, *steps) as home:
        async with home.session(asker=ScriptedAsker(Answer(Scope.SESSION))) as session:
            await say(session, "write")
    texts = results(home)
    assert "exit code 0" in texts[1]
    assert "exit code 1" in texts[2], "the main worker still is the old one"
    assert "exit code 0" in texts[3]
    assert "j1" in texts[4]
    assert "exit code 0" in texts[7]
    assert (beside / "file").read_text() == "x\nx\nx\n"


async def test_a_background_command_is_asked_about_for_the_session_and_becomes_a_job(
    tmp_path: Path, beside: Path
) -> None:
    asker = ScriptedAsker(Answer(Scope.SESSION))
    steps = (
        writing(beside, f"write:{beside}", background=True),
        command("sleep 300", background=True),
        writing(beside, f"write:{beside.parent}/other", background=True),
        DONE,
    )
    (beside.parent / "other").mkdir()
    async with house(tmp_path, *steps) as home:
        async with home.session(asker=ScriptedAsker(Answer(Scope.SESSION), Answer(Scope.SESSION))) as session:
            await say(session, "write")
    texts = results(home)
    assert texts[0].startswith("j1 ")
    assert "background jobs still run" in texts[2]
    assert asker.asked == []
    asked = [event.choices for event in home.told if isinstance(event, PermissionAsked)]
    assert asked == [("session", "project"), ("session", "project")]


async def test_unconfined_is_offered_for_once_only_and_is_written_down(tmp_path: Path, beside: Path) -> None:
    asker = ScriptedAsker(Answer(Scope.ONCE))
    steps = (
        writing(beside, "unconfined"),
        writing(beside),
        writing(beside, "unconfined", background=True),
        DONE,
    )
    async with house(tmp_path, *steps) as home:
        async with home.session(asker=asker) as session:
            await say(session, "write")
    assert asker.asked[0].scopes == (Scope.ONCE,)
    assert (beside / "file").read_text() == "x\n"
    first, second, third = results(home)
    assert "exit code 0" in first
    assert "exit code 1" in second
    assert "can't go on in the background" in third
    lines = [line for line in home.transcript() if line["kind"] == "permission"]
    assert [(line["subject"], line["permissions"], line["allowed"], line["by"]) for line in lines] == [
        (f"echo x >> {beside}/file", ["unconfined"], True, "user"),
        (f"echo x >> {beside}/file", ["unconfined"], False, "program"),
    ]


async def test_an_answer_that_was_not_offered_is_a_no(tmp_path: Path, beside: Path) -> None:
    async with house(tmp_path, writing(beside, "unconfined"), DONE) as home:
        async with home.session(asker=ScriptedAsker(Answer(Scope.PROJECT))) as session:
            await say(session, "write")
    assert "said no" in results(home)[0]
    assert not (beside / "file").exists()


async def test_a_no_is_about_what_was_asked_and_not_about_what_was_granted_before(
    tmp_path: Path, beside: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    asker = ScriptedAsker(Answer(Scope.SESSION), Answer(None))
    steps = (
        writing(beside, f"write:{beside}"),
        writing(beside, f"write:{beside}", f"write:{other}"),
        writing(beside, f"write:{beside}"),
        DONE,
    )
    async with house(tmp_path, *steps) as home:
        async with home.session(asker=asker) as session:
            await say(session, "write")
    first, second = asker.asked
    assert (first.permissions, second.permissions) == ((f"write:{beside}",), (f"write:{other}",))
    assert f"said no to write:{other}. Don't ask" in results(home)[1]
    assert (beside / "file").read_text() == "x\n" * 2, results(home)
    refused = [event for event in home.told if isinstance(event, PermissionAnswered) and not event.allowed]
    assert [event.permissions for event in refused] == [(f"write:{other}",)]


async def test_a_no_to_a_rule_s_question_holds_for_the_turn_though_its_needs_are_granted(
    tmp_path: Path, beside: Path
) -> None:
    asker = ScriptedAsker(Answer(Scope.SESSION), Answer(None))
    steps = (
        writing(beside, f"write:{beside}"),
        *[writing(beside, f"write:{beside}", line="touch {}/other")] * 2,
        writing(beside, f"write:{beside}"),
        DONE,
    )
    async with house(tmp_path, *steps) as home:
        async with home.session(asker=asker, rules=RulesChoices(ask=("run_command touch",))) as session:
            await say(session, "write")
    assert len(asker.asked) == 2
    assert "said no to this command" in results(home)[1]
    assert "said no to this command" in results(home)[2]
    assert (beside / "file").read_text() == "x\n" * 2, results(home)


async def test_a_no_reaches_the_model_with_the_user_s_words_and_is_not_asked_again_in_the_turn(
    tmp_path: Path, beside: Path
) -> None:
    asker = ScriptedAsker(Answer(None, "use build/"), Answer(None, "still no"))
    asking = writing(beside, f"write:{beside}")
    other = writing(beside, f"write:{beside}", line="touch {}/other")
    async with house(tmp_path, asking, other, DONE, asking, DONE) as home:
        async with home.session(asker=asker) as session:
            await say(session, "write")
            assert len(asker.asked) == 1
            await say(session, "again")
    assert len(asker.asked) == 2
    texts = results(home)
    assert f"said no to write:{beside}: use build/" in texts[0]
    assert texts[1] == texts[0]
    assert "still no" in texts[2]
    assert [end.status for end in home.told if isinstance(end, ToolFinished)] == ["refused"] * 3
    assert list(beside.iterdir()) == []


async def test_the_second_question_about_a_command_says_that_it_ran_before(
    tmp_path: Path, beside: Path
) -> None:
    asker = ScriptedAsker(Answer(Scope.ONCE))
    async with house(tmp_path, writing(beside), writing(beside, f"write:{beside}"), DONE) as home:
        async with home.session(asker=asker) as session:
            await say(session, "write")
    assert any("may have partly happened" in note for note in asker.asked[0].notes)


async def test_a_link_in_the_workspace_is_asked_about_as_what_it_is(tmp_path: Path, beside: Path) -> None:
    asker = ScriptedAsker(Answer(Scope.ONCE))
    async with house(tmp_path, writing(beside, "write:build"), DONE) as home:
        (home.workspace / "build").symlink_to(beside)
        async with home.session(asker=asker) as session:
            await say(session, "write")
    assert asker.asked[0].permissions == (f"write:{beside} (build leads there)",)


async def test_needs_that_mean_nothing_or_what_is_had_anyway_ask_nobody(tmp_path: Path, beside: Path) -> None:
    asker = ScriptedAsker()
    steps = (
        command("echo 1", needs=["admin"]),
        command("echo 2", needs=["write:sub", "read:/usr/bin"]),
        command("echo 3", needs=["write:/no/such/place"]),
        DONE,
    )
    async with house(tmp_path, *steps) as home:
        (home.workspace / "sub").mkdir()
        async with home.session(asker=asker) as session:
            await say(session, "go")
    first, second, third = results(home)
    assert "there are: read:PATH" in first
    assert second == "2"
    assert "does not exist" in third
    assert asker.asked == []


async def test_a_grant_for_the_project_holds_in_its_next_session(tmp_path: Path, beside: Path) -> None:
    asker = ScriptedAsker(Answer(Scope.PROJECT))
    async with house(tmp_path, writing(beside, f"write:{beside}"), DONE, writing(beside), DONE) as home:
        async with home.session(asker=asker) as session:
            await say(session, "write")
        async with home.session() as session:
            await say(session, "write again")
    assert (beside / "file").read_text() == "x\nx\n"
    (file,) = home.home.glob("projects/*/grants.json")
    assert [row["permission"] for row in json.loads(file.read_text())] == [f"write:{beside}"]


async def test_a_resume_loads_a_conversation_with_its_record_of_permissions(
    tmp_path: Path, beside: Path
) -> None:
    asker = ScriptedAsker(Answer(Scope.SESSION))
    async with house(tmp_path, writing(beside, f"write:{beside}"), DONE, writing(beside), DONE) as home:
        async with home.session(asker=asker) as session:
            await say(session, "write")
        async with home.session(Continue()) as session:
            assert len(session.pairs) == 1
            await say(session, "again")
    assert not [event for event in home.told if isinstance(event, Notice) and "left out" in event.text]
    assert "exit code 1" in results(home)[1], "a session's grant ends with the session"


async def test_where_nobody_can_be_asked_the_result_names_the_flag(tmp_path: Path, beside: Path) -> None:
    asking = writing(beside, f"write:{beside}")
    async with house(tmp_path, asking, DONE, asking, DONE) as home:
        async with home.session() as session:
            await say(session, "write")
        async with home.session(granted=(parse(f"write:{beside}"),)) as session:
            await say(session, "write")
    first, second = results_of_all(home)
    assert f"--allow write:{beside}" in first
    assert "exit code 0" in second
    assert answered(home) == [(False, "nobody", ""), (True, "flag", "session")]
    assert (beside / "file").read_text() == "x\n"


def results_of_all(home: House) -> list[str]:
    found: list[tuple[int, str]] = []
    for path in home.home.glob("sessions/*/myagent_conversation_*.jsonl"):
        lines = map(json.loads, path.read_text().splitlines())
        found += [(path.stat().st_mtime_ns, line["content"]) for line in lines if line.get("role") == "tool"]
    return [text for _, text in sorted(found)]


async def test_unconfined_by_flag_runs_without_a_question_and_is_written_down(
    tmp_path: Path, beside: Path
) -> None:
    async with house(tmp_path, writing(beside, "unconfined"), writing(beside), DONE) as home:
        async with home.session(granted=(parse("unconfined"),)) as session:
            await say(session, "write")
    first, second = results(home)
    assert "exit code 0" in first
    assert "exit code 1" in second, "it is for calls that ask for it"
    assert answered(home) == [(True, "flag", "session")]
    assert [line["by"] for line in home.transcript() if line["kind"] == "permission"] == ["flag"]


async def test_an_allow_for_a_place_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    async with house(tmp_path, DONE) as home:
        with pytest.raises(StopError, match=r"--allow: .*does not exist"):
            async with home.session(granted=(parse("write:/no/such/place"),)):
                pass


async def test_an_interrupt_takes_the_question_away_and_answers_the_call(
    tmp_path: Path, beside: Path
) -> None:
    asker = ScriptedAsker()
    async with house(tmp_path, writing(beside, f"write:{beside}"), command("echo next"), DONE) as home:
        async with home.session(asker=asker) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(say, session, "write")
                with trio.fail_after(10):
                    await asker.question()
                session.interrupt()
            assert asker.shown == []
            finished = await say(session, "go on")
            assert finished.text == "Done."
    assert "interrupted before it was allowed" in results(home)[0]
    assert answered(home) == [(False, "cancelled", "")]
    assert list(beside.iterdir()) == []


async def test_a_worker_killed_while_the_user_thinks_changes_nothing_about_the_answer(
    tmp_path: Path, beside: Path
) -> None:
    asker = ScriptedAsker()
    steps = (command("echo $PPID > pid; cut -d' ' -f4 /proc/$PPID/stat >/dev/null"), DONE,
             writing(beside, f"write:{beside}"), DONE)  # fmt: skip
    async with house(tmp_path, *steps) as home:
        async with home.session(asker=asker) as session:
            await say(session, "start")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(say, session, "write")
                with trio.fail_after(10):
                    await asker.question()
                for pid in workers_of(os.getpid()):
                    os.kill(pid, signal.SIGKILL)
                await home.heard(lambda event: isinstance(event, Notice) and "died" in event.text)
                asker.answer(Answer(Scope.SESSION))
    assert (beside / "file").read_text() == "x\n"


def workers_of(supervisor: int) -> list[int]:
    """Grandchildren: what the zygote has forked."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    return [pid for zygote in children.get(supervisor, []) for pid in children.get(zygote, [])]


async def test_less_than_what_is_required_stops_the_start_with_the_reason(tmp_path: Path) -> None:
    chosen = SandboxChoices(mode=Mode.UNCONFINED, require=Rung.LANDLOCK)
    async with house(tmp_path, DONE) as home:
        with pytest.raises(StopError, match=r"sandbox.require is 'landlock', but here the sandbox is 'off'"):
            async with home.session(sandbox=chosen):
                pass


async def test_unconfined_can_t_be_had_where_a_rung_is_required(tmp_path: Path, beside: Path) -> None:
    asker = ScriptedAsker()
    async with house(tmp_path, writing(beside, "unconfined"), DONE) as home:
        async with home.session(asker=asker, sandbox=SandboxChoices(require=Rung.LANDLOCK)) as session:
            await say(session, "write")
    assert "sandbox.require" in results(home)[0]
    assert asker.asked == []


async def test_a_session_without_confinement_says_so_once_at_its_start(tmp_path: Path, beside: Path) -> None:
    async with house(tmp_path, writing(beside, f"write:{beside}"), DONE) as home:
        async with home.session(sandbox=SandboxChoices(mode=Mode.UNCONFINED)) as session:
            await say(session, "write")
    warnings = [event.text for event in home.told if isinstance(event, Notice) and event.level == "warning"]
    assert [text for text in warnings if "the sandbox is off" in text] == [
        "the sandbox is off; commands may do all that you may do"
    ]
    assert (beside / "file").exists()
    assert answered(home) == []


async def test_a_question_s_texts_are_the_command_s_own(tmp_path: Path, beside: Path) -> None:
    def check(question: Question) -> Answer:
        assert question.tool == "run_command"
        return Answer(Scope.ONCE)

    async with house(tmp_path, writing(beside, f"write:{beside}"), DONE) as home:
        async with home.session(asker=ScriptedAsker(check)) as session:
            await say(session, "write")
    (asked,) = [event for event in home.told if isinstance(event, PermissionAsked)]
    assert asked.reason == "it needs more than the sandbox allows"
    assert asked.choices == ("once", "session", "project")


async def test_rules_of_the_settings_decide_before_anything_else(tmp_path: Path) -> None:
    rules = RulesChoices(
        allow=("run_command echo",), ask=("run_command touch",), deny=("run_command rm", "read_file secret*")
    )
    steps = (
        command("echo hello && rm -r sub"),
        command("echo a; touch b"),
        calling(("read_file", {"path": "secret.txt"})),
        command("echo hello"),
        DONE,
    )
    asker = ScriptedAsker(Answer(Scope.ONCE))
    async with house(tmp_path, *steps) as home:
        (home.workspace / "sub").mkdir()
        (home.workspace / "secret.txt").write_text("sesame")
        async with home.session(asker=asker, rules=rules) as session:
            await say(session, "go")
        assert (home.workspace / "sub").exists()
        assert (home.workspace / "b").exists()
    first, second, third, fourth = results(home)
    assert "the rule deny 'run_command rm'" in first
    assert second == "a"
    assert "sesame" not in third
    assert "the rule deny 'read_file secret*'" in third
    assert fourth == "hello"
    assert [question.subject for question in asker.asked] == ["echo a; touch b"]
    assert answered(home) == [(False, "rule", ""), (True, "user", "once"), (False, "rule", "")]
