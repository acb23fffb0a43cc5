"""What the README says is so: its commands parse or run, its tables are those of the code."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from protocol import events
from supervisor import exits
from supervisor.choices.tables import TABLES, value_of
from supervisor.options import RUN_OPTIONS
from supervisor.rehearsal.script import Script, Step
from supervisor.rehearsal.thread import ServerThread
from supervisor.settings import Flags, load
from tests.documents import blocks, command_lines, options_of, path_with_agent
from tests.product import ROOT, SECONDS, Product

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


SET_UP = blocks(TEXT, "sh")[:2]
EXAMPLES = command_lines(TEXT.replace(SET_UP[0], "").replace(SET_UP[1], ""))
ELSEWHERE = {
    "scripted-server": "test_the_script_of_the_readme_runs_as_printed",
    "sessions": "test_the_examples_for_scripts_run_as_printed",
}
"""Commands that a test below runs; what docs/sandbox.md has too is run by that document's tests."""


def test_the_set_up_is_two_command_lines() -> None:
    after = TEXT.split("## Set-up", 1)[1]
    assert [block.count("\n") for block in SET_UP] == [1, 1]
    assert after.index(SET_UP[0]) < after.index(SET_UP[1])
    for block in SET_UP:
        words = {part.split()[0].rpartition("/")[2] for part in block.split("&&")}
        assert words <= {"python3", "pip", "agent", "python"}


def test_the_build_machine_runs_the_second_one() -> None:
    test_part = SET_UP[1].split("&&")[-1].split("python ", 1)[1].strip()
    text = (ROOT / ".ci" / "run").read_text()
    assert test_part in text
    assert "-c constraints.txt -e '.[test]'" in SET_UP[1]
    assert "-c constraints.txt -e '.[test]'" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_a_command_line_that_is_understood(line: str) -> None:
    verb = line.partition("agent")[2].split()[0] if line != "agent" else ""
    if verb in ELSEWHERE:
        assert ELSEWHERE[verb] in globals()
    elif verb in ("doctor", "grants", "trust"):
        assert line in command_lines((ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8"))
    else:
        assert len(options_of(line)) == 1


def test_the_examples_for_scripts_run_as_printed(tmp_path: Path) -> None:
    product = Product(tmp_path)
    (block,) = [block for block in blocks(TEXT, "sh") if "agent run --json" in block]
    (tmp_path / "src" / "project").mkdir(parents=True)
    (product.workspace / "task.md").write_text("The task of the file.")
    prepare = "git init -q . && echo one > a && git add a && echo two > a\n"
    with ServerThread({"main": Script(steps=(Step(text="Yes."),), repeat_last=True)}) as server:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"{prepare}{block}agent sessions\nagent sessions --all"],
            cwd=product.workspace,
            env=product.environ
            | {"PATH": path_with_agent(tmp_path), "HOME": str(tmp_path), "AGENT_BASE_URL": server.url()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        asked = [request.json()["messages"] for request in server.requests()]
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("Yes.") == 4  # the fifth answered with JSON
    assert len(asked) == 5
    for said, words in zip(asked, ("Why does", "of the file", "+two", "parse()", "mend it"), strict=True):
        assert words in str(said)
    assert "Why does the build fail?" in done.stdout


def test_the_script_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    product = Product(tmp_path)
    (block,) = [block for block in blocks(TEXT, "sh") if "scripted-server" in block]
    script = block.replace("8765", free_port())
    done = subprocess.run(
        ["bash", "-ec", "set -m\n" + script],
        cwd=product.workspace,
        env=product.environ | {"PATH": path_with_agent(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, "It says 42.\n"), done.stderr
    assert len((product.workspace / "requests.jsonl").read_text().splitlines()) == 2


def free_port() -> str:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def test_the_settings_shown_are_settings(tmp_path: Path) -> None:
    (block,) = blocks(TEXT, "toml")
    shown = tomllib.loads(block)
    place = tmp_path / "polier" / "settings.toml"
    place.parent.mkdir()
    place.write_text(block)
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "AGENT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    settings = load(Flags(), environ, tmp_path).settings
    tables = {name: shown.pop(name) for name in TABLES}
    assert {name: getattr(settings, name) for name in shown} == shown
    # Each table is there and changes something, so none of its keys is a mere word.
    plain = load(Flags(), environ | {"XDG_CONFIG_HOME": str(tmp_path / "none")}, tmp_path).settings
    for name, table in tables.items():
        for key in table:
            assert value_of(settings, f"{name}.{key}") != value_of(plain, f"{name}.{key}")


def test_the_table_of_exit_codes_is_whole() -> None:
    table = TEXT[TEXT.index("| exit code |") : TEXT.index("Each line of `--json`")]
    listed = {int(code) for row in re.findall(r"^\| ([0-9, ]+) \|", table, re.M) for code in row.split(",")}
    assert listed == {value for value in vars(exits).values() if isinstance(value, int)}


def test_every_event_and_option_is_named() -> None:
    tags = [str(each.__struct_config__.tag) for each in events.AnyEvent.__args__]
    assert [tag for tag in tags if f"`{tag}`" not in TEXT] == []
    flags = [option.flag for option in RUN_OPTIONS]
    assert [flag for flag in flags if flag not in TEXT] == []
