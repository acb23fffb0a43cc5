"""Births by each means: what a worker is in then, what it falls back to; and nothing of a birth is left."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol import control, wire
from protocol.policy import Limits, Means, Rung, SandboxPolicy
from tests.supervisor.pool_play import carrying
from tests.worker.test_zygote import BOOT, Asked
from worker.sandbox import bubblewrap

REFUSED = ("native", "bubblewrap")


def policy_of(root: Path) -> SandboxPolicy:
    for name in ("work", "tmp", "output"):
        (root / name).mkdir(exist_ok=True)
    readable = ["/usr", "/lib", "/lib64", "/bin", "/etc", sys.prefix, sys.base_prefix]
    readable += [entry for entry in sys.path if entry and os.path.isdir(entry)]
    readable += [str(Path(__file__).parents[2])]
    return SandboxPolicy(
        str(root / "work"),
        readable=tuple(dict.fromkeys(os.path.realpath(path) for path in readable)),
        tmp=str(root / "tmp"),
        output=str(root / "output"),
        environment=(("PATH", "/usr/bin:/bin"),),
    )


class Worker:
    def __init__(self, asked: Asked, policy: SandboxPolicy) -> None:
        self.wire, theirs = socket.socketpair()
        self.wire.settimeout(10)
        self.second, their_second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, their_second:
            asked.fork(theirs.fileno(), their_second.fileno(), policy=policy)
        forked, fds = asked.hear()
        if isinstance(forked, control.Exited):  # of one before
            forked, fds = asked.hear()
        assert isinstance(forked, control.Forked), forked
        self.pid, (self.pidfd,) = forked.pid, fds
        self.policy = policy
        self.frames = wire.Frames()
        self.wire.sendall(wire.encode(wire.Welcome(1, policy, Limits())))
        self.ready = self.hear(wire.Ready)

    def hear(self, kind: type) -> wire.ToSupervisor:
        while True:
            data = self.wire.recv(1 << 16)
            assert data, "the worker has closed its wire"
            for payload in self.frames.feed(data):
                message = wire.decode_to_supervisor(payload)
                if isinstance(message, kind):
                    return message

    def run(self, command: str) -> str:
        self.wire.sendall(wire.encode(wire.RunTool("a", "run_command", f'{{"command": "{command}"}}')))
        finished = self.hear(wire.ToolFinished)
        assert isinstance(finished, wire.ToolFinished)
        return finished.text

    def end(self) -> None:
        self.wire.close()
        self.second.close()
        os.close(self.pidfd)


@pytest.fixture
def zygotes() -> Iterator[list[Asked]]:
    found: list[Asked] = []
    yield found
    for asked in found:
        asked.control.close()
        asked.process.communicate(timeout=10)


def zygote(zygotes: list[Asked], *without: str) -> Asked:
    asked = Asked(without)
    zygotes.append(asked)
    assert isinstance(asked.hear()[0], control.ZygoteReady)
    return asked


def reached(worker: Worker) -> tuple[Rung, Means]:
    assert isinstance(worker.ready, wire.Ready)
    return worker.ready.rung, worker.ready.means


def probes(worker: Worker) -> dict[str, bool]:
    assert isinstance(worker.ready, wire.Ready)
    return {probe.name: probe.works for probe in worker.ready.probes}


@pytest.mark.parametrize("means", ["native", "bubblewrap"])
def test_a_worker_in_namespaces_is_their_first_process_and_sees_what_the_plan_shows(
    tmp_path: Path, zygotes: list[Asked], means: str
) -> None:
    if means == "bubblewrap" and bubblewrap.find() is None:
        pytest.skip("no bwrap here")
    worker = Worker(zygote(zygotes, *(["native"] if means == "bubblewrap" else [])), policy_of(tmp_path))
    assert reached(worker) == (Rung.FULL, Means(means))
    assert worker.run("echo $PPID; pwd; ls /home /root 2>&1 | head -2").startswith(f"1\n{tmp_path}/work\n")
    assert worker.run("touch made && touch /usr/made 2>&1").endswith("Read-only file system\n")
    assert (tmp_path / "work/made").exists()
    assert (
        os.readlink(f"/proc/{worker.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt") or means == "bubblewrap"
    )
    worker.end()


def test_without_a_pid_namespace_the_others_stay_and_it_is_said(tmp_path: Path, zygotes: list[Asked]) -> None:
    worker = Worker(zygote(zygotes, "processes"), policy_of(tmp_path))
    assert reached(worker) == (Rung.FULL, Means.NATIVE)
    assert isinstance(worker.ready, wire.Ready)
    assert "other processes and their command lines can be seen in /proc" in worker.ready.notes
    assert worker.run("echo $PPID") == f"{worker.pid}\n"
    worker.end()


def test_below_namespaces_there_is_landlock_and_below_that_commands_are_refused(
    tmp_path: Path, zygotes: list[Asked]
) -> None:
    worker = Worker(zygote(zygotes, *REFUSED), policy_of(tmp_path))
    assert reached(worker) == (Rung.LANDLOCK, Means.NONE)
    tried = probes(worker)
    assert not tried["native"]
    assert not tried["bubblewrap"]
    worker.end()
    worker = Worker(zygote(zygotes, *REFUSED, "landlock"), policy_of(tmp_path))
    assert reached(worker) == (Rung.OFF, Means.NONE)
    assert isinstance(worker.ready, wire.Ready)
    assert worker.ready.refuse_commands
    worker.end()


def test_a_worker_that_can_reach_the_machine_s_localhost_does_not_serve(
    tmp_path: Path, zygotes: list[Asked]
) -> None:
    # A kernel that says yes to a network of one's own, and gives none.
    planted = (
        "from worker.sandbox import kernel, namespaces; kernel.NEW_NETWORK = 0; "
        "namespaces.raise_loopback = lambda policy: None; "
    )
    asked = Asked(("bubblewrap",), boot=planted + BOOT)
    zygotes.append(asked)
    asked.hear()
    worker = Worker(asked, policy_of(tmp_path))
    assert isinstance(worker.ready, wire.Ready)
    assert worker.ready.rung is Rung.LANDLOCK
    assert "the machine's localhost could be reached" in worker.ready.probes[0].why
    worker.end()


def test_a_place_that_can_t_be_shown_lowers_only_this_birth(tmp_path: Path, zygotes: list[Asked]) -> None:
    asked = zygote(zygotes, "bubblewrap")
    good = policy_of(tmp_path)
    bad = replace(good, tmp=str(tmp_path / "gone"))
    worker = Worker(asked, bad)
    assert reached(worker) == (Rung.LANDLOCK, Means.NONE)
    assert isinstance(worker.ready, wire.Ready)
    assert "gone" in worker.ready.probes[0].why
    worker.end()
    worker = Worker(asked, good)
    assert reached(worker) == (Rung.FULL, Means.NATIVE)
    worker.end()


def test_once_there_were_namespaces_no_worker_is_born_without_them(
    tmp_path: Path, zygotes: list[Asked]
) -> None:
    asked, good = zygote(zygotes), policy_of(tmp_path)
    worker = Worker(asked, good)
    assert reached(worker) == (Rung.FULL, Means.NATIVE)
    worker.end()
    asked.hear()
    mine, theirs = socket.socketpair()
    with mine, theirs:
        asked.fork(theirs.fileno(), theirs.fileno(), policy=replace(good, tmp=str(tmp_path / "gone")))
    said, _ = asked.hear()
    assert isinstance(said, control.NotForked)
    assert "/gone: No such file or directory" in said.why
    worker = Worker(asked, good)
    assert reached(worker) == (Rung.FULL, Means.NATIVE)
    worker.end()


@pytest.mark.parametrize("means", ["native", "bubblewrap"])
def test_what_is_closed_can_t_be_moved_out_of_the_next_worker_s_sight(
    tmp_path: Path, zygotes: list[Asked], means: str
) -> None:
    if means == "bubblewrap" and bubblewrap.find() is None:
        pytest.skip("no bwrap here")
    asked, policy = zygote(zygotes, *(["native"] if means == "bubblewrap" else [])), policy_of(tmp_path)
    within = tmp_path / "work/a/b"
    (within / ".git").mkdir(parents=True)
    (within / ".env").write_text("secret")
    (within / ".git/config").write_text("[core]\n")
    policy = replace(policy, hidden=(f"{within}/.env",), protected=(f"{within}/.git",))
    worker = Worker(asked, policy)
    said = worker.run("mv a c 2>&1; mv a/b b 2>&1; echo new > a/b/new; mv a/b/new a/b/newer; ls a/b")
    assert said.count("Device or resource busy") == 2
    assert said.endswith("newer\n")
    worker.end()
    # Whoever else has moved it and left a link chooses nothing of what is mounted.
    (tmp_path / "work/a").rename(tmp_path / "work/c")
    (tmp_path / "work/a").symlink_to(tmp_path / "work/c")
    asked.hear()
    worker = Worker(asked, policy)
    assert reached(worker) == (Rung.FULL, Means(means))
    worker.end()


def test_paths_with_odd_characters_and_a_masked_and_a_protected_file(
    tmp_path: Path, zygotes: list[Asked]
) -> None:
    root = tmp_path / "a b\n\\,:é"
    root.mkdir()
    policy = policy_of(root)
    (root / "work/.env").write_text("secret")
    (root / "work/.git").mkdir()
    (root / "work/.git/config").write_text("[core]\n")
    policy = replace(
        policy, hidden=(f"{root}/work/.env",), protected=(f"{root}/work/.git",), writable=(f"{root}/gone",)
    )
    worker = Worker(zygote(zygotes), policy)
    assert reached(worker) == (Rung.FULL, Means.NATIVE)
    assert worker.run("cat .env; cat .git/config; mv .git g 2>&1; echo x > .git/config").startswith(
        "[core]\n"
    )
    assert (root / "work/.git/config").read_text() == "[core]\n"
    assert (root / "work/.env").read_text() == "secret"
    assert not (root / "gone").exists()
    worker.end()


def test_with_a_layer_the_workspace_stays_as_it_is(tmp_path: Path, zygotes: list[Asked]) -> None:
    policy = policy_of(tmp_path)
    (tmp_path / "work/old").write_text("old\n")
    (tmp_path / "layer").mkdir()
    worker = Worker(zygote(zygotes), replace(policy, layer=str(tmp_path / "layer")))
    assert reached(worker) == (Rung.FULL, Means.NATIVE)
    assert worker.run("cat old; echo new > old; echo more > more; cat old more") == "old\nnew\nmore\n"
    assert (tmp_path / "work/old").read_text() == "old\n"
    assert (tmp_path / "layer/upper/more").read_text() == "more\n"
    worker.end()


def test_a_program_that_listens_in_a_visible_place_can_t_be_reached(
    tmp_path: Path, zygotes: list[Asked]
) -> None:
    (tmp_path / "seen").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "seen/agent"))
        listener.listen()
        policy = policy_of(tmp_path)
        worker = Worker(zygote(zygotes), replace(policy, readable=(*policy.readable, str(tmp_path / "seen"))))
        assert (
            worker.run(f"[ -S {tmp_path}/seen/agent ] && echo reached; stat -c %s {tmp_path}/seen/agent")
            == "0\n"
        )
        worker.end()


def test_a_hundred_births_leave_nothing(tmp_path: Path, zygotes: list[Asked]) -> None:
    asked, policy = zygote(zygotes), policy_of(tmp_path)
    pid = asked.process.pid
    before = os.listdir(f"/proc/{pid}/fd")
    for _ in range(100):
        worker = Worker(asked, policy)
        worker.end()
        ended, _ = asked.hear()
        assert isinstance(ended, control.Exited)
        assert ended.pid == worker.pid
    assert len(os.listdir(f"/proc/{pid}/fd")) == len(before)
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""


@pytest.mark.parametrize("after", [0, 0.002, 0.004, 0.006, 0.008, 0.012, 0.02])
@pytest.mark.parametrize("victim", ["zygote", "newest"])
def test_whoever_is_killed_during_a_birth_nothing_is_left_of_it(
    tmp_path: Path, zygotes: list[Asked], after: float, victim: str
) -> None:
    asked, policy = Asked(mark=str(tmp_path)), policy_of(tmp_path)
    zygotes.append(asked)
    asked.hear()
    mine, theirs = socket.socketpair()
    with mine, theirs:
        asked.fork(theirs.fileno(), theirs.fileno(), policy=policy)
    time.sleep(after)
    pid = asked.process.pid
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    if victim == "zygote":
        asked.process.kill()
        asked.process.wait(10)
    else:
        for child in below:
            os.kill(child, signal.SIGKILL)
        asked.process.terminate()
        asked.process.wait(10)
    # All forks of the zygote have its arguments.
    deadline = time.monotonic() + 5
    while left := carrying(str(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.005)
