"""A worker with the tests' own tools: `python -m tests.worker.serving WIRE [DESCRIPTORS]`."""

import sys

from tests.worker.plain_tools import run
from worker.serve.process import away_from_streams, leave_streams, serve, settle

if __name__ == "__main__":
    fds = [away_from_streams(int(argument)) for argument in sys.argv[1:]]
    settle()
    leave_streams()
    serve(fds[0], fds[1] if len(fds) > 1 else None, run)
