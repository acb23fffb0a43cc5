"""Start bash with a script, and learn from it where it ended.

The script reaches bash through an anonymous file, not through its arguments: no size limit of argv, no
second parsing, no trace in `ps`.  Bash reads it whole and closes it, so neither the script nor what it
starts sees a descriptor of ours.  Where bash ends in another directory than it began, it writes that to a
small file in the private temporary directory; if there is none, or the shell ends by `exec` or SIGKILL,
nothing is known.  The script may put anything in that file's place, so it is read as a stranger's.

The shell has a session and a process group of its own and no terminal.  Not here: waiting (watch.py).
"""

import contextlib
import errno
import fcntl
import os
import resource
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

BASH = "/bin/bash"
_QUIETLY = (BASH, "--noprofile", "--norc", "-c")

MAX_SCRIPT = 4 * 1024 * 1024
"""Bytes.  Bash copies a script several times; what is longer is data and belongs into a file."""

SCRIPT_DESCRIPTOR = 200
"""Where a shell finds its script."""
PIPE_BYTES = 256 * 1024
"""Asked for, not needed: fewer wake-ups under a flood."""

_TELL = '{ [[ . -ef $POLIER_FROM ]] || builtin pwd -P >|"$POLIER_PLACE" || :; } 2>/dev/null'
"""Most scripts end where they began; making and removing a file is a tenth of what a short command costs."""

_PLACE_BYTES = 4096
"""The longest path that the kernel knows."""

OPENING = "POLIER_PLACE="
"""How the text in a shell's arguments begins."""


def _start_text(script: int, cwd: str, place: str, cpu_seconds: tuple[int, int]) -> str:
    """All on one line, so that bash counts the script's lines from 1.

    The limits of CPU time are set here, not on a process that may run already.

    The EXIT trap speaks when the script calls `exit` or is killed by a signal that can be caught; the end
    of the line, when the script has set a trap of its own.  A script's `set -x` traces nothing of ours.
    """
    soft, hard = cpu_seconds
    limits = f"ulimit -S -t {soft}; ulimit -H -t {hard}; " if soft >= 0 else ""
    return (
        f"{OPENING}{shlex.quote(place)} POLIER_FROM={shlex.quote(cwd)}; {limits}trap '{_TELL}' EXIT; "
        f'mapfile -d "" -t POLIER_SCRIPT <&{script}; exec {script}<&-; '
        'eval "unset -v POLIER_SCRIPT BASH_EXECUTION_STRING; ${POLIER_SCRIPT[0]}"; '
        "{ POLIER_STATUS=$?; set +x; } 2>/dev/null; "
        f"{_TELL}; exit $POLIER_STATUS"
    )


_NO_EDITOR = "echo 'there is no editor here: pass the text by an option or a file' >&2; false"

FIXED: dict[str, str] = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "EDITOR": _NO_EDITOR,
    "VISUAL": _NO_EDITOR,
    "GIT_EDITOR": _NO_EDITOR,
    "GIT_SEQUENCE_EDITOR": _NO_EDITOR,
    "PIP_NO_INPUT": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""What every command finds in its environment: nobody is there to page, edit or answer."""


_RC = frozenset({"BASH_ENV", "SHELLOPTS", "BASHOPTS"})
"""By these bash would read a file or change its options before the script begins."""


@dataclass
class Shell:
    """A bash that runs, or has ended and is not reaped yet.  Whoever starts it reaps and closes it."""

    process: "subprocess.Popen[bytes]"
    output: int
    """The read end of its output, non-blocking."""
    input: int | None
    """The write end of its input, non-blocking; None where that is /dev/null."""
    told: Path
    """The file with the directory in which it ended, if it could tell."""
    pidfd: int = -1
    """Readable when it has ended."""
    started: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        """Also its process group and its session, as long as it is not reaped."""
        return self.process.pid

    def ended(self) -> bool:
        """Looks without reaping, so that its process group can still be signalled."""
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PIDFD, self.pidfd, flags) is not None

    def reap(self) -> int:
        """Its exit code, or minus the signal that killed it.  Waits for its end."""
        return self.process.wait()

    def place(self) -> Path | None:
        """The directory to which the script moved; None where it didn't say.  Ask once: the file goes."""
        try:
            # A script may have made it a link or a FIFO.
            fd = os.open(self.told, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._forget_place()
            return None
        try:
            told = os.read(fd, _PLACE_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        except OSError:
            told = b""
        finally:
            os.close(fd)
        self._forget_place()
        told = told.removesuffix(b"\n")
        sound = told.startswith(b"/") and len(told) < _PLACE_BYTES and b"\0" not in told
        return Path(os.fsdecode(told)) if sound else None

    def _forget_place(self) -> None:
        with contextlib.suppress(OSError):
            self.told.unlink()

    def close(self) -> None:
        """All its descriptors."""
        for fd in (self.output, self.pidfd, -1 if self.input is None else self.input):
            if fd >= 0:
                os.close(fd)
        self.output = self.pidfd = -1
        self.input = None


def start(
    script: bytes,
    cwd: str,
    environment: Mapping[str, str],
    inside: Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"],
    *,
    with_input: bool,
    cpu_seconds: tuple[int, int] = (-1, -1),
) -> Shell:
    """Run the script.  `environment` is all that it gets, beside FIXED and PWD; `cpu_seconds`: see
    worker/sandbox/rlimits.py.  Raises OSError.

    `inside` calls what starts the shell where it shall be confined (starter.py), and returns its result.
    Its TMPDIR is where the shell leaves word of its last directory.  What outlives its parent becomes ours,
    not init's, since a worker adopts orphans (serve/process.py).
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        output, out = os.pipe2(os.O_CLOEXEC)
        ours.callback(os.close, output)
        theirs.callback(os.close, out)
        os.set_blocking(output, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        text = os.memfd_create("script", os.MFD_CLOEXEC)
        theirs.callback(os.close, text)
        _write_all(text, script)
        stdin, entry = subprocess.DEVNULL, None
        if with_input:
            stdin, entry = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, stdin)
            ours.callback(os.close, entry)
            os.set_blocking(entry, False)
        passed = fcntl.fcntl(text, fcntl.F_DUPFD_CLOEXEC, _high_descriptor())
        theirs.callback(os.close, passed)
        told = Path(environment.get("TMPDIR", "/nowhere"), f".place-{os.getpid()}-{time.monotonic_ns()}")
        words = [*_QUIETLY, _start_text(passed, cwd, str(told), cpu_seconds), "bash"]

        def popen() -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                words,
                stdin=stdin,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env=_environment(environment, cwd),
                pass_fds=(passed,),
                start_new_session=True,
            )

        shell = Shell(inside(popen), output, entry, told)
        ours.pop_all()
        return _watched(shell)


def _high_descriptor() -> int:
    """A shell's own descriptors, and most scripts', are below; a limit on open files may leave fewer."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return SCRIPT_DESCRIPTOR if allowed == resource.RLIM_INFINITY else min(SCRIPT_DESCRIPTOR, allowed // 2)


def _watched(shell: Shell) -> Shell:
    """The shell with a pidfd; without one it must not run.  Raises OSError."""
    try:
        shell.pidfd = os.pidfd_open(shell.pid)
    except OSError:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.process.wait()
        shell.close()
        raise
    return shell


def _environment(given: Mapping[str, str], cwd: str) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in _RC} | FIXED | {"PWD": cwd}


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
