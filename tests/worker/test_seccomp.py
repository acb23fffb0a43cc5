"""The filter of system calls: its program run by an interpreter of our own, and by the kernel."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.policy import Network, Rung
from worker.sandbox import seccomp
from worker.sandbox.seccomp import Instruction, Rule, program, rules
from worker.sandbox.syscalls import PROCESSORS

_ALLOW = 0x7FFF0000
_X86_32 = 0x40000003
_X32 = 0x40000000

RUNGS = [
    (rung, network, landlock)
    for rung in (Rung.FULL, Rung.LANDLOCK)
    for network in Network
    for landlock in (0, 1, 3, 7)
]


def run(filter: tuple[Instruction, ...], number: int, arguments: tuple[int, ...], audit: int) -> int:
    """The errno with which a call fails, 0 where it is allowed.  What can't be is an error of ours."""
    data = number.to_bytes(4, "little") + audit.to_bytes(4, "little") + bytes(8)
    data += b"".join(argument.to_bytes(8, "little") for argument in (*arguments, *[0] * 6)[:6])
    held, at = 0, 0
    while True:
        one = filter[at]
        match one.code:
            case 0x20:
                assert one.value % 4 == 0
                held = int.from_bytes(data[one.value : one.value + 4], "little")
            case 0x15 | 0x35 | 0x45:
                true = {
                    0x15: held == one.value,
                    0x35: held >= one.value,
                    0x45: bool(held & one.value),
                }[one.code]
                at += one.true if true else one.false
            case 0x06:
                if one.value == _ALLOW:
                    return 0
                assert one.value >> 16 == 0x0005, "nothing is ever killed"
                return one.value & 0xFFFF
            case other:
                raise AssertionError(f"no instruction: {other:#x}")
        at += 1


class Machine:
    def __init__(self, name: str, rules: tuple[Rule, ...]) -> None:
        self.processor = PROCESSORS[name]
        self.filter = program(self.processor, rules)

    def call(self, name: str, *arguments: int) -> int:
        return run(self.filter, self.processor.numbers[name], arguments, self.processor.audit)

    def number(self, number: int) -> int:
        return run(self.filter, number, (), self.processor.audit)


@pytest.fixture(params=list(PROCESSORS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("rung", "network", "landlock"), RUNGS)
def test_every_call_gets_the_verdict_of_its_rule_and_all_others_are_allowed(
    name: str, rung: Rung, network: Network, landlock: int
) -> None:
    made = rules(rung, network, landlock)
    machine = Machine(name, made)
    always = {rule.call: rule.error for rule in made if not rule.tests}
    tested = {rule.call for rule in made if rule.tests}
    assert len(made) == len(always) + len(tested), "one rule for each call"
    names = {number: call for call, number in machine.processor.numbers.items()}
    for number in range(600):
        call = names.get(number, "")
        if call not in tested:
            assert machine.number(number) == always.get(call, 0), (number, call)


def test_every_named_call_has_a_number_on_the_usual_processor() -> None:
    named = {rule.call for rung, network, landlock in RUNGS for rule in rules(rung, network, landlock)}
    named |= {rule.call for rule in seccomp.command_rules(Rung.LANDLOCK)}
    assert named == set(PROCESSORS["x86_64"].numbers)
    assert named - set(PROCESSORS["aarch64"].numbers) == {"chmod", "ioperm", "iopl"}
    for processor in PROCESSORS.values():
        assert len(set(processor.numbers.values())) == len(processor.numbers)


def test_calls_made_in_another_way_are_refused(name: str) -> None:
    machine = Machine(name, rules(Rung.FULL, Network.OFF, 7))
    assert run(machine.filter, 1, (), _X86_32) == errno.EPERM
    other = next(one for one in PROCESSORS.values() if one is not machine.processor)
    assert run(machine.filter, 1, (), other.audit) == errno.EPERM
    assert machine.number(_X32 + 1) == (errno.ENOSYS if name == "x86_64" else 0)


@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 1 << 30])
def test_clone_makes_threads_and_processes_but_no_namespace(name: str, flag: int) -> None:
    machine = Machine(name, rules(Rung.FULL, Network.OFF, 7))
    thread, process = 0x3D0F00, 17
    assert machine.call("clone", thread) == machine.call("clone", process) == 0
    assert machine.call("clone", flag | process) == errno.EPERM
    assert machine.call("clone3") == errno.ENOSYS


def test_a_terminal_can_t_be_typed_into_whatever_the_upper_half_of_the_request_says(name: str) -> None:
    machine = Machine(name, rules(Rung.FULL, Network.OFF, 7))
    for request in (0x5412, 0x541C, 0x5412 | 1 << 32, 0x541C | 0xDEAD << 40):
        assert machine.call("ioctl", 0, request) == errno.EPERM
    assert machine.call("ioctl", 0, 0x5401) == machine.call("ioctl", 0, 0x5413) == 0


@pytest.mark.parametrize(("rung", "network", "landlock"), RUNGS)
def test_families_of_sockets_by_rung_and_network(
    name: str, rung: Rung, network: Network, landlock: int
) -> None:
    machine = Machine(name, rules(rung, network, landlock))
    ordinary = {int(family) for family in seccomp.OF_NAMESPACES}
    allowed = ordinary if rung is Rung.FULL else set()
    if rung is Rung.LANDLOCK and network is Network.ON:
        allowed = ordinary - {int(socket.AF_UNIX)}
    assert {family for family in range(50) if machine.call("socket", family) == 0} == allowed
    assert {family for family in range(50) if machine.call("socketpair", family) == 0} == {socket.AF_UNIX}
    # The kernel looks at the lower half only, and so must we.
    assert machine.call("socket", 40 | 1 << 32) == errno.EPERM


def test_a_command_changes_no_limits_and_no_priority_but_its_own(name: str) -> None:
    machine = Machine(name, seccomp.command_rules(Rung.LANDLOCK))
    assert machine.call("prlimit64", 0) == machine.call("setpriority", 0, 0) == 0
    assert machine.call("prlimit64", 4711) == machine.call("setpriority", 0, 4711) == errno.EPERM
    assert machine.call("setpriority", 1, 0) == machine.call("setpriority", 2, 0) == errno.EPERM
    assert seccomp.command_rules(Rung.FULL) == ()


def test_what_an_old_landlock_does_not_close_the_filter_does(name: str) -> None:
    old, new = (Machine(name, rules(Rung.LANDLOCK, Network.OFF, version)) for version in (2, 3))
    assert (old.call("truncate"), new.call("truncate")) == (errno.EPERM, 0)
    none = Machine(name, rules(Rung.FULL, Network.OFF, 0))
    assert none.call("ptrace") == none.call("process_vm_readv") == errno.EPERM
    assert new.call("ptrace") == 0


ATTEMPTS = {
    "unshare": "libc.unshare(0x10000000)",
    "vsock": "libc.socket(40, 1, 0)",
    "udp": "libc.socket(2, 2, 0)",
    "io_uring": "libc.syscall(425, 1, ctypes.create_string_buffer(120))",
    "keyctl": "libc.syscall({keyctl}, 0, -3, 1)",
    "shared memory": "libc.shmget(0, 4096, 0o600)",
}
FILTERED = """
import ctypes, os, sys
from protocol.policy import Network, Rung
from worker.sandbox import prctl, seccomp
if sys.argv[2] == "filtered":
    prctl.gain_no_privileges()
    made = seccomp.rules(Rung.LANDLOCK, Network.OFF, 7)
    seccomp.Filter(seccomp.program(seccomp.processor(), made)).install()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
sys.exit(7 if eval(sys.argv[1]) < 0 and ctypes.get_errno() == 1 else 0)
"""
needs_filter = pytest.mark.skipif(seccomp.processor() is None, reason="no filter for this processor")


def attempted(code: str, filtered: str) -> int:
    root = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-c", FILTERED, code, filtered], cwd=root, check=False).returncode


@needs_filter
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_kernel_takes_the_filter_and_refuses(attempt: str) -> None:
    code = ATTEMPTS[attempt].format(keyctl=PROCESSORS[os.uname().machine].numbers["keyctl"])
    assert attempted(code, "filtered") == 7
    if attempted(code, "open") != 0:
        pytest.skip("refused here without the filter too")


@needs_filter
def test_threads_and_processes_can_still_be_made() -> None:
    code = (
        "-1 if __import__('threading').Thread(target=print).start() or "
        "__import__('subprocess').run(['true']).returncode else 0"
    )
    assert attempted(code, "filtered") == 0
