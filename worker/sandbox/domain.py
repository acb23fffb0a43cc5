"""The walls around each command: it reaches what it started itself, neither the worker nor other commands.

A fresh thread enters the domain and starts the shell from there (worker/processes/shell.py), since what a
thread has entered it can't leave.  Within a domain signals, ptrace and /proc/PID of processes outside of it
are refused; the worker, which is outside and above, keeps its rights to all of it.
"""

from worker.sandbox import landlock, rlimits
from worker.sandbox.seccomp import Filter

_NO_RIGHTS_TO_FILES_LOST = (("/", landlock.REFER),)
"""A domain of newer versions refuses to move files between directories unless a rule gives that back."""
_MAKE_BLOCK = 1 << 11
"""The first version wants some right to refuse; the outer domain refuses this one anyway."""


class Domain:
    """Made before the worker itself is restricted; `enter` is called by one fresh thread after the other."""

    def __init__(self, abi: int, filter: Filter | None) -> None:
        """`abi`: Landlock's version, 0 for none.  Raises OSError."""
        self._filter = filter
        self._ruleset: landlock.Ruleset | None = None
        if abi >= 2:
            self._ruleset = landlock.Ruleset(
                landlock.REFER, _NO_RIGHTS_TO_FILES_LOST, abi=abi, scopes=landlock.SCOPE_SIGNAL
            )
        elif abi == 1:
            self._ruleset = landlock.Ruleset(_MAKE_BLOCK, (), abi=abi)

    def enter(self) -> None:
        """For this thread and what it starts from now on; both step back behind what the user does.  Raises
        OSError; then nothing must be started."""
        rlimits.step_back()
        if self._ruleset is not None:
            self._ruleset.enter()
        if self._filter is not None:
            self._filter.install()
