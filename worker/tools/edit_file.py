"""edit_file: exact replacement in a file.  What matches, and why something doesn't: worker/files/edits."""

from protocol.display import Display
from protocol.tools.edit_file import EditFile
from protocol.wire import Status
from worker.call import Call, Outcome, ToolError
from worker.files.changing import content, outcome
from worker.files.edits import EditError, apply
from worker.files.paths import Access, resolve
from worker.files.results import counted
from worker.files.seen import wrote
from worker.files.storing import store


def run(arguments: EditFile, call: Call) -> Outcome:
    """Raises ToolError: no match, more than one, no permission; then nothing has changed."""
    creates = not arguments.edits[0].old
    with (
        call.desk.writing,
        resolve(call.desk.policy, arguments.path, Access.WRITE, make_parents=creates) as place,
    ):
        before = None if creates and place.status is None else content(place)
        try:
            edited = apply(before or b"", arguments.edits)
        except EditError as error:
            raise ToolError(f"{place.shown}: {error}. Nothing was changed") from error
        if call.cancelled.is_set():
            return Outcome("[cancelled, nothing was changed]", Display("cancelled"), Status.CANCELLED)
        store(place, edited.data, before)
        wrote(call.desk, place, before, edited.data, whole=False)
        did = "created" if before is None else f"edited {counted(edited.places, 'place')}"
        return outcome(place, did, before or b"", edited.data, [])
