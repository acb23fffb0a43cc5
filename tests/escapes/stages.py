"""Where it is played: who, on which rung, with an interpreter and a checkout that they can read.

When the tests run as root, an ordinary user is a process with another user's id, without groups and without
capabilities.  When they run as an ordinary user, that is the one, and root's half is left out.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from tests.escapes.attack import Rung, Who
from tests.escapes.play import STORY, Part, Story

CHECKOUT = Path(__file__).parents[2]
_ID = 64321
"""Of nobody who is anybody."""
_PLAY_SECONDS = 400.0
"""About 15 are needed; a busy machine takes its time."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NotHereError(Exception):
    """This stage can't be had on this machine; the message says why."""


@dataclass(frozen=True)
class Stage:
    who: Who
    rung: Rung

    def __str__(self) -> str:
        return f"{self.who.value} on {self.rung.value}"


STAGES = tuple(Stage(who, rung) for who in Who for rung in Rung if rung is not Rung.NONE)
UNCONFINED = tuple(Stage(who, Rung.NONE) for who in Who)


class Theatre:
    """A directory that everybody can read, for one run of the tests."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.root = root
        self._run = Path("/run", root.name)
        self._packages = root / "packages"
        self._checkout = root / "checkout"

    def play(self, stage: Stage, only: str = "") -> Story:
        """Raises NotHereError."""
        if stage.who is Who.ROOT and os.geteuid() != 0:
            raise NotHereError("the tests run as an ordinary user")
        if why := not_here(stage.rung):
            raise NotHereError(why)
        number = _ID if stage.who is Who.USER and os.geteuid() == 0 else None
        own = self.root / f"{stage.who.name}-{stage.rung.name}".lower()
        own.mkdir()
        (own / "opt").mkdir()
        run = self._run / own.name
        if os.geteuid() == 0:
            run.mkdir(parents=True)
            other = own / "opt/as-other"
            shutil.copy2(shutil.which("id", path=_PATH) or "/usr/bin/id", other)
            os.chown(other, 0 if number else 65534, 0)
            other.chmod(0o4755)
        if number is not None:
            for path in (own, own / "opt", run):
                os.chown(path, number, number)
        return self._played(
            Part(stage.who, stage.rung, str(own / "site"), str(run) if run.is_dir() else "", only),
            own,
            number,
        )

    def _played(self, part: Part, own: Path, number: int | None) -> Story:
        site, said, told = Path(part.root), own / "story", own / "part"
        site.mkdir()
        (own / "opt").rename(site / "opt")
        if number is not None:
            os.chown(site, number, number)
        told.write_bytes(msgspec.json.encode(part))
        interpreter, paths = (
            self._as_ordinary() if number else (sys.executable, [str(CHECKOUT), *_packages()])
        )
        environ = {
            "PATH": _PATH,
            "PYTHONPATH": ":".join(paths),
            "HOME": str(site / "home"),
            "LANG": "C.UTF-8",
        }
        words = [interpreter, "-B", "-m", "tests.escapes.player", str(told), str(said)]
        with subprocess.Popen(
            words, env=environ, cwd=paths[0], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, text=True,
            user=number, group=number, extra_groups=None if number is None else [],
        ) as player:  # fmt: skip
            try:
                text, _ = player.communicate(timeout=_PLAY_SECONDS)
            except subprocess.TimeoutExpired:
                player.kill()
                text = f"it took more than {_PLAY_SECONDS:.0f} s\n" + player.communicate()[0]
        assert player.returncode == 0, f"the player failed: {text}"
        return STORY.decode(said.read_bytes())

    @cache  # noqa: B019 - it lives as long as the run
    def _as_ordinary(self) -> tuple[str, list[str]]:
        """An interpreter that the ordinary user can run, and where that finds what it imports."""
        for name in ("protocol", "supervisor", "worker", "tests/escapes"):
            shutil.copytree(
                CHECKOUT / name, self._checkout / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy2(CHECKOUT / "tests/__init__.py", self._checkout / "tests")
        for found in _distributions():
            for file in found.files or ():
                source, target = Path(str(found.locate_file(file))), self._packages / file
                if ".." not in file.parts and source.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, target)
        subprocess.run(["chmod", "-R", "a+rX", self.root], check=True)
        return self.interpreter(), [str(self._checkout), str(self._packages)]

    def interpreter(self) -> str:
        """One that an ordinary user can run."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        asks = f"import sys, _ctypes, ssl; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        for path in (
            sys.executable,
            f"/usr/local/bin/python{version}",
            f"/usr/bin/python{version}",
            "/usr/bin/python3",
        ):
            try:
                asked = subprocess.run(
                    [path, "-I", "-c", asks],
                    user=_ID,
                    group=_ID,
                    extra_groups=[],
                    capture_output=True,
                    check=False,
                )
            except OSError:
                continue
            if asked.returncode == 0:
                return path
        return self._copied(version)

    def _copied(self, version: str) -> str:
        """The standard library and the program itself; a copy finds its library beside itself."""
        base, copy = Path(sys.base_prefix), self.root / "python"
        (copy / "bin").mkdir(parents=True)
        shutil.copy2(base / f"bin/python{version}", copy / "bin/python3")
        ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__")
        shutil.copytree(base / f"lib/python{version}", copy / f"lib/python{version}", ignore=ignored)
        for library in (base / "lib").glob("libpython*"):
            shutil.copy2(library, copy / "lib")
        subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
        return str(copy / "bin/python3")

    def close(self) -> None:
        shutil.rmtree(self._run, ignore_errors=True)
        shutil.rmtree(self.root)


def _packages() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


def _distributions() -> Iterator[importlib.metadata.Distribution]:
    """What the project is declared to need, with what that needs."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted, seen = list(project["dependencies"]), set()
    while wanted:
        requirement = wanted.pop()
        name = requirement.split(";")[0].strip().split("[")[0]
        name = name.rstrip(" ()").split(" ")[0]
        for mark in "<>=!~(":
            name = name.split(mark)[0]
        if name in seen or "extra ==" in requirement:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        yield found
        wanted += found.requires or ()


@cache
def not_here(rung: Rung) -> str:
    """Why this machine can't have the rung, found without the code that is tested; empty where it can."""
    asks = "import ctypes, sys; sys.exit(ctypes.CDLL(None).{})"
    match rung:
        case Rung.NATIVE | Rung.BARE:
            asked = [sys.executable, "-c", asks.format("unshare(0x10000000) != 0")]
            return _refused(asked, "user namespaces are refused")
        case Rung.BUBBLEWRAP:
            if not Path("/usr/bin/bwrap").exists():
                return "bubblewrap is not installed"
            return _refused(
                ["/usr/bin/bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"], "bubblewrap is refused"
            )
        case Rung.NONE:
            return ""
        case Rung.LANDLOCK:
            return _refused(
                [sys.executable, "-c", asks.format("syscall(444, None, 0, 1) < 1")], "there is no Landlock"
            )


def _refused(words: list[str], why: str) -> str:
    return why if subprocess.run(words, capture_output=True, check=False).returncode else ""


@contextmanager
def theatre() -> Iterator[Theatre]:
    made = Theatre(Path(tempfile.mkdtemp(prefix="polier-escapes-", dir="/tmp")))
    try:
        yield made
    finally:
        made.close()
