"""What was said and must come into the transcript, in order, also where the disk refuses for a while.

A line that can't be written stays here and goes first the next time, so memory and disk disagree only while
the disk fails, and nothing more is said meanwhile.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from protocol.conversation import Message
from supervisor.store.transcript import Transcript


class Backlog:
    """Lines for a transcript: `message` and `withdrawn` put them at the end, `write` writes them."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._lines: deque[Callable[[], int]] = deque()

    @property
    def seq(self) -> int:
        """The seq of the last line, be it written or not."""
        return self._transcript.seq + len(self._lines)

    def message(self, message: Message, turn: int | None, round: int) -> None:
        self._lines.append(partial(self._transcript.message, message, turn=turn, round=round))

    def withdrawn(self, turn: int, first: int, why: str) -> None:
        self._lines.append(partial(self._transcript.withdrawn, turn, first, why))

    def write(self) -> None:
        """All that is left.  Raises StoreError; what was not written is kept."""
        while self._lines:
            self._lines[0]()
            self._lines.popleft()
