"""/sandbox, /trust and the alarm in the prompt, through a real terminal.  What confines is a stage's."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.policy import Mode, Rung
from supervisor.exits import TERMINATED
from supervisor.screen.confined import alarm, in_short
from tests.supervisor.terminal import Terminal

STAGE = "tests.supervisor.repl_stage"
RED = "ff5f5f"
Stage = Callable[..., Terminal]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    opened: list[Terminal] = []

    def start(columns: int = 80) -> Terminal:
        opened.append(Terminal(STAGE, ["plain", "preview", str(tmp_path)], columns=columns))
        opened[-1].wait_for("You 1 ❯ 0%", "sandbox: landlock")
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


@pytest.mark.parametrize("columns", [80, 50])
def test_sandbox_prints_what_is_in_force_and_how_to_change_it(stage: Stage, columns: int) -> None:
    repl = stage(columns)
    repl.send("/sandbox\r")
    screen = " ".join(repl.wait_for("WORD | all", "You 1 ❯").split())
    for words in (
        "sandbox: landlock · mode workspace-write",
        "- the network is not confined",
        "network: pypi.org:443",
        "readable by the settings: /srv/data",
        "granted by --allow: git-write",
        "granted for this session: write:/opt",
        "read:/etc/x since 2026",
        "limits: memory 2.0 GiB",
    ):
        assert words in screen
    assert "\x1b[2J" not in screen


def test_a_mode_is_changed_for_the_session_and_unconfined_stands_in_every_prompt(stage: Stage) -> None:
    repl = stage()
    repl.send("/sandbox unconfined\r")
    repl.wait_for("the mode is unconfined: commands may do all that you may", "UNCONFINED You 1 ❯")
    assert repl.colour("UNCONFINED You") == RED
    repl.send("hello\r")
    repl.wait_for("UNCONFINED You 2 ❯")
    repl.send("/sandbox workspace-write\r")
    repl.wait_for("the mode is workspace-write", "sandbox: full")
    repl.send("\r")
    assert "UNCONFINED" not in repl.wait_for_last_line(" You 2 ❯").rstrip().rpartition("\n")[2]


def test_jobs_that_keep_a_mode_from_taking_force_at_once_are_told_of(stage: Stage) -> None:
    repl = stage()
    repl.send("/sandbox read-only\r")
    repl.wait_for("the mode is read-only", "background jobs still run with what was before")


def test_a_grant_is_taken_back_and_one_that_is_none_is_named(stage: Stage) -> None:
    repl = stage()
    repl.send("/sandbox revoke write:/opt\r")
    repl.wait_for("taken back: write:/opt")
    repl.send("/sandbox revoke write:/else\r")
    repl.wait_for("write:/else was not granted")
    repl.send("/sandbox revoke\r")
    repl.wait_for("which one?")
    repl.send("/sandbox open\r")
    repl.wait_for("/sandbox open: unknown; there is: /sandbox read-only")


def test_trust_shows_the_content_and_keeps_a_yes(stage: Stage, tmp_path: Path) -> None:
    repl = stage()
    repl.send("/trust\r")
    repl.wait_for('sandbox.network = "on"', "[t]rust  [n]o  (Esc: no)")
    repl.send("n")
    repl.wait_for("not trusted", "You 1 ❯")
    assert list(tmp_path.iterdir()) == []
    repl.send("/trust\r")
    repl.wait_for_last_line("[t]rust")
    repl.send("\x03")
    repl.wait_for("[interrupted]")
    repl.send("/trust\r")
    repl.wait_for_last_line("[t]rust")
    repl.send("t")
    repl.wait_for("Trusted, until the file changes")
    assert list(tmp_path.iterdir()) != []


def test_a_signal_while_a_command_asks_ends_the_program(stage: Stage) -> None:
    repl = stage()
    repl.send("/trust\r")
    repl.wait_for("[t]rust  [n]o")
    repl.signal(signal.SIGTERM)
    assert repl.wait_for_exit() == TERMINATED
    assert repl.restored()


def test_an_alarm_is_sounded_where_nothing_confines_commands() -> None:
    assert alarm(Mode.WORKSPACE_WRITE, Rung.OFF) == "NO SANDBOX"
    assert alarm(Mode.UNCONFINED, None) == "UNCONFINED"
    assert alarm(Mode.READ_ONLY, Rung.LANDLOCK) == alarm(None, None) == ""


def test_the_start_says_the_rung_on_one_line() -> None:
    assert in_short("full", (), 80) == "sandbox: full"
    assert in_short("landlock", ("a", "b"), 80) == "sandbox: landlock; not enforced: a; b"
    many = in_short("landlock", ("long words " * 5, "more"), 50)
    assert many == "sandbox: landlock; 2 things are not enforced (/sandbox says which)"
