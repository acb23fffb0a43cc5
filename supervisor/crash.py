"""The file that an unexpected exception leaves behind: what went wrong, for a report of the fault.

It lies in the state directory, readable by its owner only, and holds neither our key nor anything that has
the shape of one.  Values of variables are left out: they could be anything.
"""

import os
import platform
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from supervisor.version import VERSION


def record(error: BaseException) -> str:
    """Write the file; the words that say where it lies, or why there is none."""
    try:
        path = _write(_text(error))
    except OSError as failure:
        return f"the details could not be written: {failure.strerror}"
    return f"the details are in {path}"


def _text(error: BaseException) -> str:
    from supervisor.masks import Masks

    head = f"polier {VERSION}, Python {platform.python_version()}, {platform.platform()}\n"
    head += f"{datetime.now(UTC).isoformat(timespec='seconds')}, {len(sys.argv)} arguments\n\n"
    text = head + "".join(traceback.format_exception(error))
    return Masks(os.environ.get("DEEPSEEK_API_KEY"), known_shapes=True).mask(text)


def _write(text: str) -> Path:
    directory = _directory()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    descriptor, name = tempfile.mkstemp(".txt", f"crash-{stamp}-", directory)  # 0600 whatever the umask
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


def _directory() -> Path:
    """`crashes` in the state directory; the temporary directory where the state can't be written."""
    from supervisor.settings import state_directory

    try:
        directory = state_directory(os.environ) / "crashes"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir())
    return directory
