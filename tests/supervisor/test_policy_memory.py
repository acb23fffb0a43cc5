"""How much memory commands may use, on machines of several sizes and in containers."""

from pathlib import Path

import pytest

from protocol.policy import Limits
from supervisor.policy.memory import for_this_machine, share

GIB = 1024**3


def machine(root: Path, total: int, available: int, cgroup: str = "", **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal:       {total // 1024} kB\nMemFree:  1 kB\nMemAvailable:   {available // 1024} kB\n"
    )
    (root / "proc/self/cgroup").write_text(cgroup)
    for place, text in files.items():
        path = root / "sys/fs/cgroup" / place.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("total", "available", "allowed"),
    [
        (32 * GIB, 30 * GIB, 16 * GIB),
        (3 * GIB, 3 * GIB, 2 * GIB),
        (32 * GIB, 8 * GIB, 6 * GIB),
        (1 * GIB, 1 * GIB, GIB * 3 // 4),
    ],
)
def test_half_of_the_memory_at_least_2_gib_at_most_three_quarters_of_what_is_available(
    total: int, available: int, allowed: int
) -> None:
    assert share(total, available) == allowed


def test_what_the_settings_name_stays(tmp_path: Path) -> None:
    assert for_this_machine(Limits(memory_bytes=5), tmp_path).memory_bytes == 5


def test_the_rest_of_the_limits_stays(tmp_path: Path) -> None:
    found = for_this_machine(Limits(processes=7), machine(tmp_path, 32 * GIB, 32 * GIB))
    assert found == Limits(processes=7, memory_bytes=16 * GIB)


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/\n", {"memory_dot_max": str(6 * GIB)}),
        ("0::/user/me\n", {"user__memory_dot_max": str(6 * GIB), "user__me__memory_dot_max": "max"}),
        ("3:cpu:/\n4:memory:/docker/x\n0::/\n", {"memory__memory_dot_limit_in_bytes": str(6 * GIB)}),
    ],
)
def test_a_container_s_limit_is_its_machine(tmp_path: Path, cgroup: str, files: dict[str, str]) -> None:
    found = for_this_machine(Limits(), machine(tmp_path, 64 * GIB, 60 * GIB, cgroup, **files))
    assert found.memory_bytes == 3 * GIB


def test_a_machine_that_tells_nothing_gives_three_quarters_of_the_least(tmp_path: Path) -> None:
    assert for_this_machine(Limits(), tmp_path).memory_bytes == GIB * 3 // 2


def test_this_machine_has_a_limit() -> None:
    assert 64 * 1024**2 < for_this_machine(Limits()).memory_bytes < 1 << 50
