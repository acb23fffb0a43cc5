"""Questions on a real terminal: how they look, which keys answer, and what never does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.exits import HUNG_UP, TERMINATED
from supervisor.screen.asking import QUIET_SECONDS
from tests.supervisor.terminal import Terminal

STAGE = "tests.supervisor.repl_stage"
CTRL_C, CTRL_D, ESCAPE, UP = "\x03", "\x04", "\x1b", "\x1b[A"
KEYS = "[o]nce  [s]ession  [p]roject  [n]o  (Esc: no)"
Stage = Callable[..., Terminal]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    opened: list[Terminal] = []

    def start(columns: int = 80, rows: int = 24) -> Terminal:
        terminal = Terminal(STAGE, ["plain", "preview", str(tmp_path)], columns=columns, rows=rows)
        opened.append(terminal)
        terminal.wait_for("You 1 ❯ 0%", "sandbox: landlock")
        return terminal

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


@pytest.fixture
def repl(stage: Stage) -> Terminal:
    return stage()


def test_a_question_shows_all_that_is_asked_and_a_key_answers_it(repl: Terminal) -> None:
    repl.send("ask\r")
    screen = repl.wait_for(KEYS)
    for words in (
        "main asks: run_command",
        "│ make install",
        "in /w",
        "why: it needs more than the sandbox allows",
        "write:/opt",
        "the model says (its claim):",
        "│ the user wants it there",
    ):
        assert words in screen
    repl.send("s")
    repl.wait_for("allowed for this session: write:/opt", "the answer was session", "You 2 ❯")
    assert KEYS not in repl.text()


@pytest.mark.parametrize(("key", "scope"), [("o", "once"), ("O", "once"), ("p", "project")])
def test_each_scope_has_its_key(repl: Terminal, key: str, scope: str) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.send(key)
    repl.wait_for(f"the answer was {scope}", "You 2 ❯")


def test_a_no_takes_words_for_the_model(repl: Terminal) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.send("n")
    repl.wait_for("words for the model (Enter: none)")
    repl.send("use build/äx\x7f")
    repl.wait_for("none): use build/ä")
    repl.send("\r")
    repl.wait_for("not allowed: write:/opt", "the answer was no 'use build/ä'", "You 2 ❯")


def test_escape_is_no_and_the_turn_goes_on(repl: Terminal) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.send(ESCAPE)
    repl.wait_for("the answer was no ''", "You 2 ❯")
    assert "interrupted" not in repl.text()


def test_what_was_typed_before_a_question_never_answers_it(repl: Terminal) -> None:
    repl.send("ask\r" + "o" * 3)
    repl.wait_for(KEYS)
    repl.send("n")
    repl.wait_for("words for the model")
    repl.send("\r")
    repl.wait_for("the answer was no")


def test_a_key_at_the_moment_a_question_appears_does_not_answer_it(repl: Terminal) -> None:
    repl.send("ask\r")
    repl.wait_for("main asks")
    repl.send("o")
    repl.wait_for(KEYS)
    assert "the answer was" not in repl.text()
    repl.send("s")
    repl.wait_for("the answer was session")


@pytest.mark.parametrize("keys", ["ok", "\x1b[200~o\x1b[201~", UP, "\x1bo", "\r", "y", "x"])
def test_pastes_words_and_other_keys_answer_nothing(repl: Terminal, keys: str) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.send(keys)
    time.sleep(2 * QUIET_SECONDS)
    assert "the answer was" not in repl.wait_for(KEYS)
    repl.send("o")
    repl.wait_for("the answer was once")


def test_ctrl_c_interrupts_the_turn_and_the_question_is_gone(repl: Terminal) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.send(CTRL_C)
    screen = repl.wait_for("[interrupted by the user]", "You 2 ❯")
    assert KEYS not in screen
    repl.send("o\r")
    repl.wait_for("you said o")


@pytest.mark.parametrize("keys", ["o" + CTRL_C, CTRL_C + "o", "n" + CTRL_C])
def test_an_answer_at_the_moment_of_an_interrupt_leaves_a_prompt_that_works(
    repl: Terminal, keys: str
) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.send(keys)
    repl.wait_for_last_line("You 2 ❯")
    repl.send("\x15hello\r")
    repl.wait_for("you said hello")


def test_two_questions_stand_in_line(repl: Terminal) -> None:
    repl.send("ask twice\r")
    repl.wait_for("(1 of 2)", KEYS)
    repl.send("o")
    repl.wait_for("the answer was once", KEYS)
    assert repl.text().count("(1 of 2)") == 1
    repl.send("s")
    repl.wait_for("the answer was session", "You 2 ❯")


def test_a_long_command_is_folded_and_w_shows_all_of_it(repl: Terminal) -> None:
    repl.send("ask long\r")
    screen = repl.wait_for("31 rows are not shown: w shows all", "[w]hole")
    assert "echo line 39" in screen
    assert "echo line 20" not in screen
    repl.send("w")
    repl.wait_for("echo line 20", "echo line 39", "[w]hole")
    repl.send("o")
    repl.wait_for("the answer was once")


def test_what_a_model_wrote_can_not_pass_for_the_question(repl: Terminal) -> None:
    repl.send("ask evil\r")
    screen = repl.wait_for("[o]nce  [n]o  (Esc: no)")
    assert r"│ ls^[[2K^[[1A^I#\u200b\u202e" in screen
    assert "│ [o]nce  [n]o^[[H" in screen
    repl.send("s")
    time.sleep(2 * QUIET_SECONDS)
    assert "the answer was" not in repl.text()


def test_a_narrow_terminal_shows_the_same(stage: Stage) -> None:
    repl = stage(columns=50)
    repl.send("ask\r")
    repl.wait_for(KEYS, "write:/opt", "the user wants it there")
    narrow = stage(columns=30)
    narrow.send("ask\r")
    narrow.wait_for("o/s/p/n?")
    narrow.send("p")
    narrow.wait_for("the answer was")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGHUP, HUNG_UP)])
def test_a_signal_while_a_question_is_open_ends_the_program(repl: Terminal, number: int, code: int) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.signal(number)
    assert repl.wait_for_exit() == code
    assert repl.restored()
    assert "closed abc1" in repl.text()


def test_a_terminal_that_goes_away_ends_the_program(repl: Terminal) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    repl.vanish()
    repl.process.wait(20)
    assert repl.process.returncode == HUNG_UP


def test_pastes_are_marked_only_while_a_question_is_open(repl: Terminal) -> None:
    repl.send("ask\r")
    repl.wait_for(KEYS)
    assert repl.raw.rstrip().rfind(b"\x1b[?2004h") > repl.raw.rfind(b"\x1b[?2004l")
    repl.send("o")
    repl.wait_for_raw(b"\x1b[?2004l")


def piped(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", STAGE, "plain", "preview"],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONUTF8": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [("o", "once ''"), ("session", "session ''"), ("n", "no ''"), ("no use build/", "no 'use build/'")],
)
def test_in_a_pipe_a_line_answers(line: str, said: str) -> None:
    shown = piped(f"ask\n{line}\nhello\n")
    assert f"the answer was {said}" in shown
    assert "you said hello" in shown


def test_in_a_pipe_a_line_that_is_no_answer_is_asked_for_again() -> None:
    shown = piped("ask\nyes please\np\nhello\n")
    assert "yes: no answer; there are: once, session, project, no" in shown
    assert "the answer was project" in shown
    assert "you said hello" in shown


def test_at_the_end_of_the_input_the_answer_is_no() -> None:
    assert piped("ask").count("the answer was no") == 1
    assert piped("ask twice\n").count("the answer was no") == 2
