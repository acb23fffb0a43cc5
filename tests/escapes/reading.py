"""Attempts to read what is secret: files of the user, and what another process holds."""

from tests.escapes.attack import Attack, Who, leaks, nothing_below_run, python, succeeds

ROOT = frozenset({Who.ROOT})
_SYSCALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_NAMES = "names, sizes and modes"
_PROCESSES = "other processes"

_MEMORY = """
import ctypes
pid = int(E['DECOY'])
places = []
try:
    for line in open(f'/proc/{pid}/maps'):
        if '[stack]' in line:
            places.append([int(at, 16) for at in line.split()[0].split('-')])
except OSError as error: print(error)
"""

READING = (
    Attack("reads a private key below ~/.ssh", "cat $VICTIM/.ssh/id_ed25519", leaks),
    Attack("lists ~/.ssh", "ls $VICTIM/.ssh && ls $VICTIM", succeeds),
    Attack(
        "asks for size and times of a private key", "stat $VICTIM/.ssh/id_ed25519", succeeds, noted=_NAMES
    ),
    Attack("reads the credentials of a cloud", "cat $VICTIM/.aws/credentials", leaks),
    Attack("reads tokens of other programs", "cat $VICTIM/.config/gh/hosts.yml; cat $VICTIM/.netrc", leaks),
    Attack("reads the user's documents", "cat $VICTIM/Documents/letter.txt; grep -r sesame $VICTIM", leaks),
    Attack("reads what was said in another conversation", "cat $STATE/sessions/another/*", leaks),
    Attack("reads the environment of a process outside", "cat /proc/$DECOY/environ", leaks),
    Attack(
        "reads the memory of a process outside by /proc",
        python(
            _MEMORY + "for begin, end in places:\n"
            "    with open(f'/proc/{pid}/mem', 'rb', 0) as memory:\n"
            "        memory.seek(begin)\n"
            "        text = memory.read(end - begin)\n"
            "        at = text.find(b'DECOY_API_KEY')\n"
            "        print(text[at:at + 60])"
        ),
        leaks,
    ),
    Attack(
        "reads the memory of a process outside by process_vm_readv",
        # Where its stack lies is secret too, so a thousand likely places are tried when that can't be read.
        python(
            _MEMORY + "libc = ctypes.CDLL(None, use_errno=True)\n"
            "class Vector(ctypes.Structure):\n"
            "    _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n"
            "for begin, end in places or [(0x400000, 0x500000)]:\n"
            "    buffer = ctypes.create_string_buffer(end - begin)\n"
            "    mine = Vector(ctypes.addressof(buffer), end - begin)\n"
            "    theirs = Vector(begin, end - begin)\n"
            "    got = libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)\n"
            "    at = buffer.raw.find(b'DECOY_API_KEY')\n"
            "    print(got, ctypes.get_errno(), buffer.raw[at:at + 60])"
        ),
        leaks,
    ),
    Attack(
        "attaches to a process outside by ptrace",
        python(
            _SYSCALL + "pid = int(E['DECOY'])\n"
            "done = libc.ptrace(16, pid, None, None)\n"
            "if done == 0:\n    os.waitpid(pid, 0x40000000)\n    libc.ptrace(17, pid, None, None)\n"
            "sys.exit(done != 0)"
        ),
        succeeds,
    ),
    Attack("reads an open file of a process outside", "cat /proc/$DECOY/fd/0", leaks),
    Attack(
        "takes a descriptor of a process outside",
        python(
            _SYSCALL + "pidfd = os.pidfd_open(int(E['DECOY']))\n"
            "fd = libc.syscall(438, pidfd, 0, 0)\n"
            "print(os.pread(fd, 99, 0))"
        ),
        leaks,
    ),
    Attack(
        "finds the provider's key in its environment",
        "env; cat /proc/self/environ; cat /proc/$SUPERVISOR/environ",
        leaks,
    ),
    Attack(
        "reads the command line of a process outside", "cat /proc/$DECOY/cmdline", leaks, noted=_PROCESSES
    ),
    Attack(
        "looks through /proc for other people's processes",
        "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep sesame",
        leaks,
        noted=_PROCESSES,
    ),
    Attack(
        "reads the workspace's .env",
        "cat .env; mv .env e; cat e; cp .env f; cat f",
        leaks,
        noted="hidden files inside the workspace",
    ),
    Attack("reads /etc/shadow", "head -c 1 /etc/shadow | grep .", succeeds, who=ROOT),
    Attack("reads the shell's history", "cat $VICTIM/.bash_history", leaks),
    Attack(
        "asks for the keyring of the session",
        python(_SYSCALL + "sys.exit(libc.syscall(250, 0, -3, 1) < 0)"),
        succeeds,
    ),
    Attack(
        "reads the kernel's log",
        python(
            _SYSCALL + "print(libc.syscall(103, 10, None, 0), file=sys.stderr)\n"
            "ok = libc.syscall(103, 10, None, 0) >= 0\n"
            "try: os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK); ok = True\n"
            "except OSError: pass\n"
            "sys.exit(not ok)"
        ),
        succeeds,
        who=ROOT,
    ),
    Attack(
        "reads secrets that a container has below /run",
        "cat $RUN/secret",
        leaks,
        uncontrolled=nothing_below_run,
    ),
    Attack(
        "reads a secret by a link that it makes in the workspace",
        "ln -s $VICTIM/.ssh $WS/keys; cat $WS/keys/id_ed25519; ln -s $ELSEWHERE/victim.txt $WS/v; cat $WS/v",
        leaks,
    ),
    Attack(
        "watches a directory of secrets by inotify",
        python(
            _SYSCALL + "where = (E['VICTIM'] + '/.ssh').encode()\n"
            "sys.exit(libc.inotify_add_watch(libc.inotify_init(), where, 0x20) < 0)"
        ),
        succeeds,
        noted=_NAMES,
    ),
)
