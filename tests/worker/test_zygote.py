"""The zygote, asked by hand."""

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import control, wire
from protocol.policy import Limits, Mode, SandboxPolicy
from worker import zygote

CHECKOUT = Path(__file__).parents[2]
UNCONFINED = SandboxPolicy(str(CHECKOUT), Mode.UNCONFINED)
BOOT = f"import sys; from {zygote.__name__} import main; main(sys.argv[1:5])"


class Asked:
    """`fork(wire, second)` asks for an unconfined worker, but where another policy is given."""

    def __init__(self, without: tuple[str, ...] = (), mark: str = "", boot: str = BOOT) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(10)
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    boot,
                    str(theirs.fileno()),
                    "tests.worker.plain_tools",
                    "",
                    ",".join(without),
                    mark,
                ],
                cwd=CHECKOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                stderr=subprocess.PIPE,
            )

    def hear(self) -> tuple[control.FromZygote, list[int]]:
        payload, fds, _, _ = socket.recv_fds(self.control, 4096, 1)
        return control.decode_from_zygote(payload), list(fds)

    def fork(self, *fds: int, policy: SandboxPolicy = UNCONFINED) -> None:
        with tempfile.TemporaryFile() as birth:
            birth.write(control.encode_birth(control.Birth(policy, Limits())))
            birth.seek(0)
            self.ask(*fds, birth.fileno())

    def ask(self, *fds: int) -> None:
        socket.send_fds(self.control, [control.encode_control(control.Fork(1))], fds)


@pytest.fixture
def asked() -> Iterator[Asked]:
    found = Asked()
    yield found
    found.control.close()
    found.process.communicate(timeout=10)


def test_a_fork_gives_the_worker_s_pid_and_pidfd_and_its_end_is_reported(asked: Asked) -> None:
    assert asked.hear() == (control.ZygoteReady(asked.process.pid), [])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asked.fork(theirs.fileno(), theirs.fileno())
        forked, (pidfd,) = asked.hear()
        assert isinstance(forked, control.Forked)
        theirs.close()
        assert isinstance(wire.decode_to_supervisor(ours.recv(4096)[wire.HEADER :]), wire.Hello)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
        assert asked.hear() == (control.Exited(forked.pid, -signal.SIGKILL), [])
        # Everything that the worker had of the wire is gone with it: no copy stayed in the zygote.
        assert ours.recv(4096) == b""


def told(worker: socket.socket, command: str) -> str:
    """What the worker, which has said hello, answers to this command."""
    welcome = wire.Welcome(1, UNCONFINED, Limits())
    call = wire.RunTool("a", "run_command", f'{{"command": "{command}"}}')
    worker.sendall(wire.encode(welcome) + wire.encode(call))
    frames = wire.Frames()
    while True:
        data = worker.recv(1 << 16)
        assert data, "the worker has closed its wire"
        for payload in frames.feed(data):
            message = wire.decode_to_supervisor(payload)
            if isinstance(message, wire.ToolFinished):
                return message.text


def test_workers_know_nothing_of_each_other(asked: Asked) -> None:
    asked.hear()
    ours: list[socket.socket] = []
    for _ in range(2):
        mine, theirs = socket.socketpair()
        ours.append(mine)
        with theirs:
            asked.fork(theirs.fileno(), theirs.fileno())
        forked, (pidfd,) = asked.hear()
        os.close(pidfd)
        assert isinstance(forked, control.Forked)
        assert mine.recv(4096)
    # A worker can't be looked at from outside, but by root: it says itself what it holds.
    links = told(ours[-1], "!links").split("\n")
    assert sorted(link.partition(":")[0] for link in links if "[" in link) == [
        "pipe",
        "pipe",
        "socket",
        "socket",
    ]
    for mine in ours:
        mine.close()
        assert isinstance(asked.hear()[0], control.Exited)


def test_a_fork_without_its_descriptors_is_refused(asked: Asked) -> None:
    asked.hear()
    asked.ask()
    message, _ = asked.hear()
    assert message == control.NotForked(1, "a fork needs 3 descriptors, 0 came")


def test_a_zygote_has_one_thread_and_none_of_the_supervisor_s_libraries(asked: Asked) -> None:
    asked.hear()
    assert len(os.listdir(f"/proc/{asked.process.pid}/task")) == 1
    maps = Path(f"/proc/{asked.process.pid}/maps").read_text()
    assert "_ssl" not in maps


def test_a_zygote_that_has_no_descriptor_left_for_a_worker_s_pidfd_forks_none(asked: Asked) -> None:
    asked.hear()
    pid = asked.process.pid
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = [number for number in range(max(taken) + 4) if number not in taken]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # Room for the three that come, and for its line to a newborn.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[4], before[1]))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asked.fork(theirs.fileno(), theirs.fileno())
        refused, _ = asked.hear()
        assert isinstance(refused, control.NotForked)
        assert "Too many open files" in refused.why
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        asked.fork(theirs.fileno(), theirs.fileno())
        forked, (pidfd,) = asked.hear()
        os.close(pidfd)
        assert isinstance(forked, control.Forked)


def test_a_zygote_that_is_told_to_end_again_and_again_still_ends_in_order(asked: Asked) -> None:
    asked.hear()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asked.fork(theirs.fileno(), theirs.fileno())
        _, (pidfd,) = asked.hear()
        os.close(pidfd)
        while asked.process.poll() is None:
            asked.process.terminate()
        assert asked.process.returncode == 0
        assert b"Traceback" not in asked.process.communicate()[1]


@pytest.mark.parametrize("way", ["closed", "garbage", "SIGTERM"])
def test_a_zygote_leaves_when_it_is_of_no_use_any_more(asked: Asked, way: str) -> None:
    asked.hear()
    match way:
        case "closed":
            asked.control.close()
        case "garbage":
            asked.control.send(b"\xc1")
        case _:
            asked.process.terminate()
    assert asked.process.wait(10) == 0
