"""A birth by way of bwrap: what is forked becomes bwrap, and bwrap starts an interpreter in its namespaces.

The zygote's child is bwrap, which stays until the worker has ended and ends with its exit code; when it is
killed the kernel ends the worker.  The worker's own part is the same as everywhere (inside.py).
"""

import importlib
import os
import socket
import sys
from typing import NoReturn

from protocol.control import decode_birth, encode_birth
from worker.birth.inside import Newborn, become, steps_of
from worker.birth.line import Line, Refused
from worker.sandbox import bubblewrap, namespaces
from worker.sandbox.bubblewrap import UnsuitableError
from worker.serve.process import LEFT, away_from_streams, nothing

_BOOT = "import sys; sys.path += sys.argv[3:]; from worker.birth.wrapped import main; main(sys.argv[1:3])"
_COMPLAINT_BYTES = 2000


def enter_bubblewrap(newborn: Newborn, bwrap: str, complaints: int) -> NoReturn:
    """Become bwrap, which prints to `complaints`; the worker that it starts prints where we do."""
    birth = os.memfd_create("birth")
    os.write(birth, encode_birth(newborn.birth))
    errors = os.dup(2)
    outside = namespaces.listener_outside()
    inherited = [newborn.line.fileno(), newborn.wire, newborn.descriptors, birth, errors]
    inherited += [] if outside is None else [outside.fileno()]
    policy = newborn.birth.policy
    program = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT]
    numbers = " ".join(map(str, inherited))
    program += [numbers, newborn.run.__module__]
    program += [os.path.abspath(place) for place in sys.path]  # noqa: PTH100 - of text, for text
    try:
        command = bubblewrap.command(bwrap, steps_of(policy), policy, program)
        for fd in inherited:
            os.set_inheritable(fd, True)
        os.dup2(complaints, 2)
        os.execv(bwrap, command.words)
    except UnsuitableError as error:
        newborn.line.say(Refused(str(error), lasting=False))
    except OSError as error:
        newborn.line.say(Refused(f"{bwrap}: {error.strerror}"))
    os._exit(LEFT)


def main(arguments: list[str]) -> NoReturn:
    """`arguments`: the numbers of the line, the wire, the second socket, a file with the Birth, stderr and,
    where there is one, a listener outside; the registry's module."""
    line, wire, descriptors, birth, errors, *outside = map(int, arguments[0].split())
    os.dup2(errors, 2)
    os.close(errors)
    content = os.pread(birth, os.fstat(birth).st_size, 0)
    os.close(birth)
    newborn = Newborn(
        Line(socket.socket(fileno=away_from_streams(line))),
        away_from_streams(wire),
        away_from_streams(descriptors),
        decode_birth(content),
        importlib.import_module(arguments[1]).run,
        lambda: nothing,
    )
    become(newborn, outside=socket.socket(fileno=outside[0]) if outside else None)


def complaint(fd: int) -> str:
    """What bwrap printed, on one line."""
    return " ".join(os.pread(fd, _COMPLAINT_BYTES, 0).decode(errors="replace").split())
