"""Whether the mounts over closed places still stand.

Who replaces a file from outside (an editor that writes a new one and renames it does) takes away what was
mounted on it in here, and the new file is open.  Nothing can be mounted any more by then, so the worker says
so before a call begins, and another one takes its place.  A command that runs meanwhile sees the new file.
"""

import errno
import os

from protocol.policy import SandboxPolicy
from worker.sandbox import kernel


class Covers:
    """Made once all mounts stand.  Without namespaces, or before Linux 5.6, it watches nothing."""

    def __init__(self, policy: SandboxPolicy) -> None:
        places = dict.fromkeys((*policy.hidden, *policy.protected))
        self._closed = tuple(path for path in places if _mounted(path) is True)

    def fallen(self) -> bool:
        """Whether one of them is open by now."""
        return any(_mounted(path) is False for path in self._closed)


def _mounted(path: str) -> bool | None:
    """Whether something is mounted exactly there; None where nothing is there."""
    directory, name = os.path.split(path)
    try:
        above = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.close(kernel.open_unmounted(above, name))
    except OSError as error:
        return True if error.errno == errno.EXDEV else None
    finally:
        os.close(above)
    return False
