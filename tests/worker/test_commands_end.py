"""run_command: the end of a command that was told to end, and what a script may do to what we read of it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.policy import Limits
from protocol.wire import Status
from tests.worker.command_desk import CommandDesk, command_desk

GRACE = 5.0


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[CommandDesk]:
    with command_desk(tmp_path, Limits(grace_seconds=GRACE)) as made:
        yield made


def test_a_program_that_takes_a_process_over_after_the_signal_is_told_too(desk: CommandDesk) -> None:
    # What happens by chance when a signal meets a shell's child between its fork and its exec.
    cancelled = threading.Event()
    ends = time.monotonic()

    def say(text: str) -> None:
        nonlocal ends
        if "ready" in text:
            ends = time.monotonic()
            cancelled.set()

    script = "trap 'exec sleep 1000' TERM; echo ready; while :; do read -t 0.01 <> <(:) || :; done"
    outcome = desk.run(script, cancelled=cancelled, say=say)

    assert outcome.status is Status.CANCELLED
    assert time.monotonic() - ends < GRACE / 2


@pytest.mark.parametrize(
    "made",
    [
        'mkfifo "$POLIER_PLACE"',
        'ln -s "$PWD/other" "$POLIER_PLACE"',
        'mkdir "$POLIER_PLACE"',
        'echo other >"$POLIER_PLACE"',
        'head -c 50000000 /dev/zero | tr "\\0" / >"$POLIER_PLACE"',
    ],
)
def test_what_a_script_puts_where_a_shell_tells_its_place_moves_nobody_and_holds_nobody_up(
    desk: CommandDesk, made: str
) -> None:
    (desk.workspace / "other").write_text("/\n")
    ended = threading.Event()

    def play() -> None:
        assert desk.run(f"{made}; kill -KILL $$").status is Status.FAILED
        ended.set()

    threading.Thread(target=play, daemon=True).start()

    assert ended.wait(10)
    assert desk.desk.cwd == desk.workspace


def test_a_script_that_ends_where_it_began_leaves_no_word_of_it(desk: CommandDesk, tmp_path: Path) -> None:
    assert desk.run('cd / && cd "$OLDPWD"; echo here').text == "here"
    assert desk.run("cd ..; mkdir -p a/b; cd a/b").status is Status.DONE
    assert desk.desk.cwd == tmp_path / "a" / "b"
    assert list((tmp_path / "tmp").iterdir()) == []
