"""Coverage of processes that leave by os._exit and may write next to nothing.  For tests only."""

import importlib
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from protocol.control import Birth
from worker.serve.process import nothing


class Measure:
    """Coverage of a worker, for tests: `rcfile` is its configuration, empty for none.

    A process that leaves by os._exit and can write nowhere records nothing on its own: the measure begins
    after the fork, and its directory is made writable.
    """

    def __init__(self, rcfile: str) -> None:
        self._rcfile = rcfile
        self.writable = (str(Path(rcfile).parent),) if rcfile else ()

    def allowed(self, birth: Birth) -> Birth:
        """With leave to write the measure."""
        policy = birth.policy
        return Birth(replace(policy, writable=(*policy.writable, *self.writable)), birth.limits)

    def begin(self) -> Callable[[], None]:
        """What saves the measure."""
        if not self._rcfile:
            return nothing
        # Not there outside of a test's environment.
        coverage = importlib.import_module("coverage")
        current = coverage.Coverage.current()
        if current is not None:
            current.stop()
        measured = coverage.Coverage(
            config_file=self._rcfile, data_file=str(Path(self._rcfile).parent / ".coverage"), data_suffix=True
        )
        measured.start()

        def save() -> None:
            measured.stop()
            measured.save()

        return save
