"""`python -m tests.refusing COMMAND...`: run a command where no namespace can be had, as in many containers.

A filter refuses the system calls as a container's profile does; it holds for all that the command starts.
"""

import errno
import os
import sys

from worker.sandbox import prctl
from worker.sandbox.seccomp import Bits, Filter, Rule, processor, program

_NEW_NAMESPACES = 0x7E020000

RULES = (
    Rule("unshare"),
    Rule("setns"),
    Rule("mount"),
    Rule("clone", (Bits(0, _NEW_NAMESPACES),)),
    Rule("clone3", error=errno.ENOSYS),
)

if __name__ == "__main__":
    here = processor()
    if here is None:
        sys.exit("no filter can be made for this processor")
    prctl.gain_no_privileges()
    Filter(program(here, RULES)).install()
    os.execvp(sys.argv[1], sys.argv[1:])
