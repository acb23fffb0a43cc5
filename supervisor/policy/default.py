"""The policy of a session, from the user's settings and what the machine has.

An allow-list: the system's programs, the user's toolchains, the workspace.  Which places those are is in the
files beside this one; what a grant adds is in widen.py.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from protocol.policy import Mode, Network, SandboxPolicy, of_the_machine
from supervisor.choices.tables import SandboxChoices
from supervisor.exits import USAGE, StopError
from supervisor.policy.environment import commands_environment, is_text
from supervisor.policy.home import private_home
from supervisor.policy.protected import protected_places
from supervisor.policy.readable import readable_places
from supervisor.policy.repository import repository_of
from supervisor.policy.secrets import hidden_places
from supervisor.policy.survey import survey

_NO_WORKSPACE = (
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc", "root", "run",
    "sbin", "sys", "tmp", "usr", "usr/bin", "usr/lib", "usr/local", "usr/sbin", "var", "var/lib", "var/tmp",
)  # fmt: skip
"""Below /.  A project may lie in one of them, but none of them is a project."""


def default_policy(
    workspace: Path,
    output: Path,
    tmp: Path,
    environ: Mapping[str, str],
    home_state: Path,
    wishes: SandboxChoices | None = None,
) -> SandboxPolicy:
    """The policy of a session.  `tmp` exists and is private; `home` is made in it, $HOME of commands.

    `home_state`: the state directory, hidden but for `output` and `tmp`.  `environ`: the user's, of which
    only names on a list reach commands.  `wishes`: the user's settings, `~` resolved.  Raises StopError
    for a workspace that can't be worked in.
    """
    wishes = wishes or SandboxChoices()
    for path in filter(of_the_machine, map(str, _real(map(Path, wishes.write)))):
        words = f"sandbox.write can't hold {path}: it reaches devices or switches of the machine; take it out"
        raise StopError(f"{words}, or run what needs it without a sandbox.", USAGE)
    root, tmp, state = workspace.resolve(), tmp.resolve(), home_state.resolve()
    user_home = Path(environ.get("HOME") or "~").expanduser().resolve()
    _usable(root, workspace)
    hidden: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    # What may be done unconfined is what the user may do, so their own home is the right one.
    home, network = user_home, Network.ON
    if wishes.mode is not Mode.UNCONFINED:
        _confinable(root, user_home, state)
        home, network = private_home(tmp, user_home, root), wishes.network
        seen = survey(root)
        secrets = seen.secrets if wishes.hide_env_files else ()
        hidden = tuple(hidden_places(state, user_home, root, environ, secrets))
        protected = tuple(protected_places(root, seen.repositories))
    read = [*map(Path, wishes.read)]
    readable = readable_places(environ, user_home, root, [*read, *_shared_repository(root)], hidden)
    return SandboxPolicy(
        workspace=str(root),
        mode=wishes.mode,
        readable=_texts(readable),
        # What contains the workspace would take its protected places with it.
        writable=_texts(path for path in _real(map(Path, wishes.write)) if not root.is_relative_to(path)),
        tmp=str(tmp),
        output=str(output.resolve()),
        environment=tuple(commands_environment(environ, home, user_home, root, tmp, wishes, network).items()),
        opened=_texts(_real(read)),
        hidden=_texts(hidden),
        protected=_texts(protected),
        network=network,
        hosts=wishes.hosts if network is Network.LISTED else (),
    )


def _usable(root: Path, workspace: Path) -> None:
    if not root.is_dir():
        raise StopError(f"The workspace {workspace} is no directory; name one that exists.", USAGE)
    if root == Path("/"):
        raise StopError("The workspace can't be / itself; start in the directory of your project.", USAGE)
    try:
        str(root).encode()
    except UnicodeEncodeError:
        words = f"The workspace's path is not UTF-8: {str(root)!r}; rename that directory."
        raise StopError(words, USAGE) from None


def _confinable(root: Path, user_home: Path, state: Path) -> None:
    """Whether a sandbox around this workspace would mean something.  Nothing inside a workspace can be kept
    from commands everywhere, and a home directory is full of keys."""
    what = ""
    if root == user_home or user_home.is_relative_to(root):
        what = f"The workspace {root} holds your home directory, and so your keys and passwords"
    elif root in {Path("/", name) for name in _NO_WORKSPACE}:
        what = f"The workspace {root} is a directory of the system"
    elif state.is_relative_to(root):
        words = f"The workspace {root} holds the agent's own state, {state}"
        raise StopError(f"{words}; move that (AGENT_HOME) or start in the directory of a project.", USAGE)
    elif root.is_relative_to(state):
        words = f"The workspace {root} lies in the agent's own state, {state}"
        raise StopError(f"{words}; start in the directory of a project.", USAGE)
    if what:
        raise StopError(
            f"{what}; start in the directory of a project, or without a sandbox: --sandbox unconfined.", USAGE
        )


def _real(places: Iterable[Path]) -> Iterator[Path]:
    """Of places that settings name, what is there."""
    for path in places:
        with contextlib.suppress(OSError, RuntimeError):
            yield path.resolve(strict=True)


def _shared_repository(root: Path) -> tuple[Path, ...]:
    """The directory that a linked working tree shares with others, so that git works in it."""
    repository = repository_of(root)
    if repository is None or repository.common.is_relative_to(root):
        return ()
    return (repository.common,)


def _texts(paths: Iterable[Path]) -> tuple[str, ...]:
    """What can be sent to a worker, each once."""
    texts: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            if is_text(str(path)):
                texts[str(path)] = None
    return tuple(texts)
