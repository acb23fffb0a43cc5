"""The file that an unexpected exception leaves behind: what went wrong, for a report of the fault.

It lies in the state directory, readable by its owner only, and holds neither our key nor anything that has
the shape of one.  Values of variables are left out: they could be anything.
"""

import os
import platform
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from supervisor.exits import StopError
from supervisor.masks import Masks
from supervisor.places import current_directory
from supervisor.settings import Flags, load, read_key
from supervisor.version import VERSION

SHOWN = 300
"""Characters of the error's own words in the line; the file has them all."""


def record(error: BaseException, cause: BaseException) -> str:
    """Write the file; the line that names the cause and where the file lies, or why there is none."""
    key, directory = _place()
    masks = Masks(key, known_shapes=True)
    words = masks.mask_all(f"{type(cause).__name__}: {cause}".rstrip(": "))[:SHOWN]
    head = f"polier {VERSION}, Python {platform.python_version()}, {platform.platform()}\n\n"
    text = masks.mask_all(head + "".join(traceback.format_exception(error)))
    return f"this is a fault of the program, not yours: {words}; {_written(directory, text)}"


def _written(directory: Path, text: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes the file 0600 whatever the umask
        descriptor, name = tempfile.mkstemp(".txt", f"crash-{stamp}-", directory)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as failure:
        return f"the details could not be written: {failure.strerror}"
    return f"the details are in {name}"


def _place() -> tuple[str | None, Path]:
    """Our key, and `crashes` in the state directory; the temporary directory where no settings can be had."""
    try:
        settings = load(Flags(), os.environ, current_directory()).settings
    except (StopError, OSError):
        return os.environ.get("DEEPSEEK_API_KEY"), Path(tempfile.gettempdir())
    return read_key(settings, os.environ), settings.home / "crashes"
