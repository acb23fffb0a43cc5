"""Whole outputs of calls whose results are capped: raw files that a worker writes through a descriptor."""

import os
import re
from pathlib import Path

from supervisor.store.disk import open_private, private_directory

_NAME_LENGTH = 60
"""Characters of a call's id in a name; a file system allows 255 bytes."""


class Outputs:
    """The directory of outputs.  It exists from the start, since workers are given it to read."""

    def __init__(self, directory: Path) -> None:
        self.directory = private_directory(directory)

    def open(self, call_id: str) -> tuple[str, int]:
        """A new file's name in the directory, and its descriptor, which the caller closes.

        The id is the model's text, so only letters, digits, `_` and `-` of it are used.  Raises StoreError.
        """
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", call_id)[:_NAME_LENGTH].lstrip("-") or "call"
        number = 1
        while True:
            name = f"{stem}.txt" if number == 1 else f"{stem}-{number}.txt"
            try:
                return name, open_private(self.directory / name, os.O_RDWR | os.O_EXCL)
            except FileExistsError:
                number += 1
