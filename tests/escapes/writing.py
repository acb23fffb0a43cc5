"""Attempts to change what lies outside of the workspace, or to get the privileges for it."""

import ctypes
import os
import stat
from pathlib import Path

from tests.escapes.attack import (
    Attack,
    Judge,
    Who,
    changes,
    leaks,
    python,
    succeeds,
)
from tests.escapes.decoys import Decoys

ROOT = frozenset({Who.ROOT})
_METADATA = "modes, times and extended attributes"


def dropped(place: str) -> Judge:
    """A file lies where all can see it."""
    return lambda decoys, ran: f"{place} holds the file" if Path(place, decoys.mark).exists() else ""


def _handle(decoys: Decoys) -> None:
    """A file handle of a secret, as one who had seen it before could keep it."""

    class Handle(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]

    handle = Handle(size=128)
    mount = ctypes.c_int()
    path = os.fsencode(decoys.home / ".ssh/id_ed25519")
    if ctypes.CDLL(None).name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount), 0) == 0:
        size = 8 + handle.size
        (decoys.workspace / "handle").write_bytes(bytes(handle)[:size].ljust(136, b"\0"))


def _disk() -> str:
    """The device of the disk that holds the workspaces, if it has a node."""
    for path in Path("/dev").iterdir():
        found = path.lstat()
        if stat.S_ISBLK(found.st_mode) and found.st_rdev == Path("/tmp").stat().st_dev:
            return str(path)
    return ""


DISK = _disk() if os.geteuid() == 0 else ""
_DISK_NUMBER = Path("/tmp").stat().st_dev


def _no_program(decoys: Decoys) -> str:
    return "" if (decoys.opt / "as-other").exists() else "only root can make such a program for a user"


def _no_disk(decoys: Decoys) -> str:
    try:
        os.close(os.open(DISK, os.O_RDONLY))
    except OSError as error:
        return f"the disk can't be read outside either: {error.strerror}"
    return ""


_SYSCALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"

WRITING = (
    Attack(
        "writes a new file outside of the workspace", "echo x > $ELSEWHERE/new; echo x > $OPT/new", changes
    ),
    Attack("appends to ~/.bashrc of the user", "echo 'touch /tmp/pwned' >> $VICTIM/.bashrc", changes),
    Attack("adds a key to ~/.ssh/authorized_keys", "echo key >> $VICTIM/.ssh/authorized_keys", changes),
    Attack(
        "writes through a link that it makes in the workspace",
        "ln -s $ELSEWHERE $WS/out; echo x > $WS/out/new; ln -s $OPT/tool $WS/t; echo x >> $WS/t",
        changes,
    ),
    Attack("leaves the workspace by ..", "echo x > $WS/../elsewhere/new; echo x > ../new", changes),
    Attack("writes by way of /proc/self/root", "echo x > /proc/self/root$ELSEWHERE/new", changes),
    Attack(
        "writes by an inherited descriptor of a directory",
        python(
            "for fd in map(int, os.listdir('/proc/self/fd')):\n"
            "    for up in ('elsewhere/new', '../elsewhere/new', '../../elsewhere/new'):\n"
            "        try: os.close(os.open(up, os.O_WRONLY | os.O_CREAT, dir_fd=fd))\n"
            "        except OSError: pass"
        ),
        changes,
        uncontrolled="the control run inherits no directory either",
    ),
    Attack(
        "links an outside file into the workspace and edits it there",
        "ln $ELSEWHERE/victim.txt $WS/linked && echo x >> $WS/linked;"
        " ln $OPT/tool $WS/l2 && echo x >> $WS/l2",
        changes,
    ),
    Attack("moves an outside file into the workspace", "mv $ELSEWHERE/victim.txt $OPT/tool $WS/", changes),
    Attack("moves a workspace file outside", "mv $WS/source.py $ELSEWHERE/; cp $WS/Makefile $OPT/", changes),
    Attack("cuts an outside file by truncate(2)", "truncate -s 0 $ELSEWHERE/victim.txt $OPT/tool", changes),
    Attack(
        "changes the mode of an outside file",
        "chmod 777 $ELSEWHERE/victim.txt $OPT/tool",
        changes,
        noted=_METADATA,
    ),
    Attack(
        "changes the times of an outside file",
        "touch -m -d @1 $ELSEWHERE/victim.txt $OPT/tool",
        changes,
        noted=_METADATA,
    ),
    Attack(
        "sets an extended attribute of an outside file",
        python(
            "for path in (E['ELSEWHERE'] + '/victim.txt', E['OPT'] + '/tool'):\n"
            "    try: os.setxattr(path, 'user.x', b'x')\n"
            "    except OSError as error: print(error)"
        ),
        changes,
        noted=_METADATA,
    ),
    Attack(
        "gives an outside file to somebody else",
        "chown 65534 $ELSEWHERE/victim.txt $OPT/tool",
        changes,
        who=ROOT,
    ),
    Attack("deletes an outside file", "rm -f $ELSEWHERE/victim.txt $OPT/tool", changes),
    Attack("makes a directory outside", "mkdir $ELSEWHERE/d $OPT/d", changes),
    Attack(
        "mounts a read-only place again, writable",
        "mount -o remount,rw,bind /usr && touch /usr/.$MARK && rm /usr/.$MARK",
        succeeds,
        uncontrolled="the machine's own mounts are not touched",
    ),
    Attack(
        "makes a user and a mount namespace to mount over things",
        python(_SYSCALL + "sys.exit(libc.unshare(0x10000000 | 0x20000) != 0)"),
        succeeds,
    ),
    Attack(
        "opens a secret by its file handle",
        python(
            _SYSCALL + "handle = open(E['WS'] + '/handle', 'rb').read()\n"
            "mount = os.open(E['WS'], os.O_RDONLY)\n"
            "fd = libc.open_by_handle_at(mount, handle, 0)\n"
            "print(os.read(fd, 99) if fd >= 0 else ctypes.get_errno())"
        ),
        leaks,
        who=ROOT,
        prepare=_handle,
    ),
    Attack(
        "sets up an io_uring", python(_SYSCALL + "sys.exit(libc.syscall(425, 8, b'\\0' * 120) < 0)"), succeeds
    ),
    Attack(
        "reads the raw disk",
        f"head -c 512 {DISK or '/dev/no-disk'} > /dev/null",
        succeeds,
        who=ROOT,
        uncontrolled=_no_disk,
    ),
    Attack(
        "makes a node of the disk in the workspace and reads it",
        f"mknod $WS/disk b {os.major(_DISK_NUMBER)} {os.minor(_DISK_NUMBER)}"
        " && head -c 512 $WS/disk > /dev/null",
        succeeds,
        who=ROOT,
        uncontrolled=_no_disk,
    ),
    Attack(
        # The value that is there: it does no harm where it is let.
        "writes the kernel's core_pattern",
        "at=/proc/sys/kernel/core_pattern; value=$(cat $at) && printf '%s\\n' \"$value\" > $at",
        succeeds,
        who=ROOT,
    ),
    Attack(
        "becomes somebody else by a setuid program",
        '[ -x $OPT/as-other ] && [ "$($OPT/as-other -u)" != "$(id -u)" ]',
        succeeds,
        uncontrolled=_no_program,
    ),
    Attack(
        "drops a file into /dev/shm of all",
        "echo x > /dev/shm/$MARK",
        dropped("/dev/shm"),
        noted="/dev/shm",
    ),
    Attack("drops a file into /tmp of all", "echo x > /tmp/$MARK", dropped("/tmp")),
    Attack(
        "puts another directory in the workspace's place",
        "cd /; mv $WS $WS.away && mkdir $WS",
        changes,
    ),
    Attack(
        "makes a control group",
        "for at in /sys/fs/cgroup{,/pids,/cpu}; do mkdir $at/$MARK && exit 0; done; exit 1",
        lambda decoys, ran: _control_group(decoys.mark),
        who=ROOT,
    ),
)


def _control_group(mark: str) -> str:
    made = list(Path("/sys/fs/cgroup").glob(f"**/{mark}"))
    for path in made:
        path.rmdir()
    return ", ".join(f"{path} was made" for path in made)
