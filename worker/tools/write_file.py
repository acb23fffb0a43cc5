"""write_file: a whole file.  How it is put there without losing what it had: worker/files/storing."""

from protocol.display import Display
from protocol.tools.write_file import WriteFile
from protocol.wire import Status
from worker.call import Call, Outcome, ToolError
from worker.files.changing import content, outcome
from worker.files.encodings import BOM, not_utf8, wide
from worker.files.paths import Access, resolve
from worker.files.seen import require_seen, wrote
from worker.files.storing import store


def run(arguments: WriteFile, call: Call) -> Outcome:
    """Raises ToolError: outside, no regular file, changed since it was read, no permission, disk full; then
    nothing has changed."""
    try:
        data = arguments.content.encode()
    except UnicodeEncodeError as error:
        raise ToolError("`content` holds half a character (a lone surrogate) and can't be written") from error
    with (
        call.desk.writing,
        resolve(call.desk.policy, arguments.path, Access.WRITE, make_parents=True) as place,
    ):
        if call.cancelled.is_set():
            return Outcome("[cancelled, nothing was written]", Display("cancelled"), Status.CANCELLED)
        before = None if place.status is None else content(place)
        if before is None:
            store(place, data, None)
            wrote(call.desk, place, None, data, whole=True)
            return outcome(place, "created", b"", data, [])
        if before.startswith(BOM) and not data.startswith(BOM):
            data = BOM + data
        if data == before:
            return Outcome(f"{place.shown} has this content already", Display("unchanged"))
        require_seen(call.desk, place, before)
        store(place, data, before)
        wrote(call.desk, place, before, data, whole=True)
        return outcome(place, "rewritten", before, data, _changes(before, data))


def _changes(before: bytes, data: bytes) -> list[str]:
    """What a rewrite changes beside the text."""
    notes = []
    if b"\r\n" in before and b"\n" in data and b"\r\n" not in data:
        notes.append("the lines ended in CRLF before, now in LF")
    wrong = None if data.isascii() and wide(before) is None else not_utf8(before)
    if wrong is not None:
        notes.append(f"the file is UTF-8 now; before, {wrong}")
    return notes
