"""The way by bubblewrap: a program of the system makes namespaces and mounts, and starts Python in them.

`exec_bubblewrap` is the zygote's child until it becomes bwrap; `main` is the worker that bwrap starts.  The
zygote knows the worker by the pid of bwrap, which stays beside it and ends with it.
"""

import importlib
import os
import signal
import sys
from typing import NoReturn

from protocol.control import decode_birth
from worker.birth.inside import Newborn, become, refuse, steps_of
from worker.birth.line import Line, Refused
from worker.birth.measure import Measure
from worker.sandbox import bubblewrap, prctl
from worker.serve.process import LEFT, away_from_streams, nothing

_BOOT = "import sys; sys.path[:] = sys.argv[9:]; from worker.birth.again import main; main(sys.argv[2:9])"
_MARKER = "POLIER_SUPERVISOR"
"""By which a later run finds what outlived this one; it stands among the arguments too."""


def exec_bubblewrap(newborn: Newborn, complaint: int, content: int, program: tuple[str, ...]) -> NoReturn:
    """`complaint`: a file for what bwrap prints.  `content`: the Birth.  `program`: as in `main`."""
    prctl.die_with_parent(signal.SIGKILL)
    if newborn.line.is_over():
        os._exit(LEFT)
    bwrap = bubblewrap.find()
    if bwrap is None:
        why = f"there is no bwrap that only root can change at {', '.join(bubblewrap.PLACES)}"
        refuse(newborn, Refused(why), nothing)
    errors = os.dup(2)
    passed = (newborn.wire, newborn.descriptors, content, newborn.line.fileno(), errors)
    python = [sys.executable, "-I", "-S", "-X", "utf8", *(["-B"] if sys.dont_write_bytecode else [])]
    words = [*python, "-c", _BOOT]
    roots = [os.path.abspath(place) for place in sys.path]  # noqa: PTH100 - of text, for text
    words += [f"{_MARKER}={os.environ.get(_MARKER, '')}", *map(str, passed), *program, *roots]
    policy = newborn.birth.policy
    try:
        command = bubblewrap.command(bwrap, steps_of(policy), policy, words)
        for fd in passed:
            os.set_inheritable(fd, True)
        os.dup2(complaint, 2)
        os.execv(bwrap, command.words)
    except (OSError, bubblewrap.UnsuitableError) as refusal:
        refuse(newborn, Refused(str(refusal), lasting=False), nothing)


def main(arguments: list[str]) -> NoReturn:
    """`arguments`: numbers of the wire, the second socket, the Birth's file, the line to the zygote, a file
    for errors; then the registry's module and a measure's file."""
    *numbers, registry, rcfile = arguments
    wire, descriptors, content, line, errors = (away_from_streams(int(number)) for number in numbers)
    measure = Measure(rcfile)
    birth = decode_birth(os.pread(content, os.fstat(content).st_size, 0))
    os.close(content)
    os.dup2(errors, 2)
    os.close(errors)
    run = importlib.import_module(registry).run
    become(Newborn(Line.at(line), wire, descriptors, measure.allowed(birth), run, measure.begin))
