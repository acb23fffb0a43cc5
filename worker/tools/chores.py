"""The chores of a dry run: make a copy, find what changed, apply it.  See worker/changes.

They run in workers of their own, which never run a command.  The directory of the dry run is their `tmp`.
"""

import os
import time
from typing import assert_never

from protocol.chores import (
    BEGAN,
    COPIED,
    COPY,
    NOTES,
    UPPER,
    ApplyChanges,
    Chore,
    CopyWorkspace,
    FindChanges,
)
from protocol.display import Display
from protocol.wire import Status
from worker.call import Call, Outcome, ToolError
from worker.changes import copying, states, telling
from worker.changes.applying import Applier, ChangedError, HalfError
from worker.changes.finding import StoppedError, View
from worker.changes.states import Change
from worker.files.names import encoded, shown
from worker.output.clip import cut

_NAMED = 10
"""Paths that a refusal names."""
_CLOCK_SECONDS = 0.02
"""The kernel's clock of files has ticks of up to 10 ms: what is done later than this has a later time."""


def run(chore: Chore, call: Call) -> Outcome:
    """Raises ToolError."""
    try:
        match chore:
            case CopyWorkspace():
                return _copy(chore, call)
            case FindChanges():
                return _find(chore, call)
            case ApplyChanges():
                return _apply(chore, call)
            case _:
                assert_never(chore)
    except StoppedError:
        raise ToolError("cancelled", Status.CANCELLED) from None
    except OSError as error:
        named = error.filename
        path = f"{shown(named if isinstance(named, bytes) else encoded(str(named)))}: " if named else ""
        raise ToolError(f"{path}{error.strerror or error}") from error
    except RecursionError:
        raise ToolError("directories are nested too deep") from None


def _copy(chore: CopyWorkspace, call: Call) -> Outcome:
    workspace, tmp = _places(call)
    hidden = _relative(call.desk.policy.hidden, workspace)
    stopped = call.cancelled.is_set
    try:
        wanted = copying.measured(workspace, hidden, chore.bytes, chore.files, stopped)
    except copying.TooLargeError as error:
        raise ToolError(str(error), Status.REFUSED) from error
    copying.copy(workspace, b"%b/%b" % (tmp, COPY.encode()), wanted, stopped)
    time.sleep(_CLOCK_SECONDS)
    fd = os.open(b"%b/%b" % (tmp, COPIED.encode()), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.close(fd)
    time.sleep(_CLOCK_SECONDS)
    words = f"{len(wanted):,} files and directories copied"
    return Outcome(words, Display(words))


def _find(chore: FindChanges, call: Call) -> Outcome:
    _, tmp = _places(call)
    view = _view(call, layered=chore.layered)
    changes = list(view.changes())
    began = os.lstat(b"%b/%b" % (tmp, BEGAN.encode())).st_mtime_ns
    states.note(f"{call.desk.policy.tmp}/{NOTES}", changes)
    moved = [change.path for change in changes if change.before and _since(change, began)]
    if moved:
        raise ToolError(f"{_changed(moved)} while the command ran")
    told = telling.told(changes, view)
    text = "\n".join((told.counts, *told.lines, *([told.diff] if told.diff else ())))
    text = cut(text, call.desk.limits.result_cap_bytes // 2)  # the other half is the command's
    paths = tuple(shown(change.path) for change in changes[:_NAMED])
    return Outcome(
        text, Display(told.counts, "\n".join((*told.beside, "", *told.lines)), told.diff), paths=paths
    )


def _apply(chore: ApplyChanges, call: Call) -> Outcome:
    workspace, _ = _places(call)
    changes = states.noted(f"{call.desk.policy.tmp}/{NOTES}")
    closed = _closed(call)
    refused = [
        one.path
        for one in changes
        if one.path in closed or any(p in closed for p in states.parents(one.path))
    ]
    if refused:
        raise ToolError(f"nothing was applied: {_list(refused)} may not be written", Status.REFUSED)
    applier = Applier(workspace, _view(call, layered=chore.layered).place, changes)
    try:
        applier.check()
        applier.apply()
    except ChangedError as error:
        raise ToolError(
            f"nothing was applied: {_changed(error.paths)} in the meantime", Status.REFUSED
        ) from error
    except HalfError as error:
        raise ToolError(_half(error, changes)) from error
    finally:
        applier.close()
    words = f"applied: {telling.counts(changes)}"
    return Outcome(words, Display(words), paths=tuple(shown(one.path) for one in changes[:_NAMED]))


def _half(error: HalfError, changes: list[Change]) -> str:
    done = set(map(id, error.done))
    left = [change for change in changes if id(change) not in done]
    lines = [
        f"stopped at {shown(error.at)}: {error.why}",
        f"applied before that: {telling.counts(error.done)}",
        *telling.named(error.done, telling.line),
        f"not applied: {telling.counts(left)}",
        *telling.named(left, telling.line),
    ]
    return "\n".join(lines)


def _since(change: Change, began: int) -> bool:
    """Whether the workspace's own was touched since then; of a directory that stays, what is in it is."""
    before = change.before
    if before is None or (before.kind is states.Kind.DIRECTORY and change.after is not None):
        return False
    return before.changed >= began


def _view(call: Call, *, layered: bool) -> View:
    workspace, tmp = _places(call)
    whole = 0
    if not layered:
        whole = os.lstat(b"%b/%b" % (tmp, COPIED.encode())).st_mtime_ns
    place = b"%b/%b" % (tmp, (UPPER if layered else COPY).encode())
    return View(workspace, place, layered, _closed(call), call.cancelled.is_set, whole)


def _closed(call: Call) -> frozenset[bytes]:
    policy = call.desk.policy
    return _relative((*policy.hidden, *policy.protected), encoded(policy.workspace))


def _relative(paths: tuple[str, ...], workspace: bytes) -> frozenset[bytes]:
    """Those below the workspace, as the workspace names them."""
    inside = workspace + b"/"
    return frozenset(path[len(inside) :] for path in map(encoded, paths) if path.startswith(inside))


def _places(call: Call) -> tuple[bytes, bytes]:
    policy = call.desk.policy
    return encoded(policy.workspace), encoded(policy.tmp)


def _changed(paths: list[bytes]) -> str:
    return f"{_list(paths)} {'was' if len(paths) == 1 else 'were'} changed by someone else"


def _list(paths: list[bytes]) -> str:
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return ", ".join(map(shown, paths[:_NAMED])) + more
