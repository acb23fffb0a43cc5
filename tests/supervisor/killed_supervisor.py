"""A supervisor to be killed: it runs the commands it is given in one pool and prints its processes' pids.

Run as a program by test_kill.py: `python killed_supervisor.py ROOT WITHOUT COMMAND...`.
"""

import os
import sys
from pathlib import Path

import trio
from msgspec.structs import replace

from supervisor import machine
from tests.supervisor.pool_play import LAUNCH, Site, call, processes


async def main(*arguments: str) -> None:
    root, without, *commands = arguments
    machine.harden()
    site = Site(Path(root))
    async with (
        site.pool(launch=replace(LAUNCH, without=tuple(without.split(",")))) as pool,
        trio.open_nursery() as nursery,
    ):
        await pool.ready()
        zygote, worker = processes()
        print(os.getpid(), zygote, worker, flush=True)
        for command in commands:
            nursery.start_soon(pool.run, call(command), lambda result: None, lambda text: None)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
