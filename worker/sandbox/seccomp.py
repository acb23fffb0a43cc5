"""The filter of system calls: what no command needs and what goes round the other walls is refused.

Everything else is allowed, and nothing is killed: a program that is refused gets an error that it can report.
A filter is a program of the classic Berkeley packet filter, generated here from rules; it stays with the
thread that installs it and with all that this thread starts.  Numbers of calls: syscalls.py.
"""

import ctypes
import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator

from msgspec import Struct

from protocol.policy import Network, Rung
from worker.sandbox.syscalls import PROCESSORS, Processor

_SET_MODE_FILTER = 1
_SPEC_ALLOW = 1 << 2
"""Older kernels would slow down every process with a filter otherwise."""
_SYSCALL = {"x86_64": 317, "aarch64": 277}
"""The number of seccomp(2) itself."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where the kernel lays what a filter may read.  Both processors are little-endian, so the lower half of an
argument comes first; the kernel itself looks at no more of those that are tested here."""
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET; clone(2) can't name NEWTIME."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Both put text into a terminal as if somebody had typed it."""
_PRIORITY_OF_PROCESS = 0
"""PRIO_PROCESS; the others reach a whole group, or all that the user runs."""

REFUSED = (
    "acct", "add_key", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module", "finit_module",
    "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register",
    "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "mount",
    "mount_setattr", "move_mount", "open_by_handle_at", "open_tree", "open_tree_attr", "perf_event_open",
    "pidfd_getfd", "pivot_root", "quotactl", "quotactl_fd", "reboot", "request_key", "setdomainname",
    "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2", "unshare",
    "userfaultfd", "vhangup",
)  # fmt: skip
"""On every rung.  They change the machine, open namespaces anew, or do in the kernel what the filter would
refuse (io_uring), or reach keys that belong to the user's login."""

_TRACING = ("process_vm_readv", "process_vm_writev", "ptrace")
_INTERPROCESS = ("msgget", "semget", "shmget")
_MODES = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2))
"""What changes a file's mode, and the number of the argument that holds it."""

OF_NAMESPACES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Families that a network namespace keeps to itself.  Not VSOCK: it reaches a virtual machine's host."""

OF_THE_NETWORK = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Without namespaces.  Not UNIX: programs of the machine listen there that run what they are told (a user's
bus, a container engine), and no rule of Landlock about files keeps anybody from connecting."""


class Bits(Struct, frozen=True):
    """True where the argument has one of these bits."""

    argument: int
    mask: int


class OneOf(Struct, frozen=True):
    argument: int
    values: tuple[int, ...]


class NoneOf(Struct, frozen=True):
    argument: int
    values: tuple[int, ...]


Test = Bits | OneOf | NoneOf


class Rule(Struct, frozen=True):
    """This call fails with `error`: always, or where one of the tests is true."""

    call: str
    tests: tuple[Test, ...] = ()
    error: int = errno.EPERM


class Instruction(Struct, frozen=True):
    code: int
    value: int
    true: int = 0
    """Instructions to skip."""
    false: int = 0


def rules(rung: Rung, network: Network, landlock: int) -> tuple[Rule, ...]:
    """What a worker and its commands are refused.  `landlock`: the version that is in force, 0 for none."""
    families = OF_NAMESPACES if rung is Rung.FULL else OF_THE_NETWORK if network is Network.ON else ()
    found = [
        *(Rule(name) for name in REFUSED),
        Rule("clone", (Bits(0, _NEW_NAMESPACES),)),
        # Its flags lie behind a pointer; told that it doesn't exist, the C library uses clone.
        Rule("clone3", error=errno.ENOSYS),
        Rule("ioctl", (OneOf(1, (_TIOCSTI, _TIOCLINUX)),)),
        Rule("socket", (NoneOf(0, families),)),
        Rule("socketpair", (NoneOf(0, (socket.AF_UNIX,)),)),
    ]
    if rung is not Rung.FULL:
        # The machine's, as there is no namespace for them.
        found += [Rule(name) for name in _INTERPROCESS]
        # Landlock lets modes of files elsewhere be changed: root's shell could be made everybody's.
        found += [Rule(name, (Bits(at, stat.S_ISUID),)) for name, at in _MODES]
        if landlock < 3:
            found.append(Rule("truncate"))
    if landlock < 1:
        # With Landlock a command traces only what it has started itself.
        found += [Rule(name) for name in _TRACING]
    return tuple(found)


def command_rules(rung: Rung) -> tuple[Rule, ...]:
    """What commands are refused beyond that and their worker is not, since it sets their limits: to change
    those of other processes, which Landlock lets through."""
    if rung is Rung.FULL:
        return ()
    others = (NoneOf(0, (_PRIORITY_OF_PROCESS,)), NoneOf(1, (0,)))
    return Rule("prlimit64", (NoneOf(0, (0,)),)), Rule("setpriority", others)


def processor() -> Processor | None:
    """This machine's; None where no filter can be made for it."""
    machine = os.uname().machine
    # A 32-bit interpreter on a 64-bit kernel makes calls that this filter would refuse, all of them.
    return PROCESSORS.get(machine) if ctypes.sizeof(ctypes.c_void_p) == 8 else None


def program(processor: Processor, rules: tuple[Rule, ...]) -> tuple[Instruction, ...]:
    """The filter for these rules, one for each call.  Calls made in another way (32 bits) are refused too."""
    made = [
        Instruction(_LOAD, _ARCHITECTURE),
        Instruction(_EQUAL, processor.audit, true=1),
        _refusal(errno.EPERM),
        Instruction(_LOAD, _NUMBER),
    ]
    if processor.variants:
        made += [Instruction(_AT_LEAST, processor.variants, false=1), _refusal(errno.ENOSYS)]
    for rule in rules:
        if (number := processor.numbers.get(rule.call)) is not None:
            block = list(_block(rule))
            made += [Instruction(_EQUAL, number, false=len(block)), *block]
    return (*made, Instruction(_RETURN, _ALLOW))


def _block(rule: Rule) -> Iterator[Instruction]:
    """What is done once the call's number fits; it always returns, as it may have lost the number."""
    if not rule.tests:
        yield _refusal(rule.error)
        return
    for test in rule.tests:
        yield Instruction(_LOAD, _ARGUMENTS + 8 * test.argument)
        match test:
            case Bits(mask=mask):
                yield Instruction(_ANY_BIT, mask, false=1)
            case OneOf(values=values):
                last = len(values) - 1
                for at, value in enumerate(values):
                    yield Instruction(_EQUAL, value, true=last - at, false=int(at == last))
            case NoneOf(values=values):
                for at, value in enumerate(values):
                    yield Instruction(_EQUAL, value, true=len(values) - at)
        yield _refusal(rule.error)
    yield Instruction(_RETURN, _ALLOW)


def _refusal(error: int) -> Instruction:
    return Instruction(_RETURN, _ERRNO | error)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


class Filter:
    """A program in the kernel's form, made once and installed by any number of threads."""

    def __init__(self, instructions: tuple[Instruction, ...]) -> None:
        self._bytes = b"".join(
            struct.pack("=HBBI", one.code, one.true, one.false, one.value) for one in instructions
        )
        self._program = _Program(len(instructions), self._bytes)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._number = _SYSCALL[os.uname().machine]

    def install(self) -> None:
        """For this thread and what it starts.  Needs no_new_privs.  Raises OSError."""
        failed: int = self._libc.syscall(
            ctypes.c_long(self._number),
            ctypes.c_uint(_SET_MODE_FILTER),
            ctypes.c_uint(_SPEC_ALLOW),
            ctypes.byref(self._program),
        )
        if failed != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"seccomp: {os.strerror(code)}")
