"""What a user changes of a session's sandbox while it is open: through real sessions and workers."""

from pathlib import Path

import pytest

from protocol.conversation import User
from protocol.permission import parse
from protocol.policy import Mode, Rung
from supervisor.choices.tables import SandboxChoices
from supervisor.exits import StopError
from supervisor.permits.asking import Answer, Scope
from supervisor.rehearsal.script import Step
from tests.supervisor.asking import ScriptedAsker
from tests.supervisor.house import House, calling, command, house

DONE = Step(text="Done.")


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    place = tmp_path / "beside"
    place.mkdir()
    return place


def results(home: House) -> list[str]:
    return [str(line["content"]) for line in home.messages() if line["role"] == "tool"]


async def test_a_mode_holds_from_the_next_call_on(tmp_path: Path, beside: Path) -> None:
    touch = f"touch {beside}/x; touch f"
    steps = [step for _ in range(3) for step in (command(touch), DONE)]
    async with house(tmp_path, *steps) as home, home.parts() as parts:
        assert parts.sandbox.mode is Mode.WORKSPACE_WRITE
        assert parts.sandbox.change_mode(Mode.READ_ONLY)
        await parts.session.say(User.says("touch"))
        assert not (home.workspace / "f").exists()
        assert parts.sandbox.change_mode(Mode.UNCONFINED)
        await parts.session.say(User.says("touch"))
        assert (beside / "x").exists()
        (beside / "x").unlink()
        assert parts.sandbox.change_mode(Mode.WORKSPACE_WRITE)
        found = await parts.sandbox.in_force()
        assert (found.mode, found.ready.rung) == (Mode.WORKSPACE_WRITE, Rung.FULL)
        await parts.session.say(User.says("touch"))
        assert not (beside / "x").exists()
        assert (home.workspace / "f").exists()


async def test_while_jobs_keep_the_earlier_worker_calls_have_the_new_mode_all_the_same(
    tmp_path: Path,
) -> None:
    steps = (
        command("sleep 60", background=True),
        DONE,
        command("touch f"),
        command("touch g; sleep 60", background=True),
        calling(("jobs", {"action": "stop", "id": "j1"})),
        command("touch h"),
        DONE,
    )
    async with house(tmp_path, *steps) as home, home.parts() as parts:
        await parts.session.say(User.says("job"))
        assert not parts.sandbox.change_mode(Mode.READ_ONLY)
        assert (await parts.sandbox.in_force()).behind
        await parts.session.say(User.says("write"))
        assert not (await parts.sandbox.in_force()).behind
        for name in "fgh":
            assert not (home.workspace / name).exists()
    assert "the user has changed the sandbox" in results(home)[2]


async def test_a_grant_that_is_taken_back_holds_no_more(tmp_path: Path, beside: Path) -> None:
    writing = command(f"touch {beside}/x", needs=[f"write:{beside}"])
    steps = (writing, DONE, command(f"touch {beside}/y"), DONE, writing, DONE)
    asker = ScriptedAsker(Answer(Scope.PROJECT), Answer(None))
    async with house(tmp_path, *steps) as home, home.parts(asker=asker) as parts:
        await parts.session.say(User.says("write"))
        found = await parts.sandbox.in_force()
        assert [one.permission for one in found.project] == [f"write:{beside}"]
        assert parts.sandbox.revoke("write:../beside") == (f"write:{beside}",)
        await parts.session.say(User.says("write"))
        assert not (beside / "y").exists()
        await parts.session.say(User.says("ask again"))
        assert len(asker.asked) == 2
        found = await parts.sandbox.in_force()
        assert (found.session, found.project) == ((), ())
        with pytest.raises(StopError, match="was not granted; granted: nothing"):
            parts.sandbox.revoke("write:/else")


async def test_all_is_taken_back_at_once_what_a_flag_gave_too(tmp_path: Path, beside: Path) -> None:
    async with (
        house(tmp_path, command(f"touch {beside}/x"), DONE) as home,
        home.parts(granted=(parse(f"write:{beside}"), parse("git-write"))) as parts,
    ):
        assert (await parts.sandbox.in_force()).given == (f"write:{beside}", "git-write")
        assert set(parts.sandbox.revoke("all")) == {f"write:{beside}", "git-write"}
        await parts.session.say(User.says("write"))
        assert not (beside / "x").exists()


async def test_where_the_settings_want_a_floor_unconfined_can_not_be_had(tmp_path: Path) -> None:
    async with (
        house(tmp_path) as home,
        home.parts(sandbox=SandboxChoices(require=Rung.LANDLOCK)) as parts,
    ):
        with pytest.raises(StopError, match=r"sandbox\.require is 'landlock'"):
            parts.sandbox.change_mode(Mode.UNCONFINED)
        assert parts.sandbox.mode is Mode.WORKSPACE_WRITE
