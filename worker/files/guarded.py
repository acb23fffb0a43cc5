"""What the file tools refuse although it lies in a place that they may touch: hidden and protected files.

The kernel closes the same where it can; without namespaces it can't inside the workspace, and then this is
what keeps a secret from the provider.  Judged by real paths, after links were followed.  What the policy
grants by name below a closed place (the temporary directory in the agent's state) stays open.
"""

from collections.abc import Callable, Iterable

from protocol.permission import Kind, Permission
from protocol.policy import OUTPUT_MOUNT, Mode, SandboxPolicy
from protocol.wire import Denial, Status
from worker.call import ToolError
from worker.files.names import encoded, shown

_ASK = 'run_command can ask the user for it with needs=["{}"]'


def is_hidden(policy: SandboxPolicy, real: bytes) -> bool:
    """Whether nothing may be read there."""
    return _closed(policy, policy.hidden, real)


def is_protected(policy: SandboxPolicy, real: bytes) -> bool:
    """Whether it stays as it is.  What is git's own is never written by a file tool: that would make a
    repository of anything."""
    if policy.mode is Mode.UNCONFINED:
        return False
    return _closed(policy, policy.protected, real) or b".git" in real.split(b"/")


def refuse_reading(policy: SandboxPolicy, real: bytes, asked: bytes) -> None:
    """Raises ToolError where the path is hidden."""
    if not is_hidden(policy, real):
        return
    permission = Permission(Kind.READ, _text(real))
    raise ToolError(
        f"{shown(asked)} is hidden: it usually holds secrets. Go on without it; if its content is really "
        f"needed, {_ASK.format(permission)}.",
        Status.REFUSED,
        Denial(f"read {shown(real)} (hidden)", permission),
    )


def refuse_writing(policy: SandboxPolicy, real: bytes, asked: bytes) -> None:
    """Raises ToolError where the path is hidden or protected."""
    refuse_reading(policy, real, asked)
    if not is_protected(policy, real):
        return
    if b".git" in real.split(b"/"):
        raise ToolError(
            f"{shown(asked)} belongs to git: file tools don't write there. Use git with run_command, "
            'which can ask the user for that with needs=["git-write"].',
            Status.REFUSED,
            Denial(f"write {shown(real)} (git's own)", Permission(Kind.GIT_WRITE)),
        )
    permission = Permission(Kind.WRITE, _text(real))
    raise ToolError(
        f"{shown(asked)} is protected: other programs act on it later, unseen. If it must be changed, tell "
        f"the user how, or {_ASK.format(permission)}.",
        Status.REFUSED,
        Denial(f"write {shown(real)} (protected)", permission),
    )


def readable_names(policy: SandboxPolicy) -> Callable[[bytes], bool]:
    """Whether a file may be read, by the name that results give it."""
    if not policy.hidden:
        return lambda _: True
    workspace, output, mount = (
        encoded(place) + b"/" for place in (policy.workspace, policy.output, OUTPUT_MOUNT)
    )

    def readable(path: bytes) -> bool:
        if path.startswith(mount):
            return not is_hidden(policy, output + path.removeprefix(mount))
        return not is_hidden(policy, path if path.startswith(b"/") else workspace + path)

    return readable


def _closed(policy: SandboxPolicy, places: Iterable[str], real: bytes) -> bool:
    return any(
        _within(real, place) and not _granted_below(policy, place, real) for place in map(encoded, places)
    )


def _granted_below(policy: SandboxPolicy, closed: bytes, real: bytes) -> bool:
    granted = (policy.workspace, policy.tmp, policy.output, *policy.writable, *policy.opened)
    return any(_within(place, closed) and _within(real, place) for place in map(encoded, granted) if place)


def _within(path: bytes, place: bytes) -> bool:
    return path == place or path.startswith(place.rstrip(b"/") + b"/")


def _text(real: bytes) -> str:
    return real.decode(errors="backslashreplace")
