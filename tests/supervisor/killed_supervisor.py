"""A supervisor to be killed: it runs the commands it is given in one pool and prints its processes' pids.

Run as a program by test_kill.py: `python killed_supervisor.py ROOT COMMAND...`.
"""

import os
import sys
from pathlib import Path

import trio

from supervisor import machine
from tests.supervisor.pool_play import Site, call


async def main(*arguments: str) -> None:
    root, *commands = arguments
    machine.harden()
    site = Site(Path(root))
    async with site.pool() as pool, trio.open_nursery() as nursery:
        about = (await site.play(pool, "!about")).text.split()
        print(os.getpid(), about[1], about[0], flush=True)
        for command in commands:
            nursery.start_soon(pool.run, call(command), lambda result: None, lambda text: None)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
