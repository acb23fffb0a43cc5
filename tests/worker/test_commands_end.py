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
