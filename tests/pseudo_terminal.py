"""A child under a pseudo-terminal, for tests that only look at the bytes it writes."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType

from tests.product import SECONDS, Product


class PseudoTerminal:
    """`text` is all that was written so far.  The child is killed when the block ends."""

    def __init__(self, command: Sequence[str], product: Product, **environ: str) -> None:
        self.text = ""
        self._data = b""
        self._command = command
        self._product = product
        self._environ = environ

    def __enter__(self) -> "PseudoTerminal":
        self._master, slave = pty.openpty()
        self._child = subprocess.Popen(
            self._command,
            cwd=self._product.workspace,
            env={**self._product.environ, "TERM": "xterm", **self._environ},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._master)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def wait_for(self, words: str) -> str:
        """All text up to now, once it holds the words.  Fails with what there is after the deadline."""
        deadline = time.monotonic() + SECONDS
        while words not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self._read(deadline - time.monotonic()), self.text
        return self.text

    def ended(self) -> int:
        """The exit code, once all has been read."""
        deadline = time.monotonic() + SECONDS
        while self._read(max(deadline - time.monotonic(), 0)):
            pass
        return self._child.wait(SECONDS)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            read = os.read(self._master, 65536)
        except OSError:  # the child has closed its side
            return False
        self._data += read
        self.text = self._data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(read)
