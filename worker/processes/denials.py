"""Why a command failed, where the sandbox is the reason: in words for the model, and what would allow it.

A kernel refuses without saying who asked for the wall, and the words are those of ordinary errors.  So each
path that the command complained of is judged twice: does the policy refuse it, and would the modes of files
have allowed it?  Both: sure.  What can't be seen from in here is only likely.  A command that ended well is
not looked at, but for git's own words: `git commit; git log` ends well, and the commit is what was wanted.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from protocol.permission import Kind, Permission
from protocol.policy import Mode, Network, Rung, SandboxPolicy
from protocol.wire import Denial
from worker.processes.complaints import (
    Complaint,
    HostComplaint,
    PathComplaint,
    SignalComplaint,
    WallComplaint,
    complaints,
)

SHOWN = 3
"""Denials that a result names."""
_TAIL_CHARACTERS = 16 * 1024
"""Of the output, that is looked at: what failed is told at the end."""

_GIT_FAILED = "/.git/index.lock': Read-only file system"

_TMP = ("/tmp", "/var/tmp")
_PRIVATE = (*_TMP, "/run", "/dev/shm", "/dev/pts")
"""With namespaces a worker's own."""
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/fd",
)
_MACHINE = ("/proc", "/sys", "/dev")
"""No place of the disk; only an unconfined command changes something there."""
_ELSEWHERE = frozenset(("home", "root", "var", "srv", "mnt", "media", "boot", "data", "opt"))
"""Top-level directories of which a worker with namespaces sees a part or nothing."""
_URL = re.compile(r"\b(?:https?|ssh|git|ftp)://[^\s'\"|;&)>]+")
_PAIR = re.compile(r"['\"]([\w-]+(?:\.[\w-]+)+)['\"],\s*(\d{1,5})\b")
"""As programs write an address."""
_SCP = re.compile(r"\b[\w.-]+@([\w.-]+\.[a-z]+):")
_PORTS = {"http": 80, "https": 443, "ssh": 22, "git": 9418, "ftp": 21}
_HOMES_OF = (
    (re.compile(r"\b(pip3?|uv|poetry|pipx)\b"), "pypi.org"),
    (re.compile(r"\b(npm|npx|pnpm|yarn)\b"), "registry.npmjs.org"),
    (re.compile(r"\bcargo\b"), "index.crates.io"),
    (re.compile(r"\bgo (get|mod|install|build|run|test)\b"), "proxy.golang.org"),
)
"""Where programs go that don't say where."""
_LOCAL = re.compile(r"localhost|127\.[\d.]+|0\.0\.0\.0|::1")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


@dataclass(frozen=True)
class Failed:
    """A command that failed: what it was, where it began, and what it printed.

    `well`: its last part didn't fail.
    """

    command: str
    cwd: str
    output: str
    well: bool = False


def denials(policy: SandboxPolicy, rung: Rung, failed: Failed) -> tuple[Denial, ...]:
    """What the sandbox kept it from, the surest first, each once."""
    if policy.mode is Mode.UNCONFINED or rung is Rung.OFF:
        return ()
    if failed.well and _GIT_FAILED not in failed.output[-_TAIL_CHARACTERS:]:
        return ()
    judge = _Judge(policy, rung, failed)
    found: dict[str, Denial] = {}
    for complaint in complaints(failed.output[-_TAIL_CHARACTERS:]):
        for denial in judge.denials(complaint):
            if failed.well and (denial.permission is None or denial.permission.kind is not Kind.GIT_WRITE):
                continue
            key = str(denial.permission) if denial.permission else denial.what
            if key not in found or (denial.sure and not found[key].sure):
                found[key] = denial
    return tuple(sorted(found.values(), key=lambda denial: not denial.sure)[:SHOWN])


def line(denial: Denial) -> str:
    """What the model reads of it."""
    likely = "" if denial.sure else "probably "
    if denial.permission is None:
        return f"[sandbox: {likely}blocked {denial.what}]"
    instead = "" if denial.permission.kind is not Kind.WRITE else "keep to the workspace, or "
    return (
        f"[sandbox: {likely}blocked {denial.what}: not an ordinary error, and no way around it; "
        f'{instead}ask with needs=["{denial.permission}"]]'
    )


class _Judge:
    def __init__(self, policy: SandboxPolicy, rung: Rung, failed: Failed) -> None:
        self.policy = policy
        self.rung = rung
        self.failed = failed
        tops = (policy.workspace, policy.tmp, *policy.writable)
        self._written = tops if policy.mode is Mode.WORKSPACE_WRITE else (policy.tmp,)
        self._private = _PRIVATE if rung is Rung.FULL else ("/dev/pts", "/dev/shm")
        self._places = (*tops, policy.output, *policy.readable, *policy.opened)

    def denials(self, complaint: Complaint) -> Iterator[Denial]:
        match complaint:
            case PathComplaint(names=names):
                found = filter(None, (self._path(name, complaint) for name in names))
                yield from sorted(found, key=lambda denial: not denial.sure)[:1]
            case HostComplaint(host, port):
                yield from self._host(host, port)
            case SignalComplaint(pid):
                words = f"a signal to process {pid}: other calls' processes belong to the `jobs` tool"
                yield Denial(words, None, sure=False)
            case WallComplaint(what):
                yield Denial(f"the use of {what}", Permission(Kind.UNCONFINED), sure=False)

    def _path(self, name: str, said: PathComplaint) -> Denial | None:
        path = os.path.normpath(os.path.join(self.failed.cwd, name))  # noqa: PTH118 - what was printed is text
        if (
            "\0" in path
            or len(path) > 4096
            or (not name.startswith("/") and not os.path.lexists(_above(path)))
        ):
            return None
        writes = said.writes or self._redirected(name)
        if said.error == errno.ENOENT:
            target = os.path.realpath(path)
            # What a relative name misses is the program's own affair, unless a link leads out.
            return self._unseen(target, writes) if name.startswith("/") or target != path else None
        return self._refused(os.path.realpath(path), said, writes)

    def _refused(self, path: str, said: PathComplaint, writes: bool) -> Denial | None:
        """Of a path that gave EACCES, EPERM or EROFS."""
        readable, writable = self._may_read(path), self._may_write(path)
        # A file that may be read, by the policy and by its modes, can only have been refused for a change.
        only_run = said.shell or _plainly(path, Kind.READ) is False
        if writable or (readable and not writes and only_run):
            return None
        if (denial := self._of_git(path)) or (denial := self._of_machine(path)):
            return denial
        kind = Kind.WRITE if writes or readable else Kind.READ
        plain = _plainly(path, kind)
        if plain is False:
            return None
        where = self._where(path)
        target = path if kind is Kind.READ or os.path.lexists(path) else _above(path)
        sure = plain is True or (said.error == errno.EROFS and os.geteuid() == 0)
        return Denial(f"{kind.value} {path} ({where})", Permission(kind, target), sure)

    def _unseen(self, path: str, writes: bool) -> Denial | None:
        """Of a path that isn't there: with namespaces it may exist where the worker can't look."""
        top = path.split("/")[1]
        beside = top == self.policy.workspace.split("/")[1]
        if self.rung is not Rung.FULL:
            return None
        if not self._of_the_machines_tmp(path):
            if self._may_read(path) or not (top in _ELSEWHERE or beside):
                return None
            if os.path.lexists(_above(path)) and not beside and top not in ("home", "root"):
                return None  # what is around it can be seen, so it isn't there
        kind, target = (Kind.WRITE, _above(path)) if writes else (Kind.READ, path)
        words = f"{kind.value} {path} (if it exists, it is outside of what commands can see)"
        return Denial(words, Permission(kind, target), sure=False)

    def _of_the_machines_tmp(self, path: str) -> bool:
        """Whether it is in a directory of the machine's /tmp, of which the private one has at most what leads
        to the workspace."""
        above = _above(path)
        if not any(_within(above, place) and above != place for place in _TMP) or self._given(path):
            return False
        return not os.path.lexists(above) or _within(self.policy.workspace, above)

    def _host(self, host: str, port: int) -> Iterator[Denial]:
        if self.policy.network is Network.ON:
            return
        if host and _LOCAL.fullmatch(host):
            if self.rung is Rung.LANDLOCK:
                yield Denial("a connection to this machine: sockets are off on this rung", None, sure=False)
            return
        named, its_port = self._named_in_command(host)
        host, port = host or named, port or its_port
        if not host or not _HOST.fullmatch(host):
            words = 'the network: it is off; ask with needs=["network:HOST:PORT"]'
            yield Denial(words, None, sure=False)
            return
        port = port if 0 < port < 65536 else 443
        permission = Permission(Kind.NETWORK, f"{host.lower()}:{port}")
        yield Denial(
            f"a connection to {host}:{port} (the network is off but for listed hosts)", permission, sure=False
        )

    def _named_in_command(self, host: str) -> tuple[str, int]:
        """The host that the command names (or its port, of a host that is known)."""
        for url in _URL.findall(self.failed.command):
            try:
                parts = urlsplit(url)
                found, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
            except ValueError:
                continue
            if found and host in ("", found):
                return found, port
        if (scp := _SCP.search(self.failed.command)) and host in ("", scp[1]):
            return scp[1], 22
        if (pair := _PAIR.search(self.failed.command)) and host in ("", pair[1]):
            return pair[1], int(pair[2])
        if re.search(r"\bssh\b", self.failed.command) and host:
            return host, 22
        if not host:
            return next((home for word, home in _HOMES_OF if word.search(self.failed.command)), ""), 443
        return "", 0

    def _redirected(self, name: str) -> bool:
        """Whether the command says that it writes to this name."""
        quoted = re.escape(name)
        to = r"(>[>|]?|\bof=|\s-o|--output[= ])\s*['\"]?" + quoted
        opens = r"open\(['\"]" + quoted + r"['\"],\s*(mode=)?['\"][wax]"
        return re.search(f"{to}|{opens}", self.failed.command) is not None

    def _of_git(self, path: str) -> Denial | None:
        if not self._closed_by(self.policy.protected, path) or ".git" not in path.split("/"):
            return None
        if any(_within(path, pinned) for pinned in self.policy.pinned):
            words = f"write {path} (git's configuration and hooks stay as they are)"
            return Denial(words, Permission(Kind.UNCONFINED))
        return Denial(f"write {path} (git's own)", Permission(Kind.GIT_WRITE))

    def _of_machine(self, path: str) -> Denial | None:
        if not any(_within(path, place) for place in _MACHINE):
            return None
        plain = _plainly(path, Kind.WRITE)
        if plain is False:
            return None
        return Denial(f"the use of {path}", Permission(Kind.UNCONFINED), sure=plain is True)

    def _where(self, path: str) -> str:
        if self._closed_by(self.policy.hidden, path):
            return "hidden"
        if self._closed_by(self.policy.protected, path):
            return "protected"
        if _within(path, self.policy.workspace):
            return "the sandbox is read-only"
        return "outside the workspace"

    def _given(self, path: str) -> bool:
        """Whether the policy names it or what is around it."""
        return any(_within(path, place) for place in self._places if place)

    def _may_read(self, path: str) -> bool:
        own = any(_within(path, place) for place in (*self._private, *_DEVICES))
        return (own or self._given(path)) and not self._hidden(path)

    def _may_write(self, path: str) -> bool:
        # What is bound into a private place is not private.
        places = self._written if self._given(path) else (*self._written, *self._private, *_DEVICES)
        if not any(_within(path, place) for place in places if place) or self._hidden(path):
            return False
        return self.rung is Rung.LANDLOCK or not self._closed_by(self.policy.protected, path)

    def _hidden(self, path: str) -> bool:
        if self.rung is Rung.LANDLOCK and _within(path, self.policy.workspace):
            return False  # without namespaces nothing in the workspace can be
        return self._closed_by(self.policy.hidden, path)

    def _closed_by(self, places: tuple[str, ...], path: str) -> bool:
        policy = self.policy
        granted = (policy.workspace, policy.tmp, policy.output, *policy.writable, *policy.opened)
        return any(
            _within(path, place)
            and not any(_within(one, place) and _within(path, one) for one in granted if one)
            for place in places
        )


def _plainly(path: str, kind: Kind) -> bool | None:
    """Whether the modes of files let this user do it; None where that can't be seen from here."""
    at = path
    if not os.path.lexists(at):
        at = _above(path)
        if kind is Kind.READ or not os.path.lexists(at):
            return None
    try:
        status = Path(at).stat()
    except OSError:
        return None
    if os.geteuid() == 0:
        return True
    wanted = stat.S_IROTH if kind is Kind.READ else stat.S_IWOTH
    if status.st_uid == os.geteuid():
        wanted <<= 6
    elif status.st_gid in {os.getegid(), *os.getgroups()}:
        wanted <<= 3
    return bool(status.st_mode & wanted)


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"
