"""What is imported before what, the version, and the ways in that are not a session."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.rehearsal.script import Script, Step
from supervisor.rehearsal.thread import ServerThread
from supervisor.version import VERSION
from tests.product import COMMAND, ROOT, SECONDS, Product, one_line


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def imported(product: Product, *arguments: str) -> set[str]:
    """The modules that the command imports, by the interpreter's own list."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-P", "-m", "supervisor", *arguments],
        cwd=product.workspace,
        env=product.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_the_version_imports_nothing_of_ours_but_its_file(product: Product) -> None:
    bare = subprocess.run(
        [sys.executable, "-c", "import runpy, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = {name for name in imported(product, "--version") if name.startswith("supervisor")}
    assert ours <= {"supervisor", "supervisor.version"}
    extra = imported(product, "--version") - set(bare.stdout.split()) - ours
    assert not {
        name for name in extra if name.split(".")[0] in ("typer", "trio", "httpx", "msgspec", "dataclasses")
    }


def test_a_plain_run_imports_neither_typer_nor_an_editor_nor_the_command_line_of_httpx(
    product: Product,
) -> None:
    with ServerThread({"main": Script(steps=(Step(text="Yes."),))}) as server:
        names = imported(product, "run", "--base-url", server.url(), "Hello")
    assert "httpx" in names
    tops = {name.split(".")[0] for name in names}
    assert not tops & {"typer", "click", "rich", "prompt_toolkit", "pygments", "asyncio"}


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_one_line(product: Product, flag: str) -> None:
    done = product.run(flag)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"polier {VERSION}\n", "")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["sessions"], ["rehearse", "--check"]])
def test_a_full_disk_or_no_stdout_at_all_is_no_fault_of_the_program(
    product: Product, arguments: list[str]
) -> None:
    with open("/dev/full", "wb") as full, product.start(*arguments, stdout=full.fileno()) as child:
        _, said = child.communicate(timeout=SECONDS)
    assert child.returncode == 1
    one_line(said.decode(), ["disk is full"])
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "bash", *COMMAND, *arguments],
        cwd=product.workspace,
        env=product.environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_list_of_commands_is_not_cut_off(product: Product) -> None:
    said = product.run("--help").stdout
    assert "scripted-server" in said
    assert "..." not in said.partition("Commands:")[2]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["rehearse", "--help"], ["sessions", "--help"]]
)
def test_help_is_plain_text_and_exit_0(product: Product, arguments: list[str]) -> None:
    done = product.run(*arguments)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: agent")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nope"], ["--nope"]),
        (["frobnicate"], ["frobnicate"]),
        (["--continue", "--fork", "x"], ["exclude each other"]),
        (["sessions", "--nope"], ["--nope"]),
        (["--json"], ["--json"]),
    ],
)
def test_a_usage_error_is_one_line_and_exit_2(
    product: Product, arguments: list[str], words: list[str]
) -> None:
    done = product.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    one_line(done.stderr, words)


def test_sessions_of_an_empty_state_say_so(product: Product) -> None:
    done = product.run("sessions")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no conversation" in done.stdout


def test_sessions_lists_this_project_and_on_demand_the_others(product: Product, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with ServerThread({"main": Script(steps=(Step(text="Yes."),), repeat_last=True)}) as server:
        product.environ["AGENT_BASE_URL"] = server.url()
        assert product.run("run", "Of this one").returncode == 0
        assert product.run("run", "--workspace", str(other), "Of the other").returncode == 0
    here = product.run("sessions").stdout
    assert "Of this one" in here
    assert "Of the other" not in here
    everything = product.run("sessions", "--all").stdout
    assert everything.index("Of this one") < everything.index("Of the other")
    assert str(other) in everything


def test_a_conversation_is_one_line_of_the_list_whatever_its_directory_is_called(
    product: Product, tmp_path: Path
) -> None:
    other = tmp_path / "two\nlines"
    other.mkdir()
    with ServerThread({"main": Script(steps=(Step(text="Yes."),))}) as server:
        product.environ["AGENT_BASE_URL"] = server.url()
        assert product.run("run", "--workspace", str(other), "Of the other").returncode == 0
    listed = [line for line in product.run("sessions", "--all").stdout.splitlines() if "Of the other" in line]
    assert len(listed) == 1
    assert "two^Jlines" in listed[0]


def test_the_repl_without_a_terminal_ends_with_its_input(product: Product) -> None:
    done = product.run(environ={"AGENT_BASE_URL": "http://127.0.0.1:9"})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_an_invalid_settings_file_is_one_line_with_its_place(product: Product) -> None:
    place = Path(product.environ["XDG_CONFIG_HOME"]) / "polier" / "settings.toml"
    place.parent.mkdir(parents=True)
    place.write_text('model = "m"\nshow_tool_results = "loud"\n')
    done = product.run("run", "Hello")
    assert (done.returncode, done.stdout) == (2, "")
    one_line(done.stderr, [str(place), "show_tool_results"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_state_directory_that_can_not_be_written_is_named(product: Product) -> None:
    product.home.mkdir(mode=0o500)
    done = product.run("run", "Hello", environ={"AGENT_BASE_URL": "http://127.0.0.1:9"})
    assert done.returncode == 1
    one_line(done.stderr, [str(product.home)])


def test_a_state_directory_that_is_a_file_is_named(product: Product) -> None:
    product.home.write_text("")
    done = product.run("run", "Hello", environ={"AGENT_BASE_URL": "http://127.0.0.1:9"})
    assert done.returncode == 1
    one_line(done.stderr, [str(product.home)])


def test_a_program_of_the_workspace_is_not_taken_for_ours(product: Product) -> None:
    """`agent` is a script, so the current directory is not on its path; our children use -P."""
    (product.workspace / "supervisor.py").write_text("raise SystemExit(77)")
    (product.workspace / "trio.py").write_text("raise SystemExit(78)")
    with ServerThread({"main": Script(steps=(Step(text="Yes."),))}) as server:
        done = product.run("run", "--base-url", server.url(), "Hello")
    assert (done.returncode, done.stdout) == (0, "Yes.\n")


def test_the_scripted_server_is_a_command(product: Product) -> None:
    plan = product.workspace / "script.json"
    plan.write_text('{"steps": [{"text": "Yes."}]}')
    with product.start("scripted-server", str(plan), stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert b'"url"' in child.stdout.readline()
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(SECONDS) == 0
    assert ROOT.exists()
    plan.write_text('{"steps": [{"txt": "Yes."}]}')
    for arguments, words in (([str(plan)], "txt"), ([], "script"), ([str(plan), "--port", "x"], "--port")):
        done = product.run("scripted-server", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("scripted-server: ")
        assert done.stderr.count("\n") == 1
        assert words in done.stderr
