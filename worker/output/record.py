"""The raw bytes that a command prints: in memory while they are few, in a file from then on.

The file is opened by the supervisor; here only its descriptor is written to, up to a cap.  Where no file
can be had, the newest bytes are kept in memory.  Not here: what the bytes look like (terminal_text.py).
"""

import os
import threading
from collections.abc import Callable

from worker.call import ToolError


class Record:
    """Written by one thread, read by others.

    `memory`: bytes that are kept without a file.  `directory`: where the file can be read.
    """

    def __init__(
        self, memory: int, file_cap: int, open_file: Callable[[], tuple[str, int]], directory: str
    ) -> None:
        self.size = 0
        """Bytes that were printed."""
        self.file = ""
        """The file's name in the output directory; empty while there is none."""
        self.why_no_file = ""
        """Why there is no file, or why it holds only a part; empty where all is well."""
        self._memory = bytearray()
        self._memory_cap = memory
        self._file_cap = file_cap
        self._open_file = open_file
        self._directory = directory
        self._fd: int | None = None
        self._written = 0
        self._lock = threading.Lock()

    @property
    def outgrown(self) -> bool:
        """Too much was printed to keep it without a file."""
        return self.size > self._memory_cap

    @property
    def dropped(self) -> int:
        """Bytes that were printed and are in no file, once there is one."""
        return self.size - self._written if self.file else 0

    def write(self, data: bytes) -> None:
        with self._lock:
            self.size += len(data)
            if not self.file and len(self._memory) + len(data) > self._memory_cap:
                self._spill()
            if self.file:
                self._write_file(data)
            else:
                self._memory += data
                if len(self._memory) > 2 * self._memory_cap:
                    del self._memory[: len(self._memory) - self._memory_cap]

    def tick(self) -> None:
        """Time has passed; a record doesn't care."""

    def spill(self) -> None:
        """Move to a file now: the call during which one can be had is about to end."""
        with self._lock:
            self._spill()

    def read(self, since: int, most: int) -> tuple[int, bytes]:
        """At most `most` bytes from `since` on, and where they really begin.  Raises ToolError."""
        with self._lock:
            if not self.file:
                first = self.size - len(self._memory)
                start = max(since, first)
                return start, bytes(self._memory[start - first : start - first + most])
        path = f"{self._directory}/{self.file}"
        try:
            with open(path, "rb") as file:
                file.seek(since)
                return since, file.read(most)
        except OSError as error:
            raise ToolError(f"the output can't be read from {path}: {error.strerror}") from error

    def close(self) -> None:
        """No more bytes come.  What there is can still be read."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _spill(self) -> None:
        if self.file or self.why_no_file:
            return
        try:
            self.file, self._fd = self._open_file()
        except ToolError as error:
            self.why_no_file = str(error)
            return
        self._write_file(bytes(self._memory))
        self._memory.clear()

    def _write_file(self, data: bytes) -> None:
        """Above the cap, and after an error, bytes are only counted: the command goes on."""
        view = memoryview(data)[: max(0, self._file_cap - self._written)]
        while view and self._fd is not None and not self.why_no_file:
            try:
                done = os.write(self._fd, view)
            except OSError as error:
                self.why_no_file = f"the file can't be written: {error.strerror}"
                return
            self._written += done
            view = view[done:]
