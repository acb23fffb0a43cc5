"""Attempts to harm processes outside, to get at their namespaces, and at the user's terminal."""

import os
from pathlib import Path

from tests.escapes.attack import Attack, Ran, Who, harms, python, succeeds
from tests.escapes.decoys import Decoys

ROOT = frozenset({Who.ROOT})
_SYSCALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_PROCESSORS = "on which processors"
_HARD = "every process of this user would be hit"


def _limited(decoys: Decoys, ran: Ran) -> str:
    for line in Path(f"/proc/{decoys.process.pid}/limits").read_text().splitlines():
        if line.startswith("Max open files") and line.split()[3] == "77":
            return "its limits are changed"
    return ""


def _nice(decoys: Decoys, ran: Ran) -> str:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    return "its priority is changed" if os.getpriority(os.PRIO_PROCESS, decoys.process.pid) > own else ""


def _bound(decoys: Decoys, ran: Ran) -> str:
    theirs = os.sched_getaffinity(decoys.process.pid)
    return "it is bound to fewer processors" if theirs < os.sched_getaffinity(0) else ""


def _scored(decoys: Decoys, ran: Ran) -> str:
    said = Path(f"/proc/{decoys.process.pid}/oom_score_adj").read_text().strip()
    return "its score is changed" if said == "777" else ""


def _typed(decoys: Decoys, ran: Ran) -> str:
    return "it typed into the terminal" if decoys.typed() else ""


def _shown(decoys: Decoys, ran: Ran) -> str:
    return "it wrote to the terminal" if decoys.shown() else ""


def _type(request: int) -> str:
    return python(
        "import fcntl, ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for name in ('/dev/tty', E['TTY'], '/dev/stdin', '/dev/stdout'):\n"
        "    try: fd = os.open(name, os.O_RDWR | os.O_NOCTTY)\n"
        "    except OSError as error: print(name, error); continue\n"
        "    for letter in b'x\\n':\n"
        f"        done = libc.ioctl(fd, ctypes.c_ulong({request}), ctypes.byref(ctypes.c_char(letter)))\n"
        "        print(name, done, ctypes.get_errno())"
    )


_LEGACY = Path("/proc/sys/dev/tty/legacy_tiocsti")
_NO_TIOCSTI = (
    "" if not _LEGACY.exists() or _LEGACY.read_text().strip() == "1" else "this kernel has it switched off"
)

MEDDLING = (
    Attack("signals another process of the user", "kill -USR1 $DECOY", harms),
    Attack("stops a process outside", "kill -STOP $DECOY", harms),
    Attack("signals the supervisor", "kill -0 $SUPERVISOR", succeeds),
    Attack("kills a process outside", "kill -KILL $DECOY", harms),
    Attack("kills a process group outside", "kill -KILL -- -$DECOY", harms),
    # A signal that nobody minds: the proof is that it doesn't arrive.
    Attack("signals all processes that there are", "kill -URG -- -1", harms, uncontrolled=_HARD),
    Attack(
        "changes limits of a process outside",
        "prlimit --pid $DECOY --nofile=77:77",
        _limited,
    ),
    Attack(
        "lowers the priority of processes outside",
        python(
            "for kind in (os.PRIO_PROCESS, os.PRIO_PGRP):\n"
            "    try: os.setpriority(kind, int(E['DECOY']), os.getpriority(kind, int(E['DECOY'])) + 1)\n"
            "    except OSError as error: print(error)"
        ),
        _nice,
    ),
    Attack(
        "binds a process outside to one processor",
        python("os.sched_setaffinity(int(E['DECOY']), {min(os.sched_getaffinity(0))})"),
        _bound,
        noted=_PROCESSORS,
    ),
    Attack(
        "signals a process outside by a pidfd",
        python("import signal\nsignal.pidfd_send_signal(os.pidfd_open(int(E['DECOY'])), signal.SIGUSR1)"),
        harms,
    ),
    Attack(
        "enters the namespaces of a process outside",
        python(
            _SYSCALL + "sys.exit(all(libc.setns(os.open(f'/proc/{pid}/ns/{kind}', os.O_RDONLY), 0) != 0\n"
            "    for pid in (1, E['DECOY']) for kind in ('mnt', 'net', 'ipc')))"
        ),
        succeeds,
        who=ROOT,
        uncontrolled="it works only where a container has left the right to it",
    ),
    Attack(
        "makes the kernel prefer a process outside as a victim",
        "echo 777 > /proc/$DECOY/oom_score_adj",
        _scored,
    ),
    Attack(
        "loads a program into the kernel, or counts its events",
        python(
            _SYSCALL + "made = libc.syscall(321, 0, (ctypes.c_uint * 32)(1, 4, 4, 1), 128)\n"
            "event = (ctypes.c_ulong * 16)(0x8000000001, 0)\n"
            "event[0] = 1 | (128 << 32)\n"
            "event[5] = 0b1100001\n"
            "counts = libc.syscall(298, event, 0, -1, -1, 0)\n"
            "print(made, counts, ctypes.get_errno())\n"
            "sys.exit(made < 0 and counts < 0)"
        ),
        succeeds,
    ),
    Attack(
        "makes itself more important than other processes",
        "renice -n -5 -p $$ || echo -17 > /proc/self/oom_score_adj",
        succeeds,
        who=ROOT,
    ),
    Attack("types into the user's terminal", _type(0x5412), _typed, uncontrolled=_NO_TIOCSTI),
    Attack(
        "types into the user's terminal by a number with high bits",
        _type(0xFFFF_FFFF_0000_5412),
        _typed,
        uncontrolled=_NO_TIOCSTI,
    ),
    Attack("writes to the user's terminal by /dev/tty", "echo x > /dev/tty", _shown),
    Attack(
        "writes to the user's terminal by its name", "echo x > $TTY", _shown, noted="terminals by their names"
    ),
)
