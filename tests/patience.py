"""How long a test waits for what takes no longer on a machine that is its own."""

import os


def patience(seconds: float) -> float:
    """So many seconds, and more where others want the processors too."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
