"""A session from its opening to its end: what is told, what is removed, how errors come out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from protocol.events import Notice, SessionStarted
from supervisor.exits import USAGE, StopError
from supervisor.model.endpoint import Endpoint, open_client
from supervisor.options import Continue, Fork, Resume
from supervisor.rehearsal.script import Status, Step
from supervisor.store.disk import StoreError
from supervisor.store.scratch import Scratch, sweep
from tests.supervisor.full_disk import full_disk
from tests.supervisor.house import House, command, house, say


def notices(home: House) -> list[str]:
    return [event.text for event in home.told if isinstance(event, Notice)]


async def test_a_session_in_which_nothing_was_said_leaves_no_conversation(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="Yes.")) as home:
        async with home.session() as session:
            await say(session, "hello")
        async with home.session():
            pass
        assert [entry.name for entry in (home.home / "sessions").iterdir()] == [session.id]
        async with home.session(Continue()) as again:
            assert again.id == session.id


async def test_a_task_that_got_no_reply_is_not_what_continue_goes_on_with(tmp_path: Path) -> None:
    refusal = Step(fault=Status(401, "no"))
    async with house(tmp_path, Step(text="Yes."), refusal) as home:
        async with home.session() as session:
            await say(session, "hello")
        async with home.session() as failed:
            await say(failed, "lost")
        async with home.session(Continue()) as again:
            assert again.id == session.id


async def say_on_a_full_disk(home: House) -> None:
    async with home.session() as session:
        with full_disk(0):
            await say(session, "hello")


async def test_a_failing_disk_comes_out_of_a_session_as_one_clear_error(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        with pytest.raises(StoreError, match="File too large"):
            await say_on_a_full_disk(home)
        (home.home / "tmp").rmdir()
        (home.home / "tmp").write_text("")
        with pytest.raises(StoreError, match="tmp: Not a directory"):
            async with home.session():
                pass
        assert list((home.home / "sessions").iterdir()) == []


async def test_a_conversation_that_goes_on_elsewhere_says_so(tmp_path: Path) -> None:
    async with house(tmp_path, Step(text="Yes.")) as home:
        async with home.session() as session:
            await say(session, "hello")
        before, home.workspace = home.workspace, tmp_path / "elsewhere"
        home.workspace.mkdir()
        async with home.session(Resume(session.id)):
            pass
        assert notices(home) == [
            f"this conversation was last held in {before}; tools now work in {home.workspace}"
        ]
        async with home.session(Fork(session.id)):
            pass
        assert len(notices(home)) == 1


async def test_our_own_key_in_the_words_of_a_background_job_is_masked(tmp_path: Path) -> None:
    key = "sk-test-0123456789abcdef0123"
    async with house(
        tmp_path, command(f"sleep 0.3; true {key}", background=True), Step(text="Done.")
    ) as home:
        async with home.session(key=key) as session:
            await say(session, "go")
            await home.heard(lambda event: isinstance(event, Notice) and "job ended" in event.text)
    assert any("masked" in notice for notice in notices(home))
    assert not any(key in notice for notice in notices(home))


KILLED = """
import os, sys
from pathlib import Path
from supervisor.store.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]), "aaaaaaaa")
(scratch.directory / "large").write_text("x")
print(scratch.directory, flush=True)
os.kill(os.getpid(), 9)
"""


def killed(home: Path) -> Path:
    """The temporary directory of a session that was killed."""
    command = [sys.executable, "-c", KILLED, str(home)]
    return Path(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip())


async def test_the_temporary_files_of_a_killed_session_are_gone_after_a_later_start(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.home.mkdir()
        left = killed(home.home)
        assert (left / "large").exists()
        living = Scratch(home.home, "bbbbbbbb")
        async with home.session() as session:
            while left.exists():
                await trio.sleep(0.01)
            assert living.directory.is_dir()
            (own,) = (home.home / "tmp").glob(f"{session.id}-*")
            sweep(home.home)
            assert own.is_dir()
        living.close()
        assert os.listdir(home.home / "tmp") == []


async def test_a_session_has_an_id_and_a_private_place_for_temporary_files(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.session() as session:
        (own,) = (home.home / "tmp").iterdir()
        assert own.stat().st_mode & 0o777 == 0o700
        (started,) = [event for event in home.told if isinstance(event, SessionStarted)]
        assert started.conversation == session.id


@pytest.mark.parametrize("proxy", ["socks9://user:secret@127.0.0.1:1", "socks5://user:secret@127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(StopError, match=re.escape("(HTTPS_PROXY, HTTP_PROXY or ALL_PROXY)")) as caught:
        open_client(Endpoint(base_url="https://api.example.com"))
    assert caught.value.exit_code == USAGE
    assert "secret" not in str(caught.value)
