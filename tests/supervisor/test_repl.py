"""The REPL as a person meets it: keys, signals, screens, through a real terminal."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.exits import HUNG_UP, TERMINATED
from tests.supervisor.terminal import Terminal

STAGE = "tests.supervisor.repl_stage"
CTRL_C, CTRL_D, ESCAPE, UP = "\x03", "\x04", "\x1b", "\x1b[A"
Stage = Callable[..., Terminal]


@pytest.fixture
def stage() -> Iterator[Stage]:
    opened: list[Terminal] = []

    def start(how: str = "plain", show: str = "preview", **more: str | None) -> Terminal:
        opened.append(Terminal(STAGE, [how, show], more))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


@pytest.fixture
def repl(stage: Stage) -> Terminal:
    terminal = stage()
    terminal.wait_for("You 1 ❯ 0%", "sandbox: landlock")
    return terminal


def test_a_line_is_a_turn_and_leaving_names_the_way_back(repl: Terminal) -> None:
    repl.send("hello\r")
    repl.wait_for("you said hello", "You 2 ❯ 0%")
    repl.send(CTRL_D)
    assert repl.wait_for_exit() == 0
    assert "agent --resume abc1" in repl.text()
    assert "closed abc1" in repl.text()
    assert repl.restored()


def test_a_conversation_without_a_turn_leaves_nothing_to_go_on_with(repl: Terminal) -> None:
    repl.send("/exit\r")
    assert repl.wait_for_exit() == 0
    assert "--resume" not in repl.text()


def test_after_ctrl_c_in_the_middle_of_a_turn_the_next_one_works(repl: Terminal) -> None:
    repl.send("hello\r")
    repl.wait_for("You 2")
    repl.send("forever\r")
    repl.wait_for("half an answer")
    repl.send(CTRL_C)
    repl.wait_for("[interrupted by the user]", "You 3 ❯")
    repl.send("again\r")
    repl.wait_for("you said again", "You 4 ❯")
    assert repl.process.poll() is None


def test_ctrl_c_while_a_command_runs_ends_the_turn(repl: Terminal) -> None:
    repl.send("command\r")
    repl.wait_for("run_command make · compiling a.c")
    repl.send(CTRL_C)
    repl.wait_for("[interrupted by the user]", "You 2 ❯")
    assert "compiling" not in repl.text()


def test_escape_interrupts_a_turn_as_well(repl: Terminal) -> None:
    repl.send("forever\r")
    repl.wait_for("half an answer")
    repl.send(ESCAPE)
    repl.wait_for("[interrupted by the user]", "You 2 ❯")


def test_a_line_that_was_withdrawn_is_in_the_editor_again(repl: Terminal) -> None:
    repl.send("silence\r")
    repl.wait_for("thinking…")
    repl.send(CTRL_C)
    repl.wait_for("nothing was kept of this turn")
    repl.wait_for_last_line("You 1 ❯ 0% silence")
    repl.send("\x7f" * 7 + "hello\r")
    repl.wait_for("you said hello", "You 2 ❯")


def test_what_is_typed_during_a_turn_waits_for_the_next_prompt(repl: Terminal) -> None:
    repl.send("forever\r")
    repl.wait_for("half an answer")
    repl.send("typed äh")
    repl.send(CTRL_C)
    repl.wait_for("You 2 ❯ 0% typed äh")
    repl.send("ead\r")
    repl.wait_for("you said typed ähead")


def test_ctrl_c_at_an_empty_prompt_says_how_to_leave_and_the_second_leaves(repl: Terminal) -> None:
    repl.send(CTRL_C)
    repl.wait_for("press Ctrl-C again to leave")
    repl.send(CTRL_C)
    assert repl.wait_for_exit() == 0
    assert repl.restored()


def test_ctrl_c_clears_a_typed_line_and_keeps_it_in_the_history(repl: Terminal) -> None:
    repl.send("precious")
    repl.wait_for("0% precious")
    repl.send(CTRL_C)
    repl.wait_until_gone("precious")
    repl.send(UP)
    repl.wait_for("0% precious")
    assert "press Ctrl-C" not in repl.text()


def test_ctrl_d_in_a_typed_line_closes_nothing(repl: Terminal) -> None:
    repl.send("words" + CTRL_D + "\r")
    repl.wait_for("you said words", "You 2 ❯")


def test_a_sigint_from_outside_acts_like_ctrl_c(repl: Terminal) -> None:
    repl.send("forever\r")
    repl.wait_for("half an answer")
    repl.signal(signal.SIGINT)
    repl.wait_for("[interrupted by the user]", "You 2 ❯")
    repl.signal(signal.SIGINT)
    repl.wait_for("press Ctrl-C again to leave")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGHUP, HUNG_UP)])
def test_a_signal_to_end_at_the_prompt_gives_the_terminal_back(
    repl: Terminal, number: int, code: int
) -> None:
    assert not repl.restored()
    repl.signal(number)
    assert repl.wait_for_exit() == code
    assert "closed abc1" in repl.text()
    assert repl.restored()


def test_a_sigterm_in_a_turn_ends_it_and_closes_the_session(repl: Terminal) -> None:
    repl.send("forever\r")
    repl.wait_for("half an answer")
    repl.signal(signal.SIGTERM)
    assert repl.wait_for_exit() == TERMINATED
    assert "[interrupted by the user]" in repl.text()
    assert "closed abc1" in repl.text()
    assert repl.restored()


@pytest.mark.parametrize("line", ["", "forever\r"])
def test_a_terminal_that_goes_away_ends_the_program(repl: Terminal, line: str) -> None:
    if line:
        repl.send(line)
        repl.wait_for("half an answer")
    repl.vanish()
    assert repl.process.wait(timeout=20) == HUNG_UP


def test_a_sigterm_while_a_conversation_is_being_opened_ends_the_program(stage: Stage) -> None:
    terminal = stage("never")
    terminal.wait_for("You ❯", "a setting was ignored")
    terminal.signal(signal.SIGTERM)
    assert terminal.wait_for_exit() == TERMINATED
    assert terminal.restored()


def test_a_conversation_that_cannot_be_opened_is_named(stage: Stage) -> None:
    terminal = stage("refused")
    assert terminal.wait_for_exit() == 2
    assert "agent: no such conversation" in terminal.text()
    assert terminal.restored()


@pytest.fixture
def gate(tmp_path: Path) -> str:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return str(path)


def open_gate(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


def test_output_that_comes_at_the_prompt_is_printed_above_and_keeps_what_is_typed(
    stage: Stage, gate: str
) -> None:
    terminal = stage(gate)
    terminal.wait_for("You ❯", "a setting was ignored")
    terminal.send("half a line")
    terminal.wait_for("You ❯ half a line")
    open_gate(gate)
    screen = terminal.wait_for("sandbox: landlock", "You 1 ❯ 0% half a line")
    assert screen.index("sandbox: landlock") < screen.index("half a line")
    assert screen.count("half a line") == 1


def test_a_line_that_is_ended_before_the_conversation_is_open_is_played(stage: Stage, gate: str) -> None:
    terminal = stage(gate)
    terminal.wait_for("You ❯", "a setting was ignored")
    terminal.send("early\r")
    open_gate(gate)
    terminal.wait_for("you said early", "You 2 ❯")


def test_ctrl_c_right_after_enter_brings_the_line_back(stage: Stage, gate: str) -> None:
    """Whether it waits for the conversation still or is being played already: it comes back unanswered."""
    terminal = stage(gate)
    terminal.wait_for("You ❯", "a setting was ignored")
    terminal.send("silence")
    terminal.wait_for("You ❯ silence")
    terminal.send("\r")
    terminal.wait_for_raw(b"\x1b[?2004l")  # the editor is leaving
    terminal.signal(signal.SIGINT)
    open_gate(gate)
    terminal.wait_for("interrupted")
    terminal.wait_for_last_line("You 1 ❯ 0% silence")


def test_commands_are_no_turns(repl: Terminal) -> None:
    repl.send("/help\r")
    repl.wait_for("/compact", "Ctrl-C     interrupts", "You 1 ❯")
    repl.send("/compct\r")
    repl.wait_for("there is no command /compct; did you mean /compact?")
    repl.send("   \r")
    repl.send("//compact\r")
    repl.wait_for("you said /compact", "You 2 ❯")


def test_context_shows_the_parts_and_a_bar(repl: Terminal) -> None:
    repl.send("/context\r")
    repl.wait_for("88% · 440,000 of 500,000 tokens", "1,200  system prompt", "34  turn 1: hello ^[[31m")
    assert repl.colour("██") == "ffaf00"


def test_compact_says_what_it_did_or_why_not(repl: Terminal) -> None:
    repl.send("/compact the plan\r")
    repl.wait_for("compacted 3 turns: 40,000 → 2,000 tokens")
    repl.send("/compact never\r")
    repl.wait_for("there is nothing to compact yet")
    repl.wait_for_last_line("You 1 ❯")  # the last "compacting…" has left the screen
    repl.send("/compact forever\r")
    repl.wait_for("compacting…")
    repl.send(CTRL_C)
    repl.wait_for("[interrupted; nothing was changed]", "You 1 ❯")


def test_new_closes_the_conversation_and_opens_another(repl: Terminal) -> None:
    repl.send("hello\r")
    repl.wait_for("You 2 ❯")
    repl.send("/new\r")
    repl.wait_for("closed abc1", "abc2 (new)", "You 1 ❯ 0%")
    repl.send("hello again\r")
    repl.wait_for("you said hello again", "You 2 ❯")
    repl.send(CTRL_D)
    repl.wait_for_exit()
    assert "agent --resume abc2" in repl.text()


def test_a_turn_that_the_program_refuses_keeps_the_session_and_the_line(repl: Terminal) -> None:
    repl.send("full\r")
    repl.wait_for("the disk is full; nothing was written")
    repl.wait_for_last_line("You 1 ❯ 0% full")


def test_the_share_is_grey_then_amber_then_red(repl: Terminal) -> None:
    assert repl.colour("0%") == "8a8a8a"
    repl.send("share\r")
    repl.wait_for("You 2 ❯ 90%")
    assert repl.colour("90%") == "ffaf00"
    repl.send("red\r")
    repl.wait_for("You 3 ❯ 97%")
    assert repl.colour("97%") == "ff5f5f"


def test_the_answer_is_amber_the_narration_grey_and_the_open_text_neutral(repl: Terminal) -> None:
    repl.send("tools\r")
    repl.wait_for("Done: both lines.", "You 2 ❯")
    assert repl.colour("Done") == "ffaf00"
    assert repl.colour("I look") == "8a8a8a"
    assert repl.colour("+ new") != repl.colour("- old")
    repl.send("forever\r")
    repl.wait_for("half an answer")
    assert repl.colour("half") == "default"
    repl.send(CTRL_C)
    repl.wait_for("You 3 ❯")
    assert repl.colour("half") == "ffaf00"


def test_no_control_sequence_of_a_stranger_reaches_the_terminal(repl: Terminal) -> None:
    repl.send("evil\r")
    repl.wait_for("A^[]52;c;eA==^GB\\x9b2JC\\u202eD", "You 2 ❯")
    assert b"\x1b]52" not in repl.raw
    assert "\x9b2J".encode() not in repl.raw
    assert "\u202e".encode() not in repl.raw


def test_a_rehearsal_says_so_on_every_screen(stage: Stage) -> None:
    terminal = stage("rehearsal")
    terminal.wait_for("You 1 ❯")
    terminal.send("long\r")
    screen = terminal.wait_for("You 2 ❯", "the end", "REHEARSAL: a script plays the model's part")
    assert "REHEARSAL" in screen.rstrip().splitlines()[-1]


def test_no_color_means_no_colour(stage: Stage) -> None:
    terminal = stage(NO_COLOR="1")
    terminal.wait_for("You 1 ❯", "sandbox")
    terminal.send("tools\r")
    terminal.wait_for("Done: both lines.", "You 2 ❯")
    assert b"38;5;" not in terminal.raw
    assert b"\x1b[38" not in terminal.raw


def test_a_dumb_terminal_gets_no_escape_sequence_at_all(stage: Stage) -> None:
    terminal = stage(TERM="dumb")
    terminal.wait_for("You 1 ❯ 0%")
    terminal.send("forever\n")
    terminal.wait_for("half an answer")
    terminal.send(CTRL_C)
    terminal.wait_for("[interrupted by the user]", "You 2 ❯")
    terminal.send(CTRL_C)
    terminal.wait_for("press Ctrl-C again to leave")
    terminal.send(CTRL_C)
    assert terminal.wait_for_exit() == 0
    assert terminal.text().rstrip().rpartition("\n")[2].startswith("to go on: agent --resume")
    assert b"\x1b" not in terminal.raw


def test_without_a_terminal_lines_are_read_until_the_input_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-m", STAGE, "plain", "preview"],
        input=b"tools\r\nsilent?\n/exit\nnever read\n",
        capture_output=True,
        timeout=30,
        check=True,
    )
    text = done.stdout.decode()
    assert "Done: both lines." in text
    assert "you said silent?" in text
    assert "never" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("given", ["", "last line without an end"])
def test_the_end_of_the_input_ends_the_program_with_0(given: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", STAGE, "plain", "preview"],
        input=given.encode(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert given in done.stdout.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_characters_that_the_encoding_lacks_are_degraded(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", STAGE, "plain", "preview"],
        input="██ ✅ 漢字 café …\n".encode(),
        capture_output=True,
        timeout=30,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0"},
    )
    text = done.stdout.decode(encoding)
    assert "you said" in text
    assert "You 2" in text
    assert ("漢字" in text) == (encoding == "utf-8")
    assert ("café" in text) == (encoding != "ascii")


def test_a_terminal_of_ascii_gets_an_ascii_prompt(stage: Stage) -> None:
    terminal = stage(PYTHONIOENCODING="ascii")
    terminal.wait_for("You 1 > 0%")
    terminal.send("hello\r")
    terminal.wait_for("you said hello", "You 2 >")


GIVEN_BACK = """
import os, pty, signal, sys
from supervisor.screen.tty import given_back
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
try:
    with given_back(pty.openpty()[1]):
        os.kill(os.getpid(), signal.SIGTERM)
finally:
    print("taken down")
"""


def test_a_sigterm_before_the_repl_listens_is_also_heard_by_who_started_it() -> None:
    """A rehearsal does, and has a stage to take down."""
    done = subprocess.run([sys.executable, "-c", GIVEN_BACK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "taken down\n"), done.stderr


def test_what_is_typed_in_an_ascii_locale_is_still_what_the_session_gets(stage: Stage) -> None:
    terminal = stage(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii:replace")
    terminal.wait_for("You 1 > 0%")
    terminal.send("length grüße 漢字\r")
    terminal.wait_for("8 characters")
