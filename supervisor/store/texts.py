"""Fixed texts of requests, each kept once by its digest: what stands before and behind the messages."""

import hashlib
import os
import secrets
from pathlib import Path

from supervisor.store.disk import StoreError, append, open_private, private_directory


class Texts:
    """A directory of texts.  Nothing is made before the first `put`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: set[str] = set()

    def put(self, text: bytes) -> str:
        """The text's sha256 (hex), which names it from now on.  A text is there whole or not at all."""
        digest = hashlib.sha256(text).hexdigest()
        if digest in self._known:
            return digest
        path = private_directory(self.directory) / digest
        if not path.exists():
            self._write(path, text)
        self._known.add(digest)
        return digest

    def get(self, digest: str) -> bytes:
        """The text of this digest.  Raises StoreError."""
        path = self.directory / Path(digest).name
        try:
            return path.read_bytes()
        except OSError as error:
            raise StoreError(path, error) from error

    def _write(self, path: Path, text: bytes) -> None:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = open_private(beside, os.O_WRONLY | os.O_EXCL)
        try:
            append(descriptor, beside, text)
            beside.rename(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
