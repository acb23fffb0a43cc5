"""The policy of a session, from the user's settings and what the machine has.

An allow-list: the system's programs, the user's toolchains, the workspace.  Which places those are is in the
files beside this one; what a grant adds is in widen.py.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from protocol.policy import Mode, Network, SandboxPolicy
from supervisor.exits import USAGE, StopError
from supervisor.policy.environment import commands_environment, is_text
from supervisor.policy.home import private_home
from supervisor.policy.protected import protected_places
from supervisor.policy.readable import readable_places
from supervisor.policy.repository import repository_of
from supervisor.policy.secrets import hidden_places
from supervisor.policy.survey import Survey, survey

_NO_WORKSPACE = (
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc", "root", "run",
    "sbin", "sys", "tmp", "usr", "usr/bin", "usr/lib", "usr/local", "usr/sbin", "var", "var/lib", "var/tmp",
)  # fmt: skip
"""Below /.  A project may lie in one of them, but none of them is a project."""


class Wishes(Struct, frozen=True):
    """What the user's settings say about the sandbox.  Paths may begin with `~`."""

    mode: Mode = Mode.WORKSPACE_WRITE
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    environment_secret: tuple[str, ...] = ()
    hide_env_files: bool = True
    """Whether files of the workspace that usually hold secrets are hidden: `.env`, private keys."""
    network: Network = Network.OFF


def default_policy(
    workspace: Path,
    output: Path,
    tmp: Path,
    environ: Mapping[str, str],
    home_state: Path,
    wishes: Wishes | None = None,
) -> SandboxPolicy:
    """The policy of a session.  `tmp` exists and is private; `home` is made in it, $HOME of commands.

    `home_state`: the state directory, hidden but for `output` and `tmp`.  `environ`: the user's, of which
    only names on a list reach commands.  Raises StopError for a workspace that can't be worked in.
    """
    wishes = wishes or Wishes()
    root, tmp, state = workspace.resolve(), tmp.resolve(), home_state.resolve()
    user_home = Path(environ.get("HOME") or "~").expanduser().resolve()
    _usable(root, workspace)
    unconfined = wishes.mode is Mode.UNCONFINED
    if unconfined:
        # What may be done is what the user may do, so their own home is the right one.
        home, hidden, protected = user_home, [], []
    else:
        _confinable(root, user_home, state)
        home = private_home(tmp, user_home, root)
        seen = survey(root)
        secrets = seen.secrets if wishes.hide_env_files else Survey().secrets
        hidden = list(hidden_places(state, user_home, root, environ, secrets))
        protected = list(protected_places(root, seen.repositories))
    network = Network.ON if unconfined else wishes.network
    wished = _wished((*wishes.read, *_shared_repository(root)), user_home)
    writable = [path for path in _wished(wishes.write, user_home) if not root.is_relative_to(path)]
    environment = commands_environment(
        environ,
        home,
        user_home,
        root,
        tmp,
        wishes.environment,
        wishes.environment_secret,
        wishes.mode,
        network,
    )
    return SandboxPolicy(
        workspace=str(root),
        mode=wishes.mode,
        readable=_texts(readable_places(environ, user_home, root, wished, hidden)),
        writable=_texts(path.resolve() for path in writable if path.exists()),
        tmp=str(tmp),
        output=str(output.resolve()),
        environment=tuple(environment.items()),
        opened=_texts(path.resolve() for path in _wished(wishes.read, user_home) if path.exists()),
        hidden=_texts(hidden),
        protected=_texts(protected),
        network=network,
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


def _wished(named: Iterable[str], home: Path) -> Iterator[Path]:
    """Paths of settings; `~` is the user's home.  What is relative means nothing here and is passed over."""
    for name in named:
        path = home / name[2:] if name.startswith("~/") else home if name == "~" else Path(name)
        if path.is_absolute():
            yield path


def _shared_repository(root: Path) -> tuple[str, ...]:
    """The directory that a linked working tree shares with others, so that git works in it."""
    repository = repository_of(root)
    if repository is None or repository.common.is_relative_to(root):
        return ()
    return (str(repository.common),)


def _texts(paths: Iterable[Path]) -> tuple[str, ...]:
    """What can be sent to a worker, each once."""
    texts: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            if is_text(str(path)):
                texts[str(path)] = None
    return tuple(texts)
