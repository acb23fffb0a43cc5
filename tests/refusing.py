"""`python -m tests.refusing COMMAND...`: run a command where no namespace can be had, as in many containers.

`--landlock` before the command: no Landlock either, as with an old kernel.

A filter refuses the system calls as a container's profile does; it holds for all that the command starts.
"""

import errno
import os
import sys

from msgspec.structs import replace

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

LANDLOCK = Rule("landlock_create_ruleset", error=errno.ENOSYS)
_LANDLOCK_NUMBER = 444
"""On every processor."""

if __name__ == "__main__":
    here = processor()
    if here is None:
        sys.exit("no filter can be made for this processor")
    prctl.gain_no_privileges()
    here = replace(here, numbers={**here.numbers, LANDLOCK.call: _LANDLOCK_NUMBER})
    command = sys.argv[1:]
    rules: tuple[Rule, ...] = RULES
    if command[0] == "--landlock":
        rules, command = (*RULES, LANDLOCK), command[1:]
    Filter(program(here, rules)).install()
    os.execvp(command[0], command)
