"""What docs/sandbox.md says is so: its commands and settings are run, its lists are those of the code."""

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from protocol import permission
from protocol.policy import RUN_LATER, Limits, Mode, Network, Rung
from protocol.tools.catalog import decode
from supervisor.choices.tables import LimitsChoices, RulesChoices, SandboxChoices, fields
from supervisor.choices.words import size
from supervisor.permits.grants import ProjectGrants
from supervisor.permits.judgement import Verdict
from supervisor.permits.rules import Where, judge
from supervisor.places import project_of
from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.thread import ServerThread
from supervisor.screen.slash import COMMANDS
from supervisor.settings import Flags, load
from tests.documents import blocks, command_lines, options_of, path_with_agent
from tests.product import ROOT, SECONDS, Product

TEXT = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
VERDICTS = {"denied": Verdict.DENY, "asks": Verdict.ASK, "allowed": Verdict.ALLOW, "no rule": Verdict.NONE}


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of its tables, without the heads."""
    found = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in text.splitlines() if line.startswith("| `")]
    return [[cell.replace("\\|", "|").strip() for cell in row] for row in found]


def doctor(product: Product, without: str) -> dict[str, object]:
    done = product.run("doctor", "--json", "--without", without)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("block", blocks(TEXT, "toml"))
def test_the_settings_are_settings(block: str, tmp_path: Path) -> None:
    place = tmp_path / "polier" / "settings.toml"
    place.parent.mkdir()
    place.write_text(block)
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "AGENT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    loaded = load(Flags(), environ, tmp_path)
    assert loaded.notices == ()
    assert tomllib.loads(block)


@pytest.mark.parametrize("line", [line for line in command_lines(TEXT) if line.startswith("agent run")])
def test_a_turn_is_a_command_line_that_is_understood(line: str) -> None:
    assert len(options_of(line)) == 1


def test_the_other_commands_run_as_printed(tmp_path: Path) -> None:
    product = Product(tmp_path)
    _, project = project_of(product.workspace)
    granted = [permission.parse(word) for word in ("git-write", "network:pypi.org:443")]
    ProjectGrants(product.home, project).add(granted, "git commit")
    (product.workspace / ".agent").mkdir()
    (product.workspace / ".agent" / "settings.toml").write_text('[rules]\nallow = ["run_command ls"]\n')
    environ = product.environ | {"PATH": path_with_agent(tmp_path)}
    for line in command_lines(TEXT):
        if line.startswith("agent run"):
            continue
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=product.workspace,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        # `trust` finds nobody to ask; what the doctor finds depends on the machine.
        wanted = {2} if line == "agent trust" else {0, 1} if "doctor" in line else {0}
        assert done.returncode in wanted, (line, done.stderr)
        assert done.stdout


def test_the_rules_say_of_each_example_what_the_table_says() -> None:
    (block,) = blocks(section("Rules"), "toml")
    rules = msgspec.convert(tomllib.loads(block)["rules"], RulesChoices)
    table = rows(section("Rules"))
    assert len(table) > 10
    for tool, cell, verdict in table:
        name, text = tool.strip("`"), cell.strip("`")
        given: Mapping[str, object] = {"command": text}
        if name == "fetch":
            given = {"url": text}
        elif name == "edit_file":
            given = {"path": text, "edits": [{"old": "a", "new": "b"}]}
        judged = judge(rules, name, decode(name, json.dumps(given)), Where("/w", "/home/u"))
        wanted = next(value for words, value in VERDICTS.items() if verdict.startswith(words))
        assert (text, judged.verdict) == (text, wanted)


def test_every_mode_rung_network_setting_and_permission_is_named() -> None:
    for values in (Mode, Rung, Network):
        assert [each.value for each in values if f"| `{each.value}` |" not in TEXT] == []
    named = {*re.findall(r"`(?:sandbox\.)?(\w+)(?: = \w+)?`", TEXT), *re.findall(r"(?m)^(\w+) = ", TEXT)}
    assert [key for key in fields(SandboxChoices) if key not in named] == []
    words = [row[0].strip("`") for row in rows(section("Permissions"))]
    assert [str(permission.parse(word.replace("HOST:PORT", "a.example:443"))) for word in words]
    assert {word.partition(":")[0] for word in words} == {kind.value for kind in permission.Kind}


def test_the_commands_of_the_prompt_are_there() -> None:
    assert [name for name in re.findall(r"`/(\w+)[ `]", TEXT) if name not in COMMANDS] == []


def test_the_table_of_limits_has_their_keys_and_defaults() -> None:
    table = {row[0].strip("`"): row[1] for row in rows(section("Limits"))}
    assert list(table) == list(fields(LimitsChoices))
    defaults = msgspec.structs.asdict(LimitsChoices())
    told = {key: size(text) for key, text in table.items() if key != "memory"}
    assert told == {key: value for key, value in defaults.items() if key != "memory"}
    for number in (Limits().command_seconds, Limits().command_seconds_max):
        assert f"{number:.0f} s" in section("Limits")


def test_what_is_protected_is_listed() -> None:
    assert [name for name in (".git", *RUN_LATER) if f"`{name}`" not in TEXT] == []


def test_what_the_lower_rung_lacks_is_what_its_worker_says(product: Product) -> None:
    found = doctor(product, "native,bubblewrap")
    if found["rung"] != Rung.LANDLOCK.value:
        pytest.skip("this kernel has no Landlock")
    listed = re.findall(r"(?m)^- (.+)$", section("What you get"))
    notes, probes = found["notes"], str(found["probes"])
    assert isinstance(notes, list)
    assert [line for line in listed if line not in notes] == []
    version = re.search(r"version (\d+) of the kernel's Landlock", probes)
    if version and int(version[1]) >= 6 and "there is no filter" not in probes:
        assert listed == notes


@pytest.mark.parametrize("without", ["bubblewrap,processes", "bubblewrap,landlock"])
def test_what_the_highest_rung_may_lack_is_what_its_worker_says(product: Product, without: str) -> None:
    found = doctor(product, without)
    if found["rung"] != Rung.FULL.value:
        pytest.skip("no namespaces can be had here")
    notes = found["notes"]
    assert isinstance(notes, list)
    said = " ".join(section("What you get").split())
    assert [note for note in notes if note.removeprefix("there is no Landlock here: ") not in said] == []


def test_what_is_blocked_is_told_as_printed(product: Product) -> None:
    if doctor(product, "bubblewrap")["rung"] != Rung.FULL.value:
        pytest.skip("no namespaces can be had here")
    (block,) = blocks(section("When something is blocked"), "text")
    command, _, result = block.removeprefix("$ ").partition("\n")
    steps = (Step(calls=(ScriptedCall("run_command", {"command": command}),)), Step(text="It is blocked."))
    with ServerThread({"main": Script(steps=steps)}) as server:
        done = product.run("run", "--base-url", server.url(), "Do it")
    assert done.returncode == 0, done.stderr
    (told,) = [line["content"] for line in product.messages() if line["role"] == "tool"]
    assert told == result.rstrip("\n")


def test_a_dry_run_at_the_prompt_is_applied_by_a_key(product: Product) -> None:
    (block,) = blocks(section("Dry runs"), "text")
    file = product.workspace / "keep.txt"
    file.write_text("hello\n")
    # No turn is played, so no model is asked.
    done = product.run(
        "--base-url", "http://127.0.0.1:9/v1", given=f"{block}discard\n{block}apply\n".encode()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("+ HELLO") == 2
    assert ("; discarded" in done.stdout, "; applied" in done.stdout) == (True, True)
    assert file.read_text() == "HELLO\n"
    said = section("Dry runs")
    assert f"{SandboxChoices().dry_run_bytes >> 20} MiB and {SandboxChoices().dry_run_files:,} files" in said


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)
