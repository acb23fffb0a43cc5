"""Attempts to reach something by sockets and other ways between processes, with the network off."""

import contextlib
import os
import socket

from tests.escapes.attack import ISOLATED, Attack, Who, arrives, leaks, nothing_below_run, python, succeeds
from tests.escapes.decoys import Decoys

ROOT = frozenset({Who.ROOT})
_SYSCALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_SOCKET = "import socket\nsocket.setdefaulttimeout(1)\n"
_NO_X32 = "kernels are rarely built with x32"

_VSOCK, _PACKET, _ALG, _KEY = 40, 17, 38, 15
_KINDS = {_VSOCK: 1, _PACKET: 3, _ALG: 5, _KEY: 3}
"""The type of socket that each family has."""

_INT80 = (
    "import ctypes, mmap\n"
    # socket(AF_VSOCK, SOCK_STREAM, 0) by the 32-bit gate: number 359.
    "code = bytes.fromhex('53b867010000bb28000000b90100000031d2cd805bc3')\n"
    "page = mmap.mmap(-1, 4096, prot=7)\n"
    "page.write(code)\n"
    "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
    "sys.exit(call() < 0)"
)


def unix(place: str) -> str:
    return python(_SOCKET + f"socket.socket(socket.AF_UNIX).connect({place})")


def _from_outside(decoys: Decoys) -> str:
    """Whether the port that the script listens at can be reached."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", _FREE_PORT), timeout=0.1):
        return "it can be reached from outside"
    return ""


_FREE_PORT = 20_000 + os.getpid() % 10_000


def families(*numbers: int) -> str:
    """Ends well if any of these sockets can be had."""
    return python(
        "import socket\n"
        f"for family, kind in {[(number, _KINDS[number]) for number in numbers]}:\n"
        "    try: socket.socket(family, kind, 2 if family == 15 else 0); sys.exit(0)\n"
        "    except OSError as error: print(family, error)\n"
        "sys.exit(1)"
    )


def _no_family(decoys: Decoys) -> str:
    """Whether this kernel has none of them for this user."""
    for family, kind in ((_PACKET, socket.SOCK_RAW), (_ALG, socket.SOCK_SEQPACKET)):
        with contextlib.suppress(OSError), socket.socket(family, kind):
            return ""
    return "none of them can be had here without a sandbox either"


_LIST = ("network:allowed.test:443", "network:*.allowed.test:80")

_SHARED_MEMORY = (
    _SYSCALL + "libc.shmat.restype = ctypes.c_void_p\n"
    "segment = libc.shmget(int(E['SHM']), 0, 0)\n"
    "print(ctypes.string_at(libc.shmat(segment, None, 0), 40) if segment >= 0 else ctypes.get_errno())"
)

REACHING = (
    Attack("connects to a service on the loopback", "exec 3<>/dev/tcp/127.0.0.1/$TCP", arrives),
    Attack("connects to an address of the machine", "exec 3<>/dev/tcp/$ADDRESS/$TCP", arrives),
    Attack(
        "sends a datagram",
        python(
            _SOCKET + "for host in ('127.0.0.1', E['ADDRESS']):\n"
            "    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (host, int(E['UDP'])))"
        ),
        arrives,
    ),
    Attack(
        "asks a name server by hand",
        python(
            _SOCKET
            + "asked = bytes.fromhex('000101000001000000000000') + b'\\x06secret\\x04test\\0\\0\\1\\0\\1'\n"
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(asked, ('127.0.0.1', int(E['UDP'])))"
        ),
        arrives,
    ),
    Attack(
        "fetches a page by curl", "curl -s -m 0.4 http://127.0.0.1:$TCP/ https://127.0.0.1:$TCP/", arrives
    ),
    Attack(
        "opens a raw socket",
        python(
            "import socket\nping = b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0'\n"
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(ping, (E['ADDRESS'], 0))"
        ),
        succeeds,
        who=ROOT,
    ),
    Attack(
        "connects to a socket below /run",
        unix("E['RUN'] + '/docker.sock'"),
        arrives,
        uncontrolled=nothing_below_run,
    ),
    Attack("connects to a socket below /tmp", unix("E['INTMP'] + '/tmux.sock'"), arrives),
    Attack("connects to an agent's socket in the home", unix("E['VICTIM'] + '/agent.sock'"), arrives),
    Attack("connects to a socket in a directory that it may read", unix("E['OPT'] + '/tool.sock'"), arrives),
    Attack("connects to an abstract socket", unix("'\\0' + E['MARK']"), arrives),
    Attack("opens a socket to the virtual machine's host", families(_VSOCK), succeeds),
    Attack(
        "opens sockets of packets, keys or the kernel's ciphers",
        families(_PACKET, _ALG, _KEY),
        succeeds,
        uncontrolled=_no_family,
    ),
    Attack(
        "listens where it can be reached from outside",
        python(
            _SOCKET + f"made = socket.socket()\nmade.setsockopt(1, 2, 1)\n"
            f"made.bind(('0.0.0.0', {_FREE_PORT}))\nmade.listen()\n"
            "made.settimeout(0.4)\nmade.accept()"
        ),
        lambda decoys, ran: "",
        meanwhile=_from_outside,
    ),
    Attack(
        "reads shared memory of a process outside",
        python(_SHARED_MEMORY),
        leaks,
    ),
    Attack(
        "finds the way to an agent in its environment",
        "env | grep -E '^(SSH_AUTH_SOCK|DBUS_SESSION_BUS_ADDRESS|DISPLAY|GIT_EXTERNAL_DIFF|PYTHONPATH)='",
        succeeds,
    ),
    Attack(
        "opens a socket by a 32-bit system call",
        python(_INT80),
        succeeds,
        uncontrolled="" if os.uname().machine == "x86_64" else "only x86_64 has a 32-bit gate",
    ),
    Attack(
        "opens a socket by an x32 system call",
        python(_SYSCALL + "sys.exit(libc.syscall(0x40000000 | 41, 1, 1, 0) < 0)"),
        succeeds,
        uncontrolled=_NO_X32,
    ),
    Attack(
        "connects without the proxy, where some hosts are allowed",
        "unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy;"
        " curl -s -m 0.4 http://127.0.0.1:$TCP/; exec 3<>/dev/tcp/$ADDRESS/$TCP",
        arrives,
        grants=_LIST,
        rungs=ISOLATED,
    ),
    Attack(
        "asks the proxy for what is not allowed, by every spelling of an address",
        "unset no_proxy NO_PROXY; for host in 127.0.0.1 127.1 2130706433 0x7f.1 localhost $ADDRESS"
        " [::ffff:127.0.0.1] allowed.test.localhost; do"
        " for url in http https; do curl -s -m 0.4 $url://$host:$TCP/ & done;"
        " curl -s -m 0.4 -p http://$host:$TCP/ & done; wait",
        arrives,
        grants=_LIST,
        rungs=ISOLATED,
    ),
)
