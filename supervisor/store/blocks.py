"""A long file of lines in pieces that end where a line ends, in memory that doesn't grow with the file."""

from collections.abc import Iterator
from pathlib import Path

from supervisor.store.disk import StoreError

_BLOCK = 1024 * 1024
"""Bytes read at a time: large enough that a line's cost is decoding, small beside the live context."""


def line_number(path: Path, offset: int) -> int:
    """The number of the line that begins at this offset: counted only when it is needed, it takes long."""
    number = 1
    with path.open("rb", buffering=0) as file:
        while offset > 0 and (block := file.read(min(_BLOCK, offset))):
            number += block.count(b"\n")
            offset -= len(block)
    return number


def blocks(path: Path) -> Iterator[tuple[int, memoryview]]:
    """The file in pieces that end where a line ends, with their offsets.

    A piece is good until the next one is asked for: all are read into one buffer, which grows only for a
    line that is longer than it.
    """
    buffer, kept, offset = bytearray(_BLOCK), 0, 0
    try:
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(memoryview(buffer)[kept:]):
                filled = kept + size
                end = buffer.rfind(b"\n", kept, filled) + 1
                if end:
                    yield offset, memoryview(buffer)[:end]
                    buffer[: filled - end] = buffer[end:filled]
                    offset += end
                kept = filled - end
                if kept == len(buffer):
                    buffer = buffer + bytes(len(buffer))
            if kept:
                yield offset, memoryview(buffer)[:kept]
    except OSError as error:
        raise StoreError(path, error) from error
