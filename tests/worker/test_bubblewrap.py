"""The mount plan executed by a real bwrap, where one is installed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from protocol.policy import Mode, Network, SandboxPolicy
from worker.sandbox import bubblewrap, namespaces
from worker.sandbox.bubblewrap import UnsuitableError, command, find, remedy
from worker.sandbox.plan import plan

_BWRAP = find()
_SYSTEM = (
    "/usr",
    "/etc",
    *(path for path in ("/lib", "/bin", "/lib64", "/sbin") if not Path(path).is_symlink()),
)


def runs(bwrap: str | None) -> bool:
    words = [bwrap or "false", "--unshare-user", "--ro-bind", "/", "/", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


needs_bwrap = pytest.mark.skipif(not runs(_BWRAP), reason="bwrap is not installed or may make no namespaces")


@pytest.fixture
def policy() -> Iterator[SandboxPolicy]:
    top = Path("/var/tmp") / f"polier-test-{os.getpid()}-{os.urandom(4).hex()}"
    for name in ("work space/.git", "work space/keys/deep", "tmp", "output", "elsewhere"):
        (top / name).mkdir(parents=True)
    workspace = top / "work space"
    (workspace / ".git/config").write_text("[core]\n")
    (workspace / ".env").write_text("TOKEN=sesame\n")
    (workspace / "keys/deep/key").write_text("sesame\n")
    (top / "elsewhere/secret").write_text("sesame\n")
    yield SandboxPolicy(
        str(workspace),
        readable=_SYSTEM,
        tmp=str(top / "tmp"),
        output=str(top / "output"),
        hidden=(str(workspace / ".env"), str(workspace / "keys")),
        protected=(str(workspace / ".git"),),
    )
    shutil.rmtree(top)


def run(
    policy: SandboxPolicy, script: str, *, own_processes: bool = True
) -> subprocess.CompletedProcess[str]:
    assert _BWRAP is not None
    steps = plan(policy, namespaces.look, namespaces.links_of_the_root())
    made = command(_BWRAP, steps, policy, ("/bin/bash", "-c", script), own_processes=own_processes)
    try:
        return subprocess.run(
            made.words, pass_fds=made.fds, capture_output=True, text=True, check=False, timeout=30
        )
    finally:
        bubblewrap.close(made.fds)


@needs_bwrap
@pytest.mark.parametrize(
    "script",
    [
        "echo x > new && cat new && rm new",
        "[ $(id -u) = " + str(os.geteuid()) + " ]",
        '[ ! -s .env ] && [ -z "$(ls keys)" ]',
        "echo x > /tmp/f && ls /var/tmp/f && echo x > /run/f && echo x > /dev/shm/f && echo x > /dev/null",
        "cat .git/config",
        "[ $$ = 1 ] && ls /proc/1/fd > /dev/null",
        "exec 3<>/dev/tcp/127.0.0.1/1 || [ $? = 1 ]",
        "grep -q CapEff:.0000000000000000 /proc/self/status",
    ],
)
def test_inside(policy: SandboxPolicy, script: str) -> None:
    done = run(policy, script)
    assert done.returncode == 0, done.stderr


@needs_bwrap
@pytest.mark.parametrize(
    "script",
    [
        "cat $PWD/../elsewhere/secret",
        "ls ../elsewhere",
        "echo x >> .git/config",
        "mv .git other",
        "rm -f .env; [ ! -e .env ]",
        "echo x > keys/new",
        "touch /new",
        "echo x > /usr/new",
        "echo x > /proc/sys/kernel/core_pattern",
        "mount -o remount,rw,bind /usr",
        "umount .git",
        "cat /root/.bashrc || cat ~/.bashrc",
        "[ $(ls -d /proc/[0-9]* | wc -l) -gt 5 ]",
    ],
)
def test_not_from_inside(policy: SandboxPolicy, script: str) -> None:
    assert run(policy, script).returncode != 0
    assert Path(policy.workspace, ".git/config").read_text() == "[core]\n"
    assert Path(policy.workspace, ".env").read_text() == "TOKEN=sesame\n"


@needs_bwrap
def test_read_only_and_a_network_that_is_on(policy: SandboxPolicy) -> None:
    read_only = msgspec.structs.replace(policy, mode=Mode.READ_ONLY)
    assert run(read_only, "echo x > new").returncode != 0
    own, shared = (
        run(msgspec.structs.replace(policy, network=network), "cat /proc/net/dev").stdout.count(":")
        for network in (Network.OFF, Network.ON)
    )
    assert own == 1
    assert shared >= own


@needs_bwrap
def test_without_a_pid_namespace_the_machine_s_proc_is_read_only(policy: SandboxPolicy) -> None:
    done = run(policy, "[ $$ != 1 ] && ! echo 0 > /proc/sys/kernel/core_pattern", own_processes=False)
    assert done.returncode == 0, done.stderr


def test_only_a_program_that_nobody_but_root_can_change_is_taken(tmp_path: Path) -> None:
    own = tmp_path / "bwrap"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o777)
    assert find((str(own), "/no/such/bwrap")) is None
    own.chmod(0o755)
    tmp_path.chmod(0o777)
    assert find((str(own),)) is None
    trusted = "/usr/bin/env"
    assert find((str(own), trusted)) == (trusted if Path(trusted).stat().st_uid == 0 else None)


def test_a_layer_is_refused(policy: SandboxPolicy) -> None:
    layered = msgspec.structs.replace(policy, layer=policy.tmp)
    with pytest.raises(UnsuitableError, match="layer"):
        command("/usr/bin/bwrap", plan(layered, namespaces.look), layered, ("true",))


def test_a_complaint_has_a_remedy() -> None:
    assert "apparmor-profiles" in remedy("bwrap: setting up uid map: Permission denied")
    assert "container" in remedy("bwrap: No permissions to create a new namespace, likely because ...")
    assert "/proc/sys/user" in remedy("bwrap: nesting depth or max_*_namespaces exceeded (ENOSPC)")
    assert remedy("bwrap: something else") == ""
