"""`agent run` where nobody can be asked: what is denied, what `--allow` permits, and what the events say."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.permission import parse
from supervisor.permits.grants import ProjectGrants
from supervisor.places import project_of
from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.thread import ServerThread
from tests.product import COMMAND, SECONDS, Event, Product


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread({}) as running:
        yield running


@pytest.fixture
def product(tmp_path: Path, server: ServerThread) -> Product:
    product = Product(tmp_path)
    beside = tmp_path / "beside"
    beside.mkdir()
    calls = (
        ScriptedCall("run_command", {"command": f"echo x > {beside}/file", "needs": [f"write:{beside}"]}),
    )
    steps = (Step(calls=calls), Step(text="So much."))
    product.environ["AGENT_BASE_URL"] = server.add(f"t{abs(hash(tmp_path))}", Script(steps=steps))
    return product


def decisions(events: list[Event]) -> list[tuple[object, object, object]]:
    return [
        (event["question"], event["allowed"], event["by"])
        for event in events
        if event["type"] == "permission_answered"
    ]


def test_a_run_never_waits_for_an_answer_and_says_what_would_permit_it(product: Product) -> None:
    beside = product.workspace.parent / "beside"
    done = product.run("run", "Write")
    assert (done.returncode, done.stdout) == (0, "So much.\n")
    assert f"--allow write:{beside}" in done.stderr
    assert not (beside / "file").exists()
    assert f"--allow write:{beside}" in str(product.messages()[2]["content"])


def test_the_events_say_that_nobody_was_there(product: Product) -> None:
    events, code = product.events("Write")
    assert code == 0
    assert decisions(events) == [(None, False, "nobody")]
    assert [event["status"] for event in events if event["type"] == "tool_finished"] == ["refused"]
    assert not [event for event in events if event["type"] == "permission_asked"]


def test_what_the_flag_allows_is_had_from_the_start(product: Product) -> None:
    beside = product.workspace.parent / "beside"
    events, code = product.events("--allow", "write:../beside", "Write")
    assert code == 0
    assert (beside / "file").read_text() == "x\n"
    assert decisions(events) == [(None, True, "flag")]
    lines = [line for line in product.transcript() if line["kind"] == "permission"]
    assert [(line["by"], line["permissions"]) for line in lines] == [("flag", [f"write:{beside}"])]


def test_a_flag_that_can_t_be_granted_stops_the_run_with_one_line(product: Product) -> None:
    done = product.run("run", "--allow", "write:nowhere", "Write")
    assert done.returncode == 2
    assert "--allow" in done.stderr
    assert "does not exist" in done.stderr


def test_without_a_sandbox_the_start_says_so(product: Product) -> None:
    done = product.run("run", "--sandbox", "unconfined", "Write")
    assert done.returncode == 0
    assert "the sandbox is off; commands may do all that you may do" in done.stderr
    assert (product.workspace.parent / "beside/file").exists()


NOTHING = [sys.executable, "-P", "-m", "tests.refusing", "--landlock"]
"""Before a command: neither namespaces nor Landlock, as on an old kernel."""


def test_where_nothing_confines_a_command_waits_for_a_word_that_only_the_flags_give(
    product: Product, server: ServerThread
) -> None:
    command = "echo x >> file && cat file"
    steps = Step(calls=(ScriptedCall("run_command", {"command": command}),)), Step(text="So much.")
    script = Script(steps=steps * 5)
    product.environ["AGENT_BASE_URL"] = server.add(f"n{abs(hash(product.workspace))}", script)

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*NOTHING, *COMMAND, "run", *flags, "Do it"], cwd=product.workspace, env=product.environ,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    for flags in ((), ("--allow", "run_command cat"), ("--allow", "run_command echo")):
        refused = run(*flags)
        assert (refused.returncode, refused.stdout) == (0, "So much.\n")
        assert "each command is asked about first: This kernel offers no Landlock" in refused.stderr
        assert "nobody can be asked in this run" in refused.stderr
        assert not (product.workspace / "file").exists()
    for number, flags in enumerate((("--allow", "unconfined"), ("--sandbox", "unconfined")), 1):
        assert "exit 0" in run(*flags).stderr
        assert (product.workspace / "file").read_text() == "x\n" * number
    settings = Path(product.environ["XDG_CONFIG_HOME"]) / "polier/settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[sandbox]\nrequire = "landlock"\n')
    stopped = run("--allow", "unconfined")
    assert stopped.returncode == 1
    assert "sandbox.require is 'landlock', but here the sandbox is 'off' (This kernel" in stopped.stderr
    assert stopped.stderr.count("could not be confined") == 2, "in the warning, and in the error once"


def test_a_floor_that_is_not_met_stops_the_run_with_the_reason(product: Product) -> None:
    config = Path(product.environ["XDG_CONFIG_HOME"], "polier")
    config.mkdir(parents=True)
    (config / "settings.toml").write_text('[sandbox]\nmode = "unconfined"\nrequire = "landlock"\n')
    done = product.run("run", "Write")
    assert done.returncode == 1
    assert "sandbox.require is 'landlock'" in done.stderr
    assert not (product.workspace.parent / "beside/file").exists()


def test_grants_for_the_project_are_listed_and_taken_back_by_a_command(product: Product) -> None:
    beside = product.workspace.parent / "beside"
    assert product.run("grants").stdout == "Nothing was granted for this project.\n"
    kept = ProjectGrants(product.home, project_of(product.workspace)[1])
    kept.add([parse(f"write:{beside}"), parse("git-write")], "echo \x1b[2J")
    listed = product.run("grants").stdout
    assert [line.split()[0] for line in listed.splitlines()] == [f"write:{beside}", "git-write"]
    assert "\x1b" not in listed
    product.run("run", "Write")
    assert (beside / "file").exists()
    assert product.run("grants", "--revoke", "git-write").returncode == 0
    missing = product.run("grants", "--revoke", "git-write")
    assert missing.returncode == 2
    assert f"there are: write:{beside}" in missing.stderr
    product.run("grants", "--revoke", "all")
    nothing = product.run("grants", "--revoke", "all")
    assert (nothing.returncode, nothing.stdout) == (0, "Nothing was granted for this project.\n")
    assert kept.permissions() == ()
