"""A worker on its own, `python -m worker WIRE [DESCRIPTORS]`: two numbers of inherited, connected sockets.

The supervisor never starts one like this; benchmarks and tests do.
"""

import sys
from typing import NoReturn

from worker.serve.process import away_from_streams, leave_streams, serve, settle
from worker.tools.registry import run


def main(arguments: list[str]) -> NoReturn:
    fds = [away_from_streams(int(argument)) for argument in arguments]
    settle()
    leave_streams()
    serve(fds[0], fds[1] if len(fds) > 1 else None, run)


if __name__ == "__main__":
    main(sys.argv[1:])
