"""What a failed command complained about, read from its output: paths with an error, hosts, other walls.

Pure, and only reading: whether the sandbox is the reason is decided in denials.py.  Programs word errors in a
few ways, since the kernel words them; the path stands in quotes, before the error, or in parentheses.
"""

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINES = 200
_LINE_CHARACTERS = 2000
"""What is longer is data."""

_ERRORS = tuple(
    (re.compile(words, re.IGNORECASE), number)
    for words, number in (
        (r"read-only file system|\bEROFS\b|os error 30\b|ReadOnlyFileSystem", errno.EROFS),
        (r"permission denied|\bEACCES\b|os error 13\b|AccessDenied", errno.EACCES),
        (r"operation not permitted|\bEPERM\b|os error 1\b", errno.EPERM),
        (r"no such file or directory|\bENOENT\b|os error 2\b|NoSuchFile|nonexistent", errno.ENOENT),
    )
)
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|‘([^’\n]+)’|`([^'`\n]+)['`]")
_ABSOLUTE = re.compile(r"(?<![\w.:/~-])(/[^\s'\"`’,;()<>]*[^\s'\"`’,;:()<>.])")
_BEFORE_ERROR = re.compile(
    r"([^\s:'\"][^:'\"]*?)(?::| \()\s*"
    r"(?:\[?errno|permission denied|operation not permitted|read-only file system|no such file)",
    re.IGNORECASE,
)
_WRITES = re.compile(
    r"creat|touch|writ|remov|unlink|mkdir|rmdir|renam|cannot move|overwrit|truncat|temporary file|\block\b"
    r"|changing (permission|owner|group)|setting (time|permission)|copy to|^tee:|^install:|^ln:|for writing"
    r"|cannot (make|overwrite)|append",
    re.IGNORECASE,
)
"""What a line says that was about to write."""
_SHELL = re.compile(r"(/\S*/)?(ba|da|z)?sh: ")

_HOSTS = tuple(
    re.compile(words, re.IGNORECASE)
    for words in (
        r"could not resolve host(?:name)?:? ['\"]?([\w.-]+)",
        r"resolve (?:host )?(?:address |name )?['\"‘]([\w.-]+)",
        r"getaddrinfo (?:EAI_AGAIN|ENOTFOUND|EAI_FAIL) ([\w.-]+)",
        r"temporary failure resolving ['\"]([\w.-]+)",
        r"lookup ([\w.-]+?)(?: on [\w.:\[\]]+)?: ",
        r"host='([\w.-]+)', port=(\d+)",
        r"connect to (?:server )?([\w.-]+)(?: \([^)]*\))? port (\d+)",
        r"connect to host ([\w.-]+) port (\d+)",
        r"(?:unreachable|refused|not permitted).*?\b([\w-]+(?:\.[\w-]+)+):(\d+)",
        r"request to https?://([\w.-]+)(?::(\d+))?/\S* failed",
    )
)
_NETWORK = re.compile(
    r"temporary failure (in name resolution|resolving)|name or service not known|nodename nor servname"
    r"|no address associated with hostname|failed to lookup address|could ?n[o']t resolve|could not resolve"
    r"|unable to resolve|getaddrinfo|network is unreachable|ENETUNREACH|EAI_AGAIN|ENOTCACHED|UnknownHost"
    r"|nameresolutionerror|failed to establish a new connection|only-if-cached"
    r"|tunnel(ing)?( connection)? failed|http code 403 from proxy|proxyerror|response 403"
    r"|dial (tcp|udp)|network connectivity is disabled|network was disabled|disabled by GOPROXY=off"
    r"|offline mode|--offline was specified|no matching distribution found|socket: operation not permitted"
    r"|(couldn't|could not|failed to|cannot|unable to) (open|create) (a )?(raw )?socket|port 443"
    r"|couldn't connect to server",
    re.IGNORECASE,
)
_SOCKET = re.compile(r"\bsocket\b", re.IGNORECASE)
_SIGNAL = re.compile(
    r"kill: (?:\(|sending signal to )?(\d+)\)?.*(operation not permitted|no such process)", re.IGNORECASE
)
_WALLS = tuple(
    (re.compile(words, re.IGNORECASE), what)
    for words, what in (
        (r"docker daemon|podman\.sock|containerd\.sock", "a container service of the machine"),
        (r"connect to bus|dbus|not been booted with systemd", "the system's bus"),
        (r"no new privileges|sudo: effective uid is not 0|must be (suid|setuid)", "more privileges"),
        (r"unshare(:| failed|\()|new namespace|clone_new|newuidmap|setns|namespace sandbox", "namespaces"),
        (r"\bu?mount(:|\b.*: (permission denied|must be superuser))|only root can use", "mounting"),
        (r"permission denied on key", "the machine's settings"),
        (r"connection to your authentication agent|ssh_auth_sock", "the ssh agent"),
    )
)


@dataclass(frozen=True)
class PathComplaint:
    """`names`: what may be the path, as it was printed.  `writes`: the words say that it was to be written;
    `shell`: a shell says it, of a redirection or of a program that it can't run."""

    names: tuple[str, ...]
    error: int
    writes: bool
    shell: bool = False


@dataclass(frozen=True)
class HostComplaint:
    """No host, or no port: not said."""

    host: str = ""
    port: int = 0


@dataclass(frozen=True)
class SignalComplaint:
    """A process could not be signalled."""

    pid: int


@dataclass(frozen=True)
class WallComplaint:
    """Something that only an unconfined command reaches."""

    what: str


Complaint = PathComplaint | HostComplaint | SignalComplaint | WallComplaint


def complaints(text: str) -> Iterator[Complaint]:
    """In the order of the lines, of those at the end."""
    socket_seen = False
    for line in text.splitlines()[-_LINES:]:
        if len(line) > _LINE_CHARACTERS:
            continue
        socket_seen = socket_seen or _SOCKET.search(line) is not None
        if found := _SIGNAL.search(line):
            yield SignalComplaint(int(found[1]))
            continue
        if what := next((what for words, what in _WALLS if words.search(line)), ""):
            yield WallComplaint(what)
            continue
        # A socket that can't be made has no path: Python says so lines after the word.
        bare = socket_seen and line.strip().endswith("[Errno 1] Operation not permitted")
        if bare or _NETWORK.search(line):
            yield _host(line)
            continue
        error = next((number for words, number in _ERRORS if words.search(line)), 0)
        if error and (names := tuple(dict.fromkeys(_names(line)))):
            writes = error == errno.EROFS or _WRITES.search(line) is not None
            yield PathComplaint(names, error, writes, _SHELL.match(line) is not None)


def _host(line: str) -> HostComplaint:
    for words in _HOSTS:
        if found := words.search(line):
            port = found[2] if words.groups > 1 and found[2] else "0"
            return HostComplaint(found[1].rstrip("."), int(port))
    return HostComplaint()


def _names(line: str) -> Iterator[str]:
    quoted = [next(filter(None, groups)) for groups in _QUOTED.findall(line)]
    if quoted:
        yield from quoted
        # `open('/x')` in quotes has the rest of the path's line; what is absolute is one anyway.
    if found := _BEFORE_ERROR.search(line):
        yield from (found[1], found[1].rpartition(" ")[2])
    yield from _ABSOLUTE.findall(line)
