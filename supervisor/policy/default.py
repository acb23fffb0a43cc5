"""What tools may touch by default: the system's programs, the user's toolchains, the workspace; no secrets.

An allow-list.  Landlock can't take a part out of what it has granted, so a directory that holds something
hidden is granted entry by entry around it (what appears there later is then closed).  One thing can't be
hidden so: what lies inside the workspace itself, which is granted as a whole.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from protocol.policy import Mode, SandboxPolicy
from supervisor.exits import USAGE, StopError

_NOT_READABLE = frozenset(
    ("home", "root", "run", "var", "tmp", "boot", "media", "mnt", "lost+found", "proc", "sys", "dev")
)
"""Top-level directories that hold users' data, secrets or the machine itself."""
_SYSTEM = frozenset(
    ("bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "snap", "usr")
)
"""Readable even where the workspace lies below them.  Another one that holds the workspace holds its
neighbours too, which are other projects."""
_READABLE = (
    "/proc",  # other processes' memory and environment are closed by Landlock's own rule about ptrace
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/var/lib/dpkg",
    "/var/cache/fontconfig",
)
_SECRETS = ("shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "krb5.keytab", "ssl/private")
"""Below /etc.  For an ordinary user their modes close them already; root's tools are kept out by this."""
_TOOLCHAINS = (
    ".asdf", ".bun", ".cargo/bin", ".deno", ".dotnet", ".juliaup", ".local/bin", ".local/lib", ".local/opt",
    ".local/share/mise", ".local/share/pipx", ".local/share/uv", ".nix-profile", ".nvm", ".pyenv", ".rbenv",
    ".rustup", ".sdkman", ".volta", "anaconda3", "go/bin", "go/pkg", "miniconda3", "miniforge3",
)  # fmt: skip
"""Below the home directory.  Not whole `.cargo`, `.config` and the like: they hold credentials."""
_TOOLCHAIN_VARIABLES = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "NVM_BIN", "GOROOT", "RUSTUP_HOME", "JAVA_HOME",
    "SDKMAN_DIR", "ANDROID_HOME", "CUDA_HOME", "VOLTA_HOME",
)  # fmt: skip
"""Passed to commands, and their directories can be read."""
_PASSED = ("USER", "LOGNAME", "LANG", "TZ", "CONDA_DEFAULT_ENV", "CI", "COLUMNS", "LINES", "NO_COLOR")
_FOUND_IN_HOME = {"PYENV_ROOT": ".pyenv", "RUSTUP_HOME": ".rustup", "NVM_DIR": ".nvm", "VOLTA_HOME": ".volta"}
"""Programs look for these below $HOME, which is a private directory for them."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_IDENTITY = re.compile(r"(?ms)^\s*\[user\]([^\[]*)")
_NAMED = re.compile(r"(?m)^\s*(name|email)\s*=\s*(.+?)\s*$")
_SHELL = "/bin/bash"


def default_policy(
    workspace: Path,
    output: Path,
    tmp: Path,
    environ: Mapping[str, str],
    home_state: Path,
    *,
    mode: Mode = Mode.WORKSPACE_WRITE,
) -> SandboxPolicy:
    """The policy of a session.  `tmp` exists and is private; `home` is made in it, $HOME of commands.

    `home_state`: the state directory, hidden but for `output` and `tmp`.  `environ`: the user's, of which
    only names on a list reach commands.  Raises StopError for a workspace that can't be worked in.
    """
    root = workspace.resolve()
    _usable(root, workspace)
    user_home = Path(environ.get("HOME") or "~").expanduser().resolve()
    hidden = (
        home_state.resolve(),
        *(Path("/etc", name) for name in _SECRETS),
        *Path("/etc/ssh").glob("*_key"),
    )
    # Unconfined tools may read the user's own home anyway.
    home = user_home if mode is Mode.UNCONFINED else _private_home(tmp.resolve(), user_home, root)
    return SandboxPolicy(
        workspace=str(root),
        mode=mode,
        readable=tuple(_texts(dict.fromkeys(_readable(environ, user_home, root, hidden)))),
        tmp=str(tmp.resolve()),
        output=str(output.resolve()),
        environment=tuple(_environment(environ, home, user_home, root, tmp.resolve()).items()),
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


def _readable(
    environ: Mapping[str, str], home: Path, workspace: Path, hidden: tuple[Path, ...]
) -> Iterator[Path]:
    """Real paths of what may be read and executed beside the workspace."""
    with os.scandir("/") as entries:
        system = [Path(entry.path) for entry in entries if _of_the_system(entry.name, workspace)]
    # A link to the resolver's file is common, and its target lies below /run.
    wanted = [*system, *map(Path, _READABLE), Path("/etc/resolv.conf")]
    wanted += [home / name for name in _TOOLCHAINS]
    wanted += [Path(environ[name]) for name in _TOOLCHAIN_VARIABLES if environ.get(name)]
    wanted += [Path(entry) for entry in environ.get("PATH", "").split(":") if entry.startswith("/")]
    # The interpreter that runs the workers, and what they may import late.
    wanted += [Path(place) for place in (sys.prefix, sys.base_prefix, sys.base_exec_prefix, *_packages())]
    for path in wanted:
        with contextlib.suppress(OSError):
            # Only a programs' directory below the home is granted, never the home or what is above it.
            if (real := path.resolve(strict=True)) not in (home, *home.parents):
                yield from _around(real, hidden)


def _of_the_system(name: str, workspace: Path) -> bool:
    """Whether a top-level directory may be read as a whole."""
    return name in _SYSTEM or (name not in _NOT_READABLE and name != workspace.parts[1])


def _around(path: Path, hidden: tuple[Path, ...]) -> Iterator[Path]:
    """The path, or where something hidden lies below it, its entries without that."""
    if any(path.is_relative_to(secret) for secret in hidden):
        return
    if not any(secret.is_relative_to(path) for secret in hidden):
        yield path
        return
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            # The target of a link has a rule of its own, or none.
            if not entry.is_symlink():
                yield from _around(Path(entry.path), hidden)


def _packages() -> Iterator[str]:
    for name in ("protocol", "worker"):
        if spec := find_spec(name):
            yield from spec.submodule_search_locations or ()
    if spec := find_spec("msgspec"):
        yield from (str(Path(place).parent) for place in spec.submodule_search_locations or ())


def _environment(
    environ: Mapping[str, str], home: Path, user_home: Path, workspace: Path, tmp: Path
) -> dict[str, str]:
    """The whole environment of commands."""
    made = {
        name: environ[name]
        for name in environ
        if name in _PASSED or name in _TOOLCHAIN_VARIABLES or name.startswith("LC_")
    }
    for name, below in _FOUND_IN_HOME.items():
        if name not in made and (user_home / below).is_dir():
            made[name] = str(user_home / below)
    made |= {
        "PATH": _path(environ, workspace),
        "HOME": str(home),
        "SHELL": _SHELL,
        "TMPDIR": str(tmp),
        "TERM": "dumb",
    }
    return {name: value for name, value in made.items() if _is_text(value)}


def _path(environ: Mapping[str, str], workspace: Path) -> str:
    """Absolute entries only, and none in the workspace but the active virtual environment's: a file that is
    written there must not become a program."""
    active = environ.get("VIRTUAL_ENV")
    kept = [
        entry
        for entry in environ.get("PATH", "").split(":")
        if entry.startswith("/")
        and (not Path(entry).is_relative_to(workspace) or (active and Path(entry).is_relative_to(active)))
    ]
    return ":".join(kept) or _DEFAULT_PATH


def _private_home(tmp: Path, user_home: Path, workspace: Path) -> Path:
    """$HOME of commands: empty but for who commits.  The real one can't be read, and git fails on a
    configuration that it may not read; so do others."""
    home = tmp / "home"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = ["[safe]", f"\tdirectory = {_quoted(str(workspace))}"]
    named: dict[str, str] = {}
    for place in (user_home / ".config/git/config", user_home / ".gitconfig"):
        with contextlib.suppress(OSError):
            text = place.read_text(errors="replace")
            for section in _IDENTITY.findall(text):
                named |= dict(_NAMED.findall(section))
    if named:
        lines += ["[user]", *(f"\t{key} = {value}" for key, value in named.items())]
    (home / ".gitconfig").write_text("\n".join(lines) + "\n")
    return home


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _texts(paths: Iterable[Path]) -> Iterator[str]:
    """What can be sent to a worker."""
    return (str(path) for path in paths if _is_text(str(path)))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
