"""One writer per conversation, with real processes: alive, killed, stopped."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.store.conversations import create, open_conversation
from supervisor.store.disk import StoreError
from supervisor.store.lock import Lock, LockedError

OWNER = """
import sys
from pathlib import Path
from protocol.conversation import Answer, User
from supervisor.store.conversations import open_conversation

opened = open_conversation(Path(sys.argv[1]), sys.argv[2])
number = opened.loaded.turn + 1
opened.transcript.message(User.says(f"turn {number}"), turn=number, round=None)
opened.transcript.message(Answer.by("model", "done"), turn=number, round=number)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def id_(home: Path) -> str:
    opened = create(home, Path("/w"), "key")
    opened.close()
    return opened.id


@contextmanager
def owner(home: Path, id_: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has opened the conversation, said one turn in it, and holds it."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(home), id_],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_with_the_owners_pid_and_the_way_to_a_copy(home: Path, id_: str) -> None:
    with owner(home, id_) as process:
        with pytest.raises(LockedError) as caught:
            open_conversation(home, id_)
        assert caught.value.owner is not None
        assert (caught.value.owner.pid, caught.value.owner.host) == (process.pid, socket.gethostname())
        assert f"in use by process {process.pid} since 20" in str(caught.value)
        assert f"agent --fork {id_}" in str(caught.value)


def test_a_dead_owners_lock_is_free_at_once_and_nothing_is_lost_or_doubled(home: Path, id_: str) -> None:
    for _ in range(2):
        with owner(home, id_) as process:
            process.kill()
            process.wait()
            open_conversation(home, id_).close()
    opened = open_conversation(home, id_)
    opened.close()
    assert [pair.turn for pair in opened.loaded.conversation.pairs] == [1, 2]
    assert opened.loaded.seq == 4
    assert opened.loaded.notices == ()


def test_a_stopped_owner_keeps_its_lock_and_is_said_to_be_stopped(home: Path, id_: str) -> None:
    with owner(home, id_) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(LockedError, match=f"stopped \\(kill -CONT {process.pid} wakes it\\)"):
            open_conversation(home, id_)


def test_a_child_of_the_owner_does_not_keep_the_lock(home: Path, id_: str) -> None:
    opened = open_conversation(home, id_)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        opened.close()
        opened.close()
        open_conversation(home, id_).close()
        child.kill()


def test_an_owner_elsewhere_or_unreadable_is_described_as_far_as_known(tmp_path: Path) -> None:
    held = Lock(tmp_path / "lock", "abc")
    (tmp_path / "lock").write_text('{"pid":7,"host":"elsewhere","since":"2026"}')
    with pytest.raises(LockedError, match="in use by process 7 on elsewhere since 2026;"):
        Lock(tmp_path / "lock", "abc")
    (tmp_path / "lock").write_text("garbage")
    with pytest.raises(LockedError, match="in use by another process;"):
        Lock(tmp_path / "lock", "abc")
    (tmp_path / "lock").write_text('{"pid":999999999,"host":"' + socket.gethostname() + '","since":"2026"}')
    with pytest.raises(LockedError, match="process 999999999 since 2026;"):
        Lock(tmp_path / "lock", "abc")
    held.release()


def test_a_lock_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreError, match="lock: Is a directory"):
        Lock(tmp_path / "lock", "abc")


def test_a_lock_that_cannot_be_signed_is_let_go(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # as on a full disk
    try:
        with pytest.raises(StoreError, match="lock: File too large"):
            Lock(tmp_path / "lock", "abc")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    Lock(tmp_path / "lock", "abc").release()
