"""The transcript: what was said, one line at a time, appended as it happens and never rewritten.

The system message is never in it.  Whoever appends holds the conversation's lock.  Reading is load's.
"""

import os
from pathlib import Path

import trio

from protocol.conversation import Message, Pair
from protocol.events import PermissionAnswered
from supervisor.store import lines
from supervisor.store.disk import StoreError, append, now, open_private, require_still_there
from supervisor.store.lines import (
    VERSION,
    AnyLine,
    CompactionLine,
    PermissionLine,
    RetractLine,
    SessionLine,
    StubLine,
    WithdrawnLine,
)


class Transcript:
    """Appends lines.  Each method returns the seq of its line, or raises StoreError and leaves no part of it.

    A line is with the kernel when the method returns, so a kill loses nothing; `sync` is for the loss of
    power.  `seq` is the last one that was given.
    """

    def __init__(self, path: Path, seq: int = 0) -> None:
        self.path = path
        self.seq = seq
        self.said = False
        """Whether a message was appended since it was opened."""
        self._descriptor = open_private(path, os.O_WRONLY | os.O_APPEND)
        self._synced = seq
        self._syncing: trio.Event | None = None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def message(self, message: Message, *, turn: int | None, round: int | None) -> int:
        seq = self._append(lines.of_message(message, self.seq + 1, now(), turn, round))
        self.said = True
        return seq

    def session(self, *, workspace: str, project: str, model: str, resumed: bool) -> int:
        line = SessionLine(
            v=VERSION,
            seq=self.seq + 1,
            time=now(),
            turn=None,
            round=None,
            workspace=workspace,
            project=project,
            model=model,
            resumed=resumed,
        )
        return self._append(line)

    def withdrawn(self, turn: int, first: int, why: str) -> int:
        """The turn, whose user line has the seq `first`, has not happened."""
        line = WithdrawnLine(
            v=VERSION, seq=self.seq + 1, time=now(), turn=turn, round=None, first=first, why=why
        )
        return self._append(line)

    def compaction(self, summary: Pair, first: int, last: int) -> int:
        """The pairs from seq `first` to seq `last` are sent as this summary from now on."""
        line = CompactionLine(
            v=VERSION,
            seq=self.seq + 1,
            time=now(),
            turn=None,
            round=None,
            first=first,
            last=last,
            user=summary.user.parts,
            answer=summary.answer.parts,
        )
        return self._append(line)

    def stub(self, target: int, text: str) -> int:
        """The result at seq `target` is sent as this text from now on."""
        line = StubLine(
            v=VERSION, seq=self.seq + 1, time=now(), turn=None, round=None, target=target, text=text
        )
        return self._append(line)

    def retract(self, target: int) -> int:
        """The compaction or the stub at seq `target` is undone."""
        line = RetractLine(v=VERSION, seq=self.seq + 1, time=now(), turn=None, round=None, target=target)
        return self._append(line)

    def permission(self, decided: PermissionAnswered) -> int:
        """What was decided about a call."""
        line = PermissionLine(
            v=VERSION,
            seq=self.seq + 1,
            time=now(),
            turn=None,
            round=None,
            call_id=decided.call_id,
            name=decided.name,
            subject=decided.subject,
            permissions=decided.permissions,
            allowed=decided.allowed,
            by=decided.by,
            scope=decided.scope,
            words=decided.words,
        )
        return self._append(line)

    async def sync(self) -> None:
        """What was appended before this call is on the disk when it returns.  Raises StoreError.

        One sync at a time: those who wait meanwhile share the next one.
        """
        wanted = self.seq
        while self._synced < wanted:
            if self._syncing is not None:
                await self._syncing.wait()
                continue
            covered, done = self.seq, trio.Event()
            self._syncing = done
            try:
                await trio.to_thread.run_sync(os.fdatasync, self._descriptor)
                self._synced = covered
            except OSError as error:
                raise StoreError(self.path, error) from error
            finally:
                self._syncing = None
                done.set()

    def _append(self, line: AnyLine) -> int:
        append(self._descriptor, self.path, lines.encode(line))
        require_still_there(self._descriptor, self.path)
        self.seq = line.seq
        return line.seq
