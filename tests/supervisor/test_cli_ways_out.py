"""How the program ends when something unforeseen happens; what a terminal sees of a headless run."""

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from protocol.events import Notice, ReplyRetried, SandboxReady, SessionStarted
from supervisor.exits import TERMINATED, StopError
from supervisor.rehearsal.play import shown
from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.stage import set_up
from supervisor.rehearsal.thread import ServerThread
from tests.product import COMMAND, SECONDS, Product, one_line
from tests.pseudo_terminal import PseudoTerminal

SECRET = "sk-" + "0123456789abcdef" * 2


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def failing(product: Product, error: str) -> dict[str, str]:
    """An environment in which importing the headless front raises this."""
    hook = product.workspace.parent / "hook" / "sitecustomize.py"
    hook.parent.mkdir()
    hook.write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'supervisor.headless': raise {error}\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    return {"PYTHONPATH": f"{hook.parent}{os.pathsep}{product.environ['PYTHONPATH']}"}


def test_a_fault_of_the_program_leaves_one_line_and_a_private_file(product: Product) -> None:
    environ = failing(product, f"LookupError('no luck with {SECRET}')") | {"DEEPSEEK_API_KEY": SECRET}
    done = product.run("run", "x", environ=environ)
    assert done.returncode == 1
    one_line(done.stderr, ["LookupError", str(product.home)])
    (crash,) = product.home.glob("crashes/*.txt")
    assert crash.stat().st_mode & 0o077 == 0
    assert "LookupError" in crash.read_text()
    assert SECRET not in crash.read_text() + done.stderr


def test_a_fault_where_nothing_can_be_written_is_still_one_line(product: Product) -> None:
    product.home.write_text("a file")
    done = product.run("run", "x", environ=failing(product, "LookupError('x')"))
    assert done.returncode == 1
    one_line(done.stderr, ["LookupError", "could not be written"])


def test_a_fault_with_settings_that_can_not_be_read_is_still_one_line(product: Product) -> None:
    place = Path(product.environ["XDG_CONFIG_HOME"]) / "polier" / "settings.toml"
    place.parent.mkdir(parents=True)
    place.write_text("no toml at all")
    done = product.run(
        "run", "x", environ={**failing(product, "LookupError('x')"), "TMPDIR": str(product.workspace)}
    )
    assert done.returncode == 1
    one_line(done.stderr, ["LookupError", str(product.workspace)])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("KeyboardInterrupt", 130),
        ("BrokenPipeError", 141),
        ("SystemExit(5)", 5),
        ("SystemExit('words')", 1),
        ("BaseExceptionGroup('', [KeyboardInterrupt()])", 130),
    ],
)
def test_other_ways_to_end_are_quiet_and_have_their_code(product: Product, error: str, code: int) -> None:
    done = product.run("run", "x", environ=failing(product, error))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_removed_current_directory_does_no_harm_when_another_is_named(
    product: Product, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with ServerThread({"main": Script(steps=(Step(text="Yes."),))}) as server:
        options = ["--base-url", server.url(), "--workspace", str(product.workspace)]
        done = subprocess.run(
            ["bash", "-c", 'rmdir "$PWD"; exec "$@"', "bash", *COMMAND, "run", *options, "Hello"],
            cwd=gone,
            env=product.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    assert (done.returncode, done.stdout) == (0, "Yes.\n"), done.stderr


def test_a_slow_reader_gets_every_line(product: Product) -> None:
    """More than a pipe holds is written while nobody reads; the turn goes on meanwhile."""
    text = "word " * 60_000
    name = "main"
    with ServerThread({name: Script(steps=(Step(text=text, chunk=50_000),))}) as server:
        with product.start("run", "--json", "--base-url", server.url(), "Talk") as child:
            server.wait_for(1, name, ended=True)
            assert child.stdout is not None
            lines = child.stdout.read().splitlines()
            assert child.wait(SECONDS) == 0
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "".join(event["text"] for event in events if event["type"] == "text") == text


def test_a_terminal_sees_the_tools_beside_the_answer(product: Product) -> None:
    steps = (
        Step(text="I count.", calls=(ScriptedCall("run_command", {"command": "echo 1"}),)),
        Step(text="One \x1b]0;title\x07."),
    )
    with ServerThread({"main": Script(steps=steps)}) as server:
        with PseudoTerminal([*COMMAND, "run", "--base-url", server.url(), "Count"], product) as terminal:
            assert terminal.ended() == 0
    assert "I count." in terminal.text
    assert "  run_command · " in terminal.text
    assert "One ^[]0;title^G." in terminal.text
    assert "\x1b" not in terminal.text


def test_json_on_a_terminal_is_still_json_and_harmless(product: Product) -> None:
    said = "bell \x07 csi \x9b31m far \U000e0001 fine é"
    with ServerThread({"main": Script(steps=(Step(text=said),))}) as server:
        command = [*COMMAND, "run", "--json", "--base-url", server.url(), "Speak"]
        with PseudoTerminal(command, product) as terminal:
            assert terminal.ended() == 0
    assert not set(terminal.text) & {"\x07", "\x9b", "\x1b", "\U000e0001"}
    events = [json.loads(line) for line in terminal.text.splitlines()]
    assert next(event["text"] for event in events if event["type"] == "reply_finished") == said


def test_bare_agent_with_options_opens_the_prompt(product: Product) -> None:
    command = [*COMMAND, "--base-url", "http://127.0.0.1:9", "--workspace", str(product.workspace)]
    with PseudoTerminal(command, product) as terminal:
        terminal.wait_for("You 1")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert terminal.text.startswith("❯ \r\x1b[K")


def test_a_dumb_terminal_gets_no_glyph_that_nothing_could_erase(product: Product) -> None:
    command = [*COMMAND, "--base-url", "http://127.0.0.1:9"]
    with PseudoTerminal(command, product, TERM="dumb") as terminal:
        terminal.wait_for("You 1")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert not terminal.text.startswith("❯")
    assert "\x1b" not in terminal.text


def test_the_early_glyph_is_erased_before_a_rehearsal_or_an_error(product: Product) -> None:
    with PseudoTerminal(COMMAND, product) as terminal:
        assert terminal.wait_for("REHEARSAL").startswith("❯ \r\x1b[KREHEARSAL")
        terminal.signal(signal.SIGTERM)  # not killed, so that its stage is taken down
        assert terminal.ended() == TERMINATED
    command = [*COMMAND, "--workspace", str(product.workspace / "missing")]
    with PseudoTerminal(command, product) as terminal:
        assert terminal.ended() == 2
    assert terminal.text.startswith("❯ \r\x1b[Kagent: the workspace")


def test_a_rehearsal_without_a_place_to_play_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no/such/place")
    with pytest.raises(StopError, match="TMPDIR"), set_up():
        pytest.fail("it has been set up")


def test_what_a_person_sees_of_rarer_events() -> None:
    assert shown(Notice(text="careful")) == ["  [careful]"]
    assert shown(ReplyRetried(why="a reset")) == ["  [the reply is asked for again: a reset]"]
    assert shown(SandboxReady(rung="landlock", notes=("open net",)))[1:] == ["  [open net]"]
    assert shown(SessionStarted(conversation="c", workspace="w", model="m")) == []
