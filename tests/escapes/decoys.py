"""What attacks are aimed at: a home with credentials, a program's directory, sockets, ports, a terminal, and
a process that holds a secret.  All of it belongs to the user who plays, and none of it matters.

Whatever is secret here holds one token, so that it is recognised wherever it turns up.
"""

import contextlib
import ctypes
import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tests.escapes.trees import Tree

_FILES = {
    "home/.ssh/id_ed25519": "{secret}\n",
    "home/.ssh/authorized_keys": "nobody\n",
    "home/.aws/credentials": "aws_secret_access_key = {secret}\n",
    "home/.config/gh/hosts.yml": "oauth_token: {secret}\n",
    "home/.netrc": "password {secret}\n",
    "home/.bash_history": "export KEY={secret}\n",
    "home/.bashrc": "export RC_WAS_READ=1\n",
    "home/.gitconfig": "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n",
    "home/Documents/letter.txt": "{secret}\n",
    "opt/tool": "#!/bin/sh\necho tool\n",
    "elsewhere/victim.txt": "{secret}\n",
    "elsewhere/directory/inner.txt": "{secret}\n",
    "state/sessions/another/transcript.jsonl": "{secret}\n",
    "workspace/source.py": "print('hello')\n",
    "workspace/Makefile": "all:\n\ttrue\n",
    "workspace/.env": "TOKEN={secret}\n",
    "workspace/.envrc": "true\n",
    "workspace/.vscode/settings.json": "{{}}\n",
    "workspace/json.py": "open('{root}/planted', 'w').close()\n",
    "workspace/sitecustomize.py": "open('{root}/planted', 'w').close()\n",
    "workspace/bin/bwrap": "#!/bin/sh\ntouch {root}/planted\n",
    "workspace/bin/bash": "#!/bin/sh\ntouch {root}/planted\n",
}
_SHM_BYTES = 4096
_IPC_CREAT = 0o1000
_IPC_RMID = 0
_WATCHED_SIGNALS = (signal.SIGUSR1, signal.SIGURG)


class Decoys:
    """Made below `root`, a directory of this user's own.  `run`: another one, below /run, or None."""

    def __init__(self, root: Path, run: Path | None) -> None:
        self.root, self.run = root, run
        self.secret = f"sesame-{os.urandom(8).hex()}"
        self.mark = f"polier-escape-{os.urandom(4).hex()}"
        """The name of what is dropped in places that all share."""
        for name, text in _FILES.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(secret=self.secret, root=root))
        (root / "home/.ssh").chmod(0o700)
        for name in ("bwrap", "bash"):
            (root / "workspace/bin" / name).chmod(0o755)
        for name in ("state/output", "state/tmp"):
            (root / name).mkdir(parents=True)
        if run:
            (run / "secret").write_text(self.secret)
        self._repository()
        self._listen()
        self._terminal()
        self._share_memory()
        self.process = self._start()
        self.trees = [
            *(Tree(root / name) for name in ("home", "opt", "elsewhere")),
            Tree(root / "state", without=("output", "tmp")),
            *([Tree(run)] if run else []),
        ]
        self.workspace_tree = Tree(self.workspace)
        self._names = sorted(os.listdir(root))

    def __getattr__(self, name: str) -> Path:
        """`home`, `workspace` and the like are directories of the root."""
        if name in ("home", "opt", "elsewhere", "state", "workspace"):
            return Path(self.root, name)
        raise AttributeError(name)

    def _repository(self) -> None:
        git = shutil.which("git")
        if git is None:
            return
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        for words in (
            ["init", "-q", "--template="],
            ["add", "source.py", "Makefile"],
            ["commit", "-qm", "first"],
        ):
            subprocess.run([git, *words], cwd=self.workspace, env=environ, check=True)
        (self.workspace / ".git/hooks").mkdir(exist_ok=True)
        (self.workspace / ".git/hooks/post-merge").write_text("#!/bin/sh\n")

    def _listen(self) -> None:
        """Sockets at which nobody may arrive.  Nothing accepts: what has arrived is waiting there."""
        self.sockets: dict[str, socket.socket] = {}
        self.address = _own_address()
        for kind, name in ((socket.SOCK_STREAM, "tcp"), (socket.SOCK_DGRAM, "udp")):
            made = socket.socket(socket.AF_INET, kind)
            made.bind(("0.0.0.0", 0))
            self.sockets[name] = made
        places = {"home": self.home / "agent.sock", "opt": self.opt / "tool.sock"}
        if self.run:
            places["run"] = self.run / "docker.sock"
        self._in_tmp = Path(tempfile.mkdtemp(prefix="polier-escape-", dir="/tmp"))
        places["tmp"] = self._in_tmp / "tmux.sock"
        for name, path in places.items():
            self.sockets[name] = made = socket.socket(socket.AF_UNIX)
            made.bind(str(path))
        self.sockets["abstract"] = made = socket.socket(socket.AF_UNIX)
        made.bind("\0" + self.mark)
        for made in self.sockets.values():
            made.setblocking(False)
            if made.type == socket.SOCK_STREAM:
                made.listen(16)

    def port(self, name: str) -> int:
        return int(self.sockets[name].getsockname()[1])

    def reached(self) -> list[str]:
        """The sockets at which something has arrived, which is forgotten by that."""
        found = []
        for name, listening in self.sockets.items():
            while select.select([listening], [], [], 0)[0]:
                found.append(name)
                with contextlib.suppress(OSError):
                    if listening.type == socket.SOCK_STREAM:
                        listening.accept()[0].close()
                    else:
                        listening.recv(4096)
        return found

    def _terminal(self) -> None:
        """A terminal that is this process's own, as a user's is the supervisor's."""
        self._screen, self.tty = pty.openpty()
        with contextlib.suppress(PermissionError):
            os.setsid()
        fcntl.ioctl(self.tty, termios.TIOCSCTTY, 0)
        attributes = termios.tcgetattr(self.tty)
        attributes[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self.tty, termios.TCSANOW, attributes)
        self.tty_name = os.ttyname(self.tty)

    def typed(self) -> bool:
        """Whether something stands in the terminal's input, as if the user had typed it."""
        waiting = bool(select.select([self.tty], [], [], 0)[0])
        termios.tcflush(self.tty, termios.TCIFLUSH)
        return waiting

    def shown(self) -> bool:
        """Whether something was written to the terminal."""
        if not select.select([self._screen], [], [], 0)[0]:
            return False
        os.read(self._screen, 4096)
        return True

    def _share_memory(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        self.shm_key = 0x50_00_00_00 | (os.getpid() & 0xFFFFFF)
        self._shm = libc.shmget(self.shm_key, _SHM_BYTES, _IPC_CREAT | 0o600)
        place = libc.shmat(self._shm, None, 0)
        ctypes.memmove(place, self.secret.encode() + b"\0", len(self.secret) + 1)

    def _start(self) -> "subprocess.Popen[bytes]":
        """Something like a supervisor: secrets in environment, memory, arguments and an open file.  It lets
        itself be looked at and signalled, so that only a sandbox can forbid it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED_SIGNALS)
        try:
            with open(self.elsewhere / "victim.txt") as secret:
                started = subprocess.Popen(
                    [f"decoy-{self.secret}", "1000"],
                    executable=shutil.which("sleep") or "/bin/sleep",
                    env={"DECOY_API_KEY": self.secret},
                    stdin=secret,
                    start_new_session=True,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _until_it_is_open(started.pid)
        return started

    def harmed(self) -> str:
        """How the process was signalled; empty where it was not.  Blocked signals stay pending."""
        if self.process.poll() is not None:
            return "it was killed"
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        )
        if fields["State"].strip().startswith("T"):
            return "it was stopped"
        return "a signal is pending" if int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16) else ""

    def fresh(self) -> None:
        """Everything as it was in the beginning."""
        self.process.kill()
        self.process.wait()
        moved = Path(f"{self.workspace}.away")
        if moved.exists():
            self.workspace.rmdir()
            moved.rename(self.workspace)
        for tree in self.trees:
            tree.restore()
        self.process = self._start()
        for name in set(os.listdir(self.root)) - set(self._names):
            (self.root / name).unlink()
        self.reached()
        self.typed()
        self.shown()
        for place in (Path("/tmp"), Path("/dev/shm")):
            (place / self.mark).unlink(missing_ok=True)

    def changes(self) -> list[str]:
        """What is not as it was, outside of the workspace."""
        told = [f"{tree.root.name}: {change}" for tree in self.trees for change in tree.changes()]
        return told + [f"{name} appeared" for name in os.listdir(self.root) if name not in self._names]

    def variables(self) -> str:
        """Lines of a script that tell it where all this is."""
        values: dict[str, object] = {
            "VICTIM": self.home, "OPT": self.opt, "ELSEWHERE": self.elsewhere, "WS": self.workspace,
            "STATE": self.state, "RUN": self.run or "/nowhere", "INTMP": self._in_tmp, "MARK": self.mark,
            "DECOY": self.process.pid, "SUPERVISOR": os.getpid(), "TCP": self.port("tcp"),
            "UDP": self.port("udp"), "ADDRESS": self.address, "TTY": self.tty_name, "SHM": self.shm_key,
            "PY": sys.executable,
        }  # fmt: skip
        lines = [f"export {name}={shlex.quote(str(value))}" for name, value in values.items()]
        return "\n".join((*lines, 'cd "$WS"', ""))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        ctypes.CDLL(None).shmctl(self._shm, _IPC_RMID, None)
        for made in self.sockets.values():
            made.close()
        shutil.rmtree(self._in_tmp)


def _until_it_is_open(pid: int) -> None:
    """A process that has just begun is closed for a moment, as the one that started it is."""
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        with contextlib.suppress(PermissionError):
            Path(f"/proc/{pid}/environ").read_bytes()
            return
        time.sleep(0.001)


def _own_address() -> str:
    """An address of this machine that is not the loopback's; that one where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        with contextlib.suppress(OSError):
            asking.connect(("192.0.2.1", 9))  # nothing is sent
            return str(asking.getsockname()[0])
    return "127.0.0.1"


@contextlib.contextmanager
def decoys(root: Path, run: Path | None) -> Iterator[Decoys]:
    made = Decoys(root, run)
    try:
        yield made
    finally:
        made.close()
