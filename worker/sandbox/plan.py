"""From a policy to what a worker sees of the disk: a list of mounts, as data.

Nothing is mounted here, and nothing is looked up but by the function that is passed in.  There are two
executors: mounts.py by our own system calls, bubblewrap.py as arguments of `bwrap`.  The root is an empty
file system in memory, in which each step finds or makes its place; at the end it is read-only.

Steps stand in the order of their execution, what is above before what is below it.  So the last one that
covers a path decides about it: a workspace within a readable directory, a secret within the workspace.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from protocol.policy import OUTPUT_MOUNT, Mode, SandboxPolicy, of_the_machine

RUN_BYTES = 16 * 1024**2
"""Of the private /run."""
SHM_BYTES = 256 * 1024**2
"""Of the private /dev/shm; it is memory."""
TMP_BYTES = 256 * 1024**2
"""Of a /tmp in memory, where the policy's directory can't be shown there."""
TMP_PLACES = ("/tmp", "/var/tmp")
PRIVATE = ("/proc", "/dev")
"""Made anew: nothing of the machine's own is shown there."""


class Found(Enum):
    """What stands at a path.  A link is nothing: paths of a policy are real."""

    DIRECTORY = "directory"
    FILE = "file"
    """Anything else."""


@dataclass(frozen=True)
class Bind:
    """A file or directory of the machine, with what is mounted below it.  `needed`: without it there is no
    sandbox; another one that can't be had is passed over."""

    source: str
    target: str
    writable: bool = False
    needed: bool = False
    stands_in: bool = False
    """The source is a copy of what the machine has at the target."""


@dataclass(frozen=True)
class Pin:
    """What is seen at this place by now is bound onto itself: it can't be renamed, perhaps not written."""

    target: str
    writable: bool


@dataclass(frozen=True)
class Empty:
    """A mask: an empty read-only file or directory.  What comes below it is shown in it."""

    target: str
    directory: bool


@dataclass(frozen=True)
class Tmpfs:
    """An empty writable file system in memory."""

    target: str
    size: int


@dataclass(frozen=True)
class Overlay:
    """`lower` as it is, with all that is written kept in `upper`; `work` lies beside it."""

    lower: str
    upper: str
    work: str
    target: str


@dataclass(frozen=True)
class Proc:
    """The processes of the worker's own namespace; what it says about the machine is read-only."""

    target: str = "/proc"


@dataclass(frozen=True)
class Devices:
    """The few devices that ordinary programs use, terminals of its own, shared memory of its own."""

    target: str = "/dev"


@dataclass(frozen=True)
class Link:
    """A symbolic link in the root, such as /bin -> usr/bin."""

    target: str
    to: str


Step = Bind | Pin | Empty | Tmpfs | Overlay | Proc | Devices | Link


def plan(
    policy: SandboxPolicy,
    look: Callable[[str], Found | None],
    links: Sequence[Link] = (),
    sockets: Iterable[str] = (),
) -> tuple[Step, ...]:
    """The mounts of a confined policy.

    `look` says what stands at a path of the machine.  `links`: those of the machine's root.  `sockets`: real
    paths at which a program of the machine listens; a read-only mount does not keep anybody from connecting.
    """
    writes = policy.mode is not Mode.READ_ONLY
    made: dict[str, Step] = {}
    for step in (Proc(), Devices(), Tmpfs("/run", RUN_BYTES)):
        made[step.target] = step
    for path in policy.writable:
        if look(path) and not of_the_machine(path):
            made[path] = Bind(path, path, writes)
    made[policy.workspace] = _workspace(policy, writes)
    made |= _private(policy)
    given = set(made)
    for path in sorted({*policy.readable, *policy.opened}, key=_depth):
        if not _closed(path, policy, given) and look(path) and not _seen(path, policy, made):
            made[path] = Bind(path, path)
    made = _ways(policy, made) | made
    steps = [*links, *made.values()]
    steps += _pins(policy, look, made)
    steps += _masks(policy, look, made, sockets)
    return tuple(sorted(steps, key=lambda step: (_depth(step.target), _rank(step), step.target)))


def below(path: str, place: str) -> bool:
    """Whether a path is this place or lies below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def _workspace(policy: SandboxPolicy, writes: bool) -> Step:
    place = policy.workspace
    if policy.layer:
        return Overlay(place, f"{policy.layer}/upper", f"{policy.layer}/work", place)
    if policy.copied:
        return Bind(policy.copied, place, writes, needed=True, stands_in=True)
    return Bind(place, place, writes, needed=True)


def _private(policy: SandboxPolicy) -> dict[str, Step]:
    """The worker's own directories, at their own places and where programs look for them."""
    made: dict[str, Step] = {}
    tmp, taken = policy.tmp, (policy.workspace, *policy.writable)
    if tmp:
        made[tmp] = Bind(tmp, tmp, True, needed=True)
    # What is masked or protected below `tmp` would be open at its second place.
    inner = (policy.workspace, *policy.hidden, *policy.protected, *policy.pinned)
    shared = tmp and not any(below(path, tmp) for path in inner)
    for place in TMP_PLACES:
        if place not in taken and place != tmp:
            made[place] = Bind(tmp, place, True, needed=True) if shared else Tmpfs(place, TMP_BYTES)
    if policy.output:
        made[policy.output] = Bind(policy.output, policy.output)
        made[OUTPUT_MOUNT] = Bind(policy.output, OUTPUT_MOUNT)
    return made


def _ways(policy: SandboxPolicy, made: dict[str, Step]) -> dict[str, Step]:
    """What lies below a private /tmp keeps its path, and the way to it can be neither moved nor written."""
    ways: dict[str, Step] = {}
    for place in TMP_PLACES:
        for path in made:
            name, more, _ = path.removeprefix(f"{place}/").partition("/")
            if more and path.startswith(f"{place}/") and place not in (policy.workspace, *policy.writable):
                ways[f"{place}/{name}"] = Empty(f"{place}/{name}", directory=True)
    return ways


def _closed(path: str, policy: SandboxPolicy, given: set[str]) -> bool:
    """Whether a readable path isn't to be mounted: hidden, made anew, or shown with more rights."""
    if path == "/" or path in given or any(below(path, place) for place in PRIVATE):
        return True
    if path in policy.opened:
        return False
    return any(below(path, secret) for secret in policy.hidden)


def _seen(path: str, policy: SandboxPolicy, made: dict[str, Step]) -> bool:
    """Whether a step above shows it, and nothing between hides it again."""
    return _shown(path, made) and not any(below(path, secret) for secret in policy.hidden)


def _shown(path: str, made: dict[str, Step]) -> bool:
    """Whether what the machine has at this path can be seen at the same path by now."""
    match _around(path, made):
        case Bind(source=source, target=target, stands_in=stands_in):
            return source == target or stands_in
        case Overlay():
            return True
    return False


def _around(path: str, made: dict[str, Step]) -> Step | None:
    """The step that decides about a path."""
    places = [path, *(str(parent) for parent in PurePosixPath(path).parents)]
    return next((made[place] for place in places if place in made), None)


def _pins(policy: SandboxPolicy, look: Callable[[str], Found | None], made: dict[str, Step]) -> list[Step]:
    """What stays as it is, within what may be written."""
    # Of a copy nothing is pinned: bwrap would bind what the machine has there, and let it be written.
    pins = {path: Pin(path, True) for path in policy.pinned if not policy.copied}
    pins |= {path: Pin(path, False) for path in policy.protected}
    stay = [pin for path, pin in pins.items() if look(path) and _written(path, made)]
    taken = {pin.target for pin in stay}
    kept = [path for path in (*pins, *policy.hidden) if look(path)]
    ways = dict.fromkeys(way for path in kept for way in _way_to(path, made))
    return [*(Pin(way, True) for way in ways if way not in taken), *stay]


def _way_to(path: str, made: dict[str, Step]) -> list[str]:
    """The directories that lead to a closed place from where all may be written.  Could one of them be moved,
    the place would be open to the next worker, under another name."""
    match _around(path, made):
        case Bind(source=source, target=top, writable=True) if source == top:
            pass
        case Overlay(target=top):
            pass
        case _:
            return []
    return [way for parent in PurePosixPath(path).parents if below(way := str(parent), top) and way != top]


def _written(path: str, made: dict[str, Step]) -> bool:
    match _around(path, made):
        case Bind(source=source, target=target, writable=writable, stands_in=stands_in):
            return writable and (source == target or stands_in)
        case Overlay():
            return True
    return False


def _masks(
    policy: SandboxPolicy,
    look: Callable[[str], Found | None],
    made: dict[str, Step],
    sockets: Iterable[str],
) -> list[Step]:
    """What can't be read, within what can be seen."""
    never = {policy.workspace, policy.tmp, policy.output}
    # A worker's own directory has the sockets of its own commands.
    outside = [path for path in sockets if not (policy.tmp and below(path, policy.tmp))]
    masked: dict[str, Step] = {}
    for path in sorted({*policy.hidden, *outside}, key=_depth):
        found = look(path)
        if found and path not in never and _shown(path, made) and not _covered(path, masked, made):
            masked[path] = Empty(path, found is Found.DIRECTORY)
    return list(masked.values())


def _covered(path: str, masked: dict[str, Step], made: dict[str, Step]) -> bool:
    """Whether a mask above hides it already, with nothing between that shows it again."""
    around = _around(path, made)
    return any(
        below(path, mask) and (around is None or not below(around.target, mask) or around.target == mask)
        for mask in masked
    )


def _rank(step: Step) -> int:
    """The order of steps at the same depth, where several have the same place."""
    match step:
        case Empty():
            return 3
        case Pin(writable=writable):
            return 1 if writable else 2
        case _:
            return 0


def _depth(path: str) -> int:
    return len(PurePosixPath(path).parts)
