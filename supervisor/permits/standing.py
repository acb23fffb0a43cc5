"""What is in force in a session: the mode, the rung, what was granted; and what the user changes of it.

A change is another policy, and so another worker.  Not here: what a call may do (gate.py), and how this is
printed (screen/confined.py).
"""

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from protocol.permission import PermissionWordError
from protocol.policy import Limits, Mode, Network, Rung, SandboxPolicy
from protocol.wire import Ready
from supervisor.exits import USAGE, StopError
from supervisor.permits.gate import Gate
from supervisor.permits.grants import Granted
from supervisor.permits.opening import Permits

ALL = "all"
"""Taken back with /sandbox revoke: everything."""


class InForce(Struct, frozen=True):
    """What /sandbox shows.  All texts are raw."""

    mode: Mode
    ready: Ready
    network: Network
    hosts: tuple[str, ...]
    readable: tuple[str, ...]
    """By the settings, beside the usual places."""
    writable: tuple[str, ...]
    """By the settings, beside the workspace."""
    given: tuple[str, ...]
    """By `--allow`."""
    session: tuple[str, ...]
    project: tuple[Granted, ...]
    approved: tuple[str, ...]
    """Commands that run without a question though nothing confines them."""
    quiet: tuple[str, ...]
    """Rules that ask no more."""
    limits: Limits
    behind: bool
    """Whether jobs keep a worker alive that has an earlier policy."""


class Standing:
    """Of one session.  `base_of`: the policy without any grant that a mode has.  `limits`: as they are on
    this machine."""

    def __init__(
        self, permits: Permits, gate: Gate, limits: Limits, base_of: Callable[[Mode], SandboxPolicy]
    ) -> None:
        self._permits = permits
        self._gate = gate
        self._limits = limits
        self._base_of = base_of

    @property
    def mode(self) -> Mode:
        return self._gate.policy.mode

    async def in_force(self) -> InForce:
        """Waits for the worker that is being started, if one is."""
        ready = await self._gate.ready()
        choices, grants, policy = self._permits.settings.sandbox, self._gate.grants, self._gate.base
        kept = grants.of_project()
        project = {one.permission for one in kept}
        return InForce(
            mode=policy.mode,
            ready=ready,
            network=policy.network,
            hosts=policy.hosts,
            readable=choices.read,
            writable=choices.write,
            given=tuple(map(str, grants.given)),
            session=tuple(word for one in grants.granted if (word := str(one)) not in project),
            project=kept,
            approved=self._gate.decisions.commands,
            quiet=self._gate.decisions.rules,
            limits=self._limits,
            behind=self._gate.behind,
        )

    def change_mode(self, mode: Mode) -> bool:
        """From now on commands have this mode; False where jobs keep a worker with the earlier one until they
        end.  Raises StopError where it can't be had."""
        require = self._permits.settings.sandbox.require
        if mode is Mode.UNCONFINED and require is not Rung.OFF:
            words = f"unconfined can't be had: sandbox.require is {require.value!r} in the settings"
            raise StopError(words, USAGE)
        base = self._base_of(mode)
        return self._gate.change(base, self._permits.rebase(base))

    def revoke(self, word: str) -> tuple[str, ...]:
        """Take a grant back, for this session and for the project, or everything ("all").  What was taken
        back.  Raises StopError where nothing like that was granted, or the file can't be written."""
        if word == ALL:
            taken = (*self._gate.grants.revoke(None), *self._gate.decisions.forget())
        else:
            names = {word}
            with suppress(PermissionWordError):  # what was granted may be gone from the disk
                names |= {str(one) for one in self._permits.meant([word])}
            taken = self._gate.grants.revoke(names)
        if not taken:
            there = ", ".join(map(str, (*self._gate.grants.given, *self._gate.grants.granted))) or "nothing"
            raise StopError(f"{word} was not granted; granted: {there}", USAGE)
        base = self._gate.base
        self._gate.change(base, self._permits.rebase(base))
        return taken
