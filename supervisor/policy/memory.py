"""How much memory all commands of a worker may use, where the settings don't say: a share of the machine's.

A container's own limit counts as the machine.  Not here: who is held to it (worker/processes/guard.py).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from protocol.policy import Limits

LEAST = 2 * 1024**3
"""Bytes.  A compiler or a test run needs so much, as far as it is there."""
SHARE = 0.5
"""Of all memory: the other half is for what the user does meanwhile."""
AVAILABLE_SHARE = 0.75
"""Of what is available when a session starts, however much or little the machine has."""


def for_this_machine(limits: Limits, root: Path = Path("/")) -> Limits:
    """The limits with one of memory.  `root`: where the machine's /proc and /sys lie."""
    if limits.memory_bytes:
        return limits
    found = _fields(root / "proc/meminfo")
    total, available = found.get("MemTotal", LEAST), found.get("MemAvailable", LEAST)
    for ceiling in _ceilings(root):
        total, available = min(total, ceiling), min(available, ceiling)
    return replace(limits, memory_bytes=share(total, available))


def share(total: int, available: int) -> int:
    """Bytes."""
    return int(min(max(total * SHARE, LEAST), available * AVAILABLE_SHARE))


def _fields(meminfo: Path) -> dict[str, int]:
    """Bytes by name."""
    return {name: int(size) * 1024 for name, size in re.findall(r"(?m)^(\w+):\s+(\d+) kB$", _text(meminfo))}


def _ceilings(root: Path) -> Iterator[int]:
    """The limits of the control groups that we are in, of both versions, and of those around them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, names, place = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in names.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the place may be one outside of it, while what is seen at the top is its own.
        below = top / place.lstrip("/")
        for directory in (below, *below.parents):
            if directory.is_relative_to(top) and (size := _text(directory / name).strip()).isdecimal():
                yield int(size)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
