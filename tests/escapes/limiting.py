"""Attempts to use the machine up.  Each has a small limit of its own, and is small enough to do no harm where
the limit fails: what has not struck then is seen by how the command ended.
"""

from dataclasses import dataclass

from protocol.policy import Limit, Limits

_MB = 1024**2


@dataclass(frozen=True)
class Bomb:
    """`limit`: what must have ended it, by the result's own field.  After it the worker serves another
    command, and nothing with the decoys' mark among its arguments is left."""

    name: str
    script: str
    limits: Limits
    limit: Limit


BOMBS = (
    Bomb(
        "a fork bomb",
        # Each generation lives for a moment only, and there are at most 300 of them.
        "bomb() { [ $1 -gt 0 ] && { bomb $(($1 - 1)) | bomb $(($1 - 1)) & };"
        " exec -a left-$MARK sleep 20; }; bomb 9",
        Limits(processes=64),
        Limit.PROCESSES,
    ),
    Bomb(
        "forks until there are no more",
        "for i in {1..200}; do (exec -a left-$MARK sleep 20) & done; wait",
        Limits(processes=40),
        Limit.PROCESSES,
    ),
    Bomb(
        "a hog of memory",
        'exec -a left-$MARK "$PY" -I -S -c \'import time\nheld = []\nfor i in range(60):\n'
        '    held.append(bytearray(b"x") * 10_000_000); time.sleep(0.02)\ntime.sleep(5)\'',
        Limits(memory_bytes=200 * _MB),
        Limit.MEMORY,
    ),
    Bomb("a flood of output", "timeout 10 yes", Limits(output_bytes=20 * _MB), Limit.OUTPUT),
    Bomb(
        "a file that grows and grows",
        "head -c 40000000 /dev/zero > big",
        Limits(file_bytes=10 * _MB),
        Limit.FILE_SIZE,
    ),
    Bomb(
        "a loop that never ends", "timeout 20 bash -c 'while :; do :; done'", Limits(cpu_seconds=1), Limit.CPU
    ),
    Bomb(
        "many files that fill the disk",
        "for i in {1..60}; do head -c 10000000 /dev/zero > $TMPDIR/fill$i; sleep 0.02; done",
        Limits(disk_bytes=100 * _MB),
        Limit.DISK,
    ),
    Bomb(
        "a command that takes too long",
        "setsid bash -c \"trap '' TERM; exec -a left-$MARK sleep 60\" & exec -a left-$MARK sleep 60",
        Limits(command_seconds=0.5, grace_seconds=0.2),
        Limit.WALL,
    ),
)

SURVIVORS = (
    "setsid bash -c 'exec -a left-$MARK sleep 600' & disown;"
    " (setsid bash -c 'exec -a left-$MARK sleep 600 &' &);"
    " nohup bash -c \"trap '' TERM HUP; exec -a left-$MARK sleep 600\" > /dev/null 2>&1 &"
)
"""What is still there after its call; it must be gone once the worker is."""
SURVIVE = "what leaves its session, its parent and its call"
