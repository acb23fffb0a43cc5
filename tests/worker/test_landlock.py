"""The sandbox from inside: each refusal has a control that succeeds where nothing is confined."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from protocol.policy import Mode, Network, Rung, SandboxPolicy
from worker.sandbox import landlock

needs_landlock = pytest.mark.skipif(landlock.version() < 1, reason="this kernel offers no Landlock")

CONFINED = """
import subprocess, sys
import msgspec
from protocol.policy import Limits, Means, SandboxPolicy
from worker.sandbox.confine import confine
policy = msgspec.json.decode(sys.argv[1], type=SandboxPolicy)
confined = confine(policy, Limits(), Means.NONE, abi=int(sys.argv[2]) if sys.argv[2] else None)
assert not confined.ready.refuse_commands, confined.ready
sys.exit(subprocess.run(["/bin/bash", "-c", sys.argv[3]]).returncode)
"""


class Site:
    def __init__(self, root: Path) -> None:
        self.workspace, self.tmp, self.output, self.elsewhere = (
            root / name for name in ("workspace", "tmp", "output", "elsewhere")
        )
        for directory in (self.workspace, self.tmp, self.output, self.elsewhere):
            directory.mkdir()
        (self.workspace / "kept").write_text("kept\n")
        (self.output / "whole").write_text("whole\n")
        (self.elsewhere / "secret").write_text("secret\n")
        system = tuple(
            path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc", "/proc") if Path(path).exists()
        )
        self.readable = (*system, *{sys.prefix, sys.base_prefix})

    def policy(self, mode: Mode = Mode.WORKSPACE_WRITE, writable: tuple[str, ...] = ()) -> SandboxPolicy:
        return SandboxPolicy(
            str(self.workspace), mode, self.readable, writable, str(self.tmp), str(self.output)
        )

    def run(self, policy: SandboxPolicy, command: str, abi: int | None = None) -> int:
        """The exit code of a command under the policy."""
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                CONFINED,
                msgspec.json.encode(policy),
                "" if abi is None else str(abi),
                command,
            ],
            capture_output=True,
            cwd=Path(__file__).parents[2],
            check=False,
            env=os.environ
            | {
                "WS": str(self.workspace),
                "TMP": str(self.tmp),
                "OUT": str(self.output),
                "ELSE": str(self.elsewhere),
            },
        )
        return done.returncode


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


FORBIDDEN = (
    "echo x > $ELSE/new",
    "echo x >> $ELSE/secret",
    "cat $ELSE/secret",
    "ls $ELSE",
    "rm $ELSE/secret",
    "mkdir $ELSE/d",
    "mv $WS/kept $ELSE/moved",
    "ln $ELSE/secret $WS/linked",
    "ln -s $ELSE/secret $WS/to; cat $WS/to",
    "cat $WS/../elsewhere/secret",
    "truncate -s 0 $ELSE/secret",
    "echo x > $OUT/new",
    "kill -0 $CONTROL",
    "cat /proc/$CONTROL/environ",
)


@needs_landlock
@pytest.mark.parametrize("command", FORBIDDEN)
def test_a_command_can_t(site: Site, command: str) -> None:
    # A process of the same user outside of the sandbox.
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"]}) as other:
        try:
            command = command.replace("$CONTROL", str(other.pid))
            if "kill" in command and landlock.version() < 6:
                pytest.skip("this kernel's Landlock does not confine signals")
            assert site.run(site.policy(), command) != 0
            assert (site.elsewhere / "secret").read_text() == "secret\n"
            assert site.run(site.policy(Mode.UNCONFINED), command) == 0
        finally:
            other.kill()


@needs_landlock
@pytest.mark.parametrize(
    "command",
    [
        "echo x > $WS/new && cat $WS/new && mkdir $WS/d && mv $WS/new $WS/d/newer && rm -r $WS/d",
        "cat $WS/kept",
        "cat $OUT/whole",
        "echo x > $TMP/a && rm $TMP/a",
        "echo x > /dev/null && head -c 1 /dev/urandom > /dev/zero",
        "chmod +x $WS/kept && echo 'exit 0' > $WS/kept && $WS/kept",
        "cat /proc/self/stat > /dev/null && cat <(echo pipes)",
    ],
)
def test_a_command_can(site: Site, command: str) -> None:
    assert site.run(site.policy(), command) == 0


@needs_landlock
def test_a_read_only_policy_leaves_only_the_private_directory_and_devices_writable(site: Site) -> None:
    policy = site.policy(Mode.READ_ONLY, writable=(str(site.elsewhere),))
    assert site.run(policy, "echo x > $WS/new") != 0
    assert site.run(policy, "echo x > $ELSE/new") != 0
    assert site.run(policy, "cat $WS/kept $ELSE/secret && echo x > $TMP/new && echo x > /dev/null") == 0


@needs_landlock
def test_what_is_hidden_below_a_writable_directory_stays_closed(site: Site) -> None:
    (site.elsewhere / "mine").mkdir()
    policy = replace(site.policy(writable=(str(site.elsewhere),)), hidden=(str(site.elsewhere / "secret"),))
    assert site.run(policy, f"echo more > {site.elsewhere}/mine/file") == 0
    assert site.run(policy, f"cat {site.elsewhere}/secret") != 0
    assert site.run(policy, f"echo evil > {site.elsewhere}/secret") != 0
    assert site.run(policy, f"mv {site.elsewhere}/secret {site.elsewhere}/mine") != 0
    assert (site.elsewhere / "secret").read_text() == "secret\n"


@needs_landlock
def test_a_switch_of_the_machine_can_t_be_written_whatever_the_policy_says(site: Site) -> None:
    policy = site.policy(writable=("/", "/proc", "/sys"))
    assert site.run(policy, "[ -r /proc/sys/kernel/core_pattern ]") == 0
    assert site.run(policy, "[ -w /proc/sys/kernel/core_pattern ] && : >> /proc/sys/kernel/core_pattern") != 0


@needs_landlock
def test_no_program_elsewhere_is_given_its_owner_s_rights(site: Site) -> None:
    set_bit = f"cd {site.elsewhere} && chmod u+s secret"
    assert subprocess.run(["/bin/bash", "-c", set_bit], check=True).returncode == 0
    (site.elsewhere / "secret").chmod(0o755)
    assert site.run(site.policy(), set_bit) != 0
    assert site.run(site.policy(), "cd $WS && chmod +x kept && chmod 2755 kept && chmod 644 kept") == 0
    assert (site.elsewhere / "secret").stat().st_mode & 0o7777 == 0o755


@needs_landlock
def test_with_a_network_no_program_of_the_machine_can_be_told_what_to_do(site: Site) -> None:
    connect = (
        f"{sys.executable} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"../elsewhere/bus\")'"
    )
    policy = replace(site.policy(), network=Network.ON)
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind(str(site.elsewhere / "bus"))
        bus.listen()
        assert subprocess.run(["/bin/bash", "-c", connect], check=False, cwd=site.tmp).returncode == 0
        assert site.run(policy, f"cd $WS && {connect}") != 0
    assert site.run(policy, f"{sys.executable} -c 'import socket; socket.socket(socket.AF_INET)'") == 0


@needs_landlock
def test_a_further_writable_directory_and_a_single_file_can_be_written(site: Site) -> None:
    policy = site.policy(writable=(str(site.elsewhere / "secret"), "/no/such/place"))
    assert site.run(policy, "echo x > $ELSE/secret") == 0
    assert site.run(policy, "echo x > $ELSE/other") != 0


@needs_landlock
@pytest.mark.parametrize("abi", range(1, landlock.version() + 1))
def test_every_version_of_landlock_confines_writing(site: Site, abi: int) -> None:
    assert site.run(site.policy(), "echo x > $WS/new && cat $WS/kept", abi) == 0
    assert site.run(site.policy(), "echo x > $ELSE/new", abi) != 0


def test_older_versions_are_asked_for_no_right_that_they_don_t_know() -> None:
    assert landlock.handled(1) == 0b1_1111_1111_1111
    assert [landlock.handled(abi).bit_length() for abi in range(1, 8)] == [13, 14, 15, 15, 16, 16, 16]


def confined(policy: SandboxPolicy, abi: int) -> str:
    """What `confine` says, asked in a process of its own."""
    code = (
        "import sys, msgspec\nfrom protocol.policy import Limits, Means, SandboxPolicy\n"
        "from worker.sandbox.confine import confine\n"
        "policy = msgspec.json.decode(sys.argv[1], type=SandboxPolicy)\n"
        "confined = confine(policy, Limits(), Means.NONE, abi=int(sys.argv[2]))\n"
        "print(msgspec.json.encode(confined.ready).decode())"
    )
    return subprocess.run(
        [sys.executable, "-c", code, msgspec.json.encode(policy), str(abi)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    ).stdout


def test_without_landlock_commands_are_refused_with_the_reason(site: Site) -> None:
    said = confined(site.policy(), 0)
    assert f'"{Rung.OFF.value}"' in said
    words = "Landlock is not used here" if landlock.version() else "This kernel offers no Landlock"
    assert f'"refuse_commands":"{words}' in said


def test_an_unconfined_policy_says_so_and_refuses_nothing(site: Site) -> None:
    said = confined(site.policy(Mode.UNCONFINED), 0)
    assert "nothing is confined" in said
    assert '"refuse_commands":""' in said


@needs_landlock
def test_what_a_version_does_not_enforce_is_named(site: Site) -> None:
    old, new = confined(site.policy(), 1), confined(site.policy(), landlock.version())
    assert "can't be moved or linked" in old
    assert "can't be moved or linked" not in new or landlock.version() < 2
    assert "names, sizes and modes of files elsewhere can be seen" in new
    assert f'"{Rung.LANDLOCK.value}"' in new
