"""search: lines that match, by ripgrep where it is installed, else by Python.  The engines: worker/files."""

import os
import stat
from collections.abc import Generator
from contextlib import closing, suppress

from protocol.display import Display
from protocol.tools.search import Search
from protocol.wire import Status
from worker.call import Call, Outcome, ToolError
from worker.files import plain_search, ripgrep
from worker.files.cancelled import CancelledError
from worker.files.encodings import HEAD, binary
from worker.files.findings import Hunt, Match, PatternError, row
from worker.files.globs import GlobError, matcher, misled
from worker.files.guarded import readable_names
from worker.files.paths import Access, Place, in_words, named, resolve
from worker.files.regular import open_regular
from worker.files.results import Lines, closed, counted, preview
from worker.files.walking import Unread, open_top


def run(arguments: Search, call: Call) -> Outcome:
    """Raises ToolError: no such path, a pattern or glob that is none."""
    rg = ripgrep.program()
    if rg is not None:
        with suppress(OSError):  # Where a sandbox lets nobody run it, the other way is left.
            return run_with(rg, arguments, call)
    with in_words(arguments.path):
        return run_with(None, arguments, call)


def run_with(rg: str | None, arguments: Search, call: Call) -> Outcome:
    """The same, with this ripgrep, or without one."""
    if not arguments.pattern:
        raise ToolError("`pattern` is empty; list_files names files")
    if "\0" in arguments.pattern:
        raise ToolError("the pattern holds a NUL character; files with NUL bytes are not searched")
    with resolve(call.desk.policy, arguments.path or ".", Access.READ) as place:
        try:
            return _searched(rg, arguments, call, place)
        except (GlobError, PatternError) as error:
            raise ToolError(str(error)) from error


def _searched(rg: str | None, arguments: Search, call: Call, place: Place) -> Outcome:
    wanted = matcher(arguments.glob) if arguments.glob else None
    if place.status is None or not stat.S_ISDIR(place.status.st_mode):
        fd = open_regular(place)
        try:
            hunt = Hunt(arguments.pattern, None, lambda _: True, Unread(), call.cancelled)
            return _collected(_in_file(rg, hunt, fd, place, call), hunt, arguments, call)
        finally:
            os.close(fd)
    top, readable = open_top(call.desk.policy, place), readable_names(call.desk.policy)
    try:
        hunt = Hunt(
            arguments.pattern,
            arguments.glob,
            lambda path: (wanted is None or wanted(path[len(top.prefix) :])) and readable(path),
            Unread(),
            call.cancelled,
        )
        found = plain_search.search_tree(top, hunt) if rg is None else ripgrep.search_tree(rg, top, hunt)
        return _collected(found, hunt, arguments, call)
    finally:
        os.close(top.fd)


def _in_file(rg: str | None, hunt: Hunt, fd: int, place: Place, call: Call) -> Generator[Match, None, None]:
    problem = binary(os.pread(fd, HEAD, 0))
    if problem is not None:
        raise ToolError(f"{place.shown}: {problem}; it was not searched")
    name = named(call.desk.policy, place.real)
    if rg is None:
        return plain_search.search_file(fd, name, hunt)
    return ripgrep.search_file(rg, fd, name, hunt)


def _collected(found: Generator[Match, None, None], hunt: Hunt, arguments: Search, call: Call) -> Outcome:
    taken = Lines(call.desk.limits.result_cap_bytes)
    paths: set[bytes] = set()
    notes: list[str] = []
    status = Status.DONE
    try:
        with closing(found):
            for match in found:
                if len(taken.lines) == arguments.limit:
                    notes.append(f"stopped at limit={arguments.limit}; there are more matching lines")
                    break
                if not taken.take(row(match)):
                    notes.append("the result is full, there are more: narrow `pattern`, `path` or `glob`")
                    break
                paths.add(match.path)
    except CancelledError:
        status = Status.CANCELLED
        notes.append("cancelled before the end")
    if not taken.lines and not notes:
        notes.append("no matches in what could be read" if hunt.unread.paths else "no matches")
        notes += misled(arguments.glob)
    text = closed(taken.lines, notes + hunt.unread.note(), call.desk.limits.result_cap_bytes)
    count = counted(len(taken.lines), "matching line")
    where = f" in {counted(len(paths), 'file')}" if paths else ""
    return Outcome(text, Display(f"{count}{where}", preview(text)), status)
