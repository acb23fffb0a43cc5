"""What must fail is tried: each canary finds the one wall that is missing, and none where all stand."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from protocol.policy import Network, Rung, SandboxPolicy
from worker.sandbox import canaries, landlock, seccomp
from worker.sandbox.canaries import Walls

_ROOT = Path(__file__).parents[2]
needs_all_walls = pytest.mark.skipif(
    landlock.version() < landlock.SCOPES_SINCE or seccomp.processor() is None,
    reason="this machine has no complete Landlock or no filter",
)

PLAYED = """
import json, os, sys
import msgspec
from protocol.policy import Limits, Means, Rung, SandboxPolicy
from worker.sandbox import canaries, landlock, prctl, seccomp
from worker.sandbox.confine import confine
policy = msgspec.json.decode(sys.argv[1], type=SandboxPolicy)
missing = sys.argv[2].split("+")
abi = landlock.version()
outsiders = canaries.outsiders()
if "capabilities" not in missing:
    prctl.keep_capabilities((prctl.DAC_OVERRIDE,))
prctl.gain_no_privileges()
made = seccomp.rules(Rung.LANDLOCK, policy.network, abi)
main = seccomp.Filter(seccomp.program(seccomp.processor(), made))
rights = landlock.handled(abi)
scopes = landlock.SCOPE_ABSTRACT | landlock.SCOPE_SIGNAL
if "signals" in missing:
    scopes = 0
given = list(landlock.rules(policy, Rung.LANDLOCK, rights))
if "files" in missing:
    given.append(("/", rights))
if "landlock" not in missing:
    landlock.Ruleset(rights, given, abi=abi, scopes=scopes).enter()
if "filter" not in missing:
    main.install()
print(json.dumps(canaries.leaks(canaries.Walls(policy, Rung.LANDLOCK, abi, True, outsiders))))
"""

CONFINED = """
import sys
import msgspec
from protocol.policy import Limits, Means, SandboxPolicy
from worker.sandbox.canaries import LeakError
from worker.sandbox.confine import confine
policy = msgspec.json.decode(sys.argv[1], type=SandboxPolicy)
try:
    print(confine(policy, Limits(), Means(sys.argv[2]), listener=int(sys.argv[3])).ready)
except LeakError as error:
    print("LEAKS", error)
"""


class Site:
    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("home/workspace", "state/tmp/session", "state/output", "state/keys"):
            (top / name).mkdir(parents=True)
        (top / "state/keys/secret").write_text("sesame\n")
        self.policy = SandboxPolicy(
            str(top / "home/workspace"),
            readable=("/usr", "/bin", "/lib", "/lib64", "/proc", sys.prefix, sys.base_prefix),
            tmp=str(top / "state/tmp/session"),
            output=str(top / "state/output"),
            hidden=(str(top / "state"), str(top / "state/keys/secret"), "/etc/shadow"),
        )

    def leaks(self, missing: str, policy: SandboxPolicy | None = None) -> str:
        return " | ".join(json.loads(played(PLAYED, policy or self.policy, missing)))


def played(code: str, policy: SandboxPolicy, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, msgspec.json.encode(policy), *words],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout


@pytest.fixture
def site() -> Iterator[Site]:
    top = Path("/var/tmp") / f"polier-test-{os.getpid()}-{os.urandom(4).hex()}"
    top.mkdir()
    yield Site(top)
    shutil.rmtree(top)


@needs_all_walls
def test_nothing_leaks_where_all_walls_stand(site: Site) -> None:
    assert site.leaks("nothing") == ""
    assert list((site.top / "home").iterdir()) == [site.top / "home/workspace"]


@needs_all_walls
@pytest.mark.parametrize(
    ("missing", "found"),
    [
        ("landlock", "a file could be made in {top}/home"),
        ("landlock", "a file could be made in {top}/state/tmp"),
        ("landlock", "{top}/state could be read"),
        ("landlock", "{top}/state/keys/secret could be read"),
        ("landlock+capabilities", "the environment of process {parent} could be read"),
        ("landlock", "process {parent} could be signalled"),
        ("files", "a file could be made in {top}/home"),
        ("files", "{top}/state could be read"),
        ("signals", "process {parent} could be signalled"),
        ("filter", "a new namespace could be had"),
        ("filter", "a network socket could be had, though the network is off"),
    ],
)
def test_each_canary_finds_the_wall_that_is_missing(site: Site, missing: str, found: str) -> None:
    said = site.leaks(missing)
    assert found.format(top=site.top, parent=os.getpid()) in said
    assert not list(site.top.rglob(".polier-canary*")), "what a canary made is removed"


@needs_all_walls
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to keep")
def test_a_canary_finds_root_s_capabilities_with_which_newer_kernels_ask_no_landlock(site: Site) -> None:
    said = site.leaks("capabilities")
    assert not said or "the environment of process" in said


@needs_all_walls
def test_the_canaries_of_one_wall_are_silent_about_the_others(site: Site) -> None:
    assert "could be made" not in site.leaks("filter")
    assert "socket" not in site.leaks("landlock")
    assert "could be made" not in site.leaks("signals")


@needs_all_walls
def test_with_the_network_on_a_socket_is_no_leak(site: Site) -> None:
    assert "socket could be had, though" not in site.leaks(
        "filter", msgspec.structs.replace(site.policy, network=Network.ON)
    )


@needs_all_walls
def test_a_worker_that_is_told_of_namespaces_which_are_not_there_does_not_serve(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said = played(CONFINED, site.policy, "native", str(listener.getsockname()[1]))
    assert said.startswith("LEAKS")
    assert "the machine's localhost could be reached" in said
    assert f"{site.top}/state could be read" in said


@needs_all_walls
def test_a_leak_on_the_lowest_rung_refuses_commands_with_the_reason(site: Site) -> None:
    # A policy at odds with itself: what it hides is a device that all may read.
    policy = msgspec.structs.replace(site.policy, hidden=("/dev/zero",))
    said = played(CONFINED, policy, "none", "0")
    assert "Rung.OFF" in said
    assert "refuse_commands='The sandbox was tried and does not hold here: /dev/zero could be read.'" in said
    assert "Rung.LANDLOCK" in played(CONFINED, site.policy, "none", "0")


def test_on_namespaces_a_masked_place_is_no_leak_and_a_full_one_is(site: Site) -> None:
    walls = Walls(site.policy, Rung.FULL, 0, False)
    assert f"{site.top}/state could be read" in canaries.leaks(walls)
    shutil.rmtree(site.top / "state/keys")
    assert f"{site.top}/state could be read" not in canaries.leaks(walls)
