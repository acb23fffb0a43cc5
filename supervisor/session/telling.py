"""Telling the front what happens: each event gets its number here, and nowhere else."""

from collections.abc import Callable

import msgspec

from protocol.events import AnyEvent


class Teller:
    """Numbers events from 1 and hands them to the front, in order, without waiting."""

    def __init__(self, front: Callable[[AnyEvent], None]) -> None:
        self._front = front
        self._seq = 0

    def __call__(self, event: AnyEvent) -> None:
        self._seq += 1
        msgspec.structs.force_setattr(event, "seq", self._seq)
        self._front(event)
