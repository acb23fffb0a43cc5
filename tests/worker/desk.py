"""A worker's desk for tests of tools: a workspace of their own, and calls at it."""

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from protocol.policy import Limits, Mode, SandboxPolicy
from worker.call import Call, Desk, ToolError


def _nowhere(_text: str) -> None:
    """These tools print nothing."""


def _no_output() -> tuple[str, int]:
    raise ToolError("no output file here")


@dataclass
class Room:
    """A workspace with its neighbours: `tmp`, `output`, and `outside`, which nobody may touch."""

    workspace: Path
    tmp: Path
    output: Path
    outside: Path
    limits: Limits = field(default_factory=Limits)
    mode: Mode = Mode.WORKSPACE_WRITE
    desk: Desk = field(init=False)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        policy = SandboxPolicy(
            str(self.workspace), mode=self.mode, tmp=str(self.tmp), output=str(self.output)
        )
        self.desk = Desk(policy, self.limits, self.workspace)

    def change(self, policy: SandboxPolicy | None = None, limits: Limits | None = None) -> None:
        self.desk = Desk(policy or self.desk.policy, limits or self.desk.limits, self.workspace)

    def confine(self, **changes: object) -> None:
        """Another policy: this one with some fields changed."""
        self.change(policy=msgspec.structs.replace(self.desk.policy, **changes))

    @property
    def call(self) -> Call:
        return Call("c1", self.desk, self.cancelled, _nowhere, _no_output)

    def put(self, name: str, data: bytes) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    for name in ("workspace", "tmp", "output", "outside"):
        (tmp_path / name).mkdir()
    before = set(os.listdir("/proc/self/fd"))
    real = tmp_path.resolve()
    yield Room(real / "workspace", real / "tmp", real / "output", real / "outside")
    assert len(os.listdir("/proc/self/fd")) <= len(before), "a descriptor was left open"


@pytest.fixture
def ordinary_room() -> Iterator[Room]:
    """A room that an ordinary user may go into and owns, also where the tests run as root."""
    top = Path("/tmp") / f"polier-test-{os.getpid()}-{os.urandom(4).hex()}"
    top.mkdir()
    top.chmod(0o755)
    for name in ("workspace", "tmp", "output", "outside"):
        (top / name).mkdir()
        (top / name).chmod(0o777)
    yield Room(top / "workspace", top / "tmp", top / "output", top / "outside")
    shutil.rmtree(top)
