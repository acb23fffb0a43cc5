"""What commands may read and execute beside the workspace: the system's programs, the user's toolchains.

An allow-list of whole directories.  Parts of them that are closed all the same are in secrets.py.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

_NOT_READABLE = frozenset(
    ("home", "root", "run", "var", "tmp", "boot", "media", "mnt", "lost+found", "proc", "sys", "dev")
)
"""Top-level directories that hold users' data, secrets or the machine itself."""
_SYSTEM = frozenset(
    ("bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "snap", "usr")
)
"""Readable even where the workspace lies below them.  Another one that holds the workspace holds its
neighbours too, which are other projects."""
_FURTHER = (
    "/proc",  # other processes' memory and environment are closed by Landlock's own rule about ptrace
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/var/lib/dpkg",
    "/var/cache/fontconfig",
)
_TOOLCHAINS = (
    ".asdf", ".bun", ".cargo/bin", ".deno", ".dotnet", ".juliaup", ".local/bin", ".local/lib", ".local/opt",
    ".local/share/mise", ".local/share/pipx", ".local/share/uv", ".nix-profile", ".nvm", ".pyenv", ".rbenv",
    ".rustup", ".sdkman", ".volta", "anaconda3", "go/bin", "go/pkg", "miniconda3", "miniforge3",
)  # fmt: skip
"""Below the home directory.  Not whole `.cargo`, `.config` and the like: they hold credentials."""
TOOLCHAIN_VARIABLES = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "NVM_BIN", "GOROOT", "RUSTUP_HOME", "JAVA_HOME",
    "SDKMAN_DIR", "ANDROID_HOME", "CUDA_HOME", "VOLTA_HOME",
)  # fmt: skip
"""Passed to commands, and their directories can be read."""


def readable_places(
    environ: Mapping[str, str], home: Path, workspace: Path, wished: Iterable[Path], hidden: Iterable[Path]
) -> Iterator[Path]:
    """Real paths of what is there.  `wished`: what the user's settings add; there the home is taken too."""
    with os.scandir("/") as entries:
        system = [Path(entry.path) for entry in entries if _of_the_system(entry.name, workspace)]
    # A link to the resolver's file is common, and its target lies below /run.
    wanted = [*system, *map(Path, _FURTHER), Path("/etc/resolv.conf")]
    wanted += [home / name for name in _TOOLCHAINS]
    wanted += [Path(environ[name]) for name in TOOLCHAIN_VARIABLES if environ.get(name)]
    programs = [Path(entry) for entry in environ.get("PATH", "").split(":") if entry.startswith("/")]
    wanted += programs
    # A virtual environment may be in use by its place on the PATH alone, and its programs need all of it.
    wanted += [entry.parent for entry in programs if os.access(entry.parent / "pyvenv.cfg", os.R_OK)]
    # The interpreter that runs the workers, and what they may import late.
    wanted += [Path(place) for place in (sys.prefix, sys.base_prefix, sys.base_exec_prefix, *_packages())]
    closed = set(hidden)
    # Only a programs' directory below the home is granted, never the home or what is above it.
    for path, never in (
        *((path, (home, *home.parents)) for path in wanted),
        *((path, ()) for path in wished),
    ):
        with contextlib.suppress(OSError, RuntimeError):
            real = path.resolve(strict=True)
            if real not in never and not closed.intersection((real, *real.parents)):
                yield real


def _of_the_system(name: str, workspace: Path) -> bool:
    """Whether a top-level directory may be read as a whole."""
    return name in _SYSTEM or (name not in _NOT_READABLE and name != workspace.parts[1])


def _packages() -> Iterator[str]:
    for name in ("protocol", "worker"):
        if spec := find_spec(name):
            yield from spec.submodule_search_locations or ()
    if spec := find_spec("msgspec"):
        yield from (str(Path(place).parent) for place in spec.submodule_search_locations or ())
