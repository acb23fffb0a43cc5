"""The whole environment of commands: names on a list, places for their caches, programs that give up at once
where there is no network.  What is the same for every command whatever the policy is in the worker."""

import re
from collections.abc import Mapping
from pathlib import Path

from protocol.policy import Mode, Network
from supervisor.choices.tables import SandboxChoices
from supervisor.policy.readable import TOOLCHAIN_VARIABLES

_PASSED = ("USER", "LOGNAME", "LANG", "TZ", "CONDA_DEFAULT_ENV", "CI", "COLUMNS", "LINES", "NO_COLOR")
_FOUND_IN_HOME = {"PYENV_ROOT": ".pyenv", "RUSTUP_HOME": ".rustup", "NVM_DIR": ".nvm", "VOLTA_HOME": ".volta"}
"""Programs look for these below $HOME, which is a private directory for them."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL = "/bin/bash"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH|^(AWS|AZURE|GOOGLE|GH|GITHUB|DEEPSEEK)_")
"""What is in a name that says that its value is a secret."""
_NEVER = re.compile(
    r"(SSH_AUTH_SOCK|SSH_AGENT_PID|DBUS_.*|DISPLAY|WAYLAND_.*|XAUTHORITY|BASH_ENV|BASH_FUNC_.*|ENV|LD_.*"
    r"|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PYTHONSTARTUP|POLIER_.*)"
)
"""Ways to the user's desktop and keys, or into every program that starts; not passed whoever wishes it."""
QUICK_FAILURE = {
    "npm_config_offline": "true",
    "npm_config_fetch_retries": "0",
    "PIP_RETRIES": "0",
    "PIP_DEFAULT_TIMEOUT": "5",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_OFFLINE": "1",
    "CARGO_NET_OFFLINE": "true",
    "GOPROXY": "off",
}
"""Without a network these would try again for tens of seconds."""


def commands_environment(
    environ: Mapping[str, str],
    home: Path,
    user_home: Path,
    workspace: Path,
    tmp: Path,
    wishes: SandboxChoices,
    network: Network,
) -> dict[str, str]:
    """Names of the user's settings come to those on the list; those that look like secrets' count only
    where the settings call them that."""
    more = {name for name in wishes.environment if not _SECRET.search(name.upper())}
    more |= set(wishes.environment_secret)
    names = {*_PASSED, *TOOLCHAIN_VARIABLES, *more}
    made = {
        name: value
        for name, value in environ.items()
        if (name in names or name.startswith("LC_")) and not _NEVER.fullmatch(name)
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
    if wishes.mode is not Mode.UNCONFINED:
        made |= with_network({}, network)
    return {name: value for name, value in made.items() if is_text(value)}


def with_network(environment: Mapping[str, str], network: Network) -> dict[str, str]:
    """The environment for this network instead of another one."""
    kept = {name: value for name, value in environment.items() if QUICK_FAILURE.get(name) != value}
    return kept | QUICK_FAILURE if network is Network.OFF else kept


def is_text(value: str) -> bool:
    """Whether it can be sent to a worker."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


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
