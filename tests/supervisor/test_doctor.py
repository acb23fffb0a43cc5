"""`agent doctor` as users run it: on this machine, with means missing, and where namespaces are refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.product import COMMAND, Product

REFUSING = [sys.executable, "-P", "-m", "tests.refusing"]


def doctor(product: Product, *arguments: str, before: list[str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [*(before or []), *COMMAND, "doctor", *arguments],
        cwd=product.workspace,
        env=product.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def report(product: Product, *arguments: str, before: list[str] | None = None) -> dict[str, Any]:
    code, printed = doctor(product, "--json", *arguments, before=before)
    found: dict[str, Any] = json.loads(printed)
    assert code == (0 if found["well"] else 1)
    return found


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def probes(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {probe["name"]: probe for probe in found["probes"]}


def verdict(found: dict[str, Any], words: str) -> str:
    [one] = [danger for danger in found["stops"] if words in danger["what"]]
    return str(one["verdict"])


def test_where_namespaces_can_be_had_the_rung_is_full(product: Product) -> None:
    found = report(product)
    if not probes(found).get("native", {}).get("works"):
        pytest.skip(f"no namespaces on this machine: {found['probes']}")
    assert (found["rung"], found["means"], found["well"]) == ("full", "native", True)
    assert found["commands_run"]
    assert {danger["verdict"] for danger in found["stops"]} == {"stopped"}
    assert found["state"] == str(product.home)


def test_where_only_bwrap_may_make_them_the_rung_is_full_too(product: Product) -> None:
    found = report(product, "--without", "native")
    bwrap = probes(found)["bubblewrap"]
    if not bwrap["works"]:
        assert bwrap["remedy"] or bwrap["why"]
        pytest.skip(f"no bwrap on this machine: {bwrap['why']}")
    assert (found["rung"], found["means"], found["well"]) == ("full", "bubblewrap", True)


def test_where_they_are_refused_it_is_landlock_and_the_report_says_what_that_lacks(product: Product) -> None:
    found = report(product, before=REFUSING)
    if found["rung"] == "off":
        pytest.skip(f"no Landlock on this machine: {found['why_not']}")
    assert (found["rung"], found["means"], found["well"]) == ("landlock", "none", True)
    native = probes(found)["native"]
    assert not native["works"]
    assert "Operation not permitted" in native["why"]
    assert "container" in native["remedy"]
    assert verdict(found, "write, move or delete") == "stopped"
    assert verdict(found, "names and sizes") == "not stopped"
    assert any("extended attributes" in note for note in found["notes"])


def test_without_landlock_too_nothing_confines_and_the_exit_code_says_so(product: Product) -> None:
    found = report(product, "--without", "native,bubblewrap,landlock")
    assert (found["rung"], found["well"], found["commands_run"]) == ("off", False, False)
    assert "Landlock" in found["why_not"]
    assert {danger["verdict"] for danger in found["stops"]} == {"not stopped"}


def test_a_floor_in_the_settings_decides_the_exit_code(product: Product) -> None:
    settings = Path(product.environ["XDG_CONFIG_HOME"]) / "polier"
    settings.mkdir(parents=True)
    (settings / "settings.toml").write_text('[sandbox]\nrequire = "full"\n')
    found = report(product, "--without", "native,bubblewrap")
    assert (found["floor_holds"], found["well"]) == (False, False)
    code, printed = doctor(product, "--without", "native,bubblewrap")
    assert code == 1
    assert "require 'full'" in printed


def test_a_person_gets_lines_and_nothing_is_left_behind(product: Product) -> None:
    scratch = product.workspace / "scratch"
    scratch.mkdir()
    product.environ["TMPDIR"] = str(scratch)
    code, printed = doctor(product)
    assert code in (0, 1)
    assert printed.startswith("Sandbox: ")
    assert "What a command might do:" in printed
    assert "Limits of commands:" in printed
    assert not list(scratch.iterdir())


def test_an_unknown_means_is_named(product: Product) -> None:
    done = product.run("doctor", "--without", "magic")
    assert done.returncode == 2
    assert "magic" in done.stderr
    assert "landlock" in done.stderr


ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
"""In a list of processes of one's own: any session of this user that starts meanwhile, in another test
perhaps, would end what a dead run has left."""
WITH_A_STRAY = """
POLIER_SUPERVISOR="4194304:1:$(stat -Lc %i /proc/self/ns/pid):abcd1234" sleep 61.25 >/dev/null 2>&1 &
"$@"
code=$?
grep -q 61.25 "/proc/$!/cmdline" || exit 99
exit $code
"""
"""The supervisor's pid is one that can't be: nobody started it then."""


def test_what_a_dead_run_left_is_named_and_not_ended(product: Product) -> None:
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no list of processes of its own can be had here")
    left = report(product, before=[*ALONE, "sh", "-c", WITH_A_STRAY, "sh"])["left"]
    assert [line.split(maxsplit=1)[1] for line in left] == ["sleep 61.25"]
