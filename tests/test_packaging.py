"""The wheel: what is in it, and that what is installed from it works without this checkout."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.thread import ServerThread
from supervisor.version import VERSION
from tests.product import ROOT, SECONDS, Product

BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, str(place)], cwd=ROOT, check=True, timeout=SECONDS)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel in it; libraries come from this one."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    install = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    install += ["--python", str(place / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=SECONDS)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def test_the_wheel_has_three_packages_and_the_system_prompt(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"protocol", "supervisor", "worker", f"polier-{VERSION}.dist-info"}
    assert "supervisor/system_prompt.txt" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.parametrize("command", ["agent", "polier"])
def test_both_commands_are_the_same_program(commands: Path, command: str) -> None:
    done = subprocess.run(
        [commands / command, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert done.stdout == f"polier {VERSION}\n"


def test_what_is_installed_plays_a_turn_with_a_worker(commands: Path, tmp_path: Path) -> None:
    product = Product(tmp_path)
    environ = {name: value for name, value in product.environ.items() if name != "PYTHONPATH"}
    call = ScriptedCall("run_command", {"command": "echo $((6 * 7)) > found"})
    steps = (Step(calls=(call,)), Step(text="Done."))
    with ServerThread({"main": Script(steps=steps)}) as server:
        done = subprocess.run(
            [commands / "agent", "run", "--base-url", server.url(), "go"],
            cwd=product.workspace,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        system = str(server.requests()[0].json()["messages"])
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert (product.workspace / "found").read_text() == "42\n"
    assert (ROOT / "system_prompt.txt").read_text().splitlines()[0][:40] in system
