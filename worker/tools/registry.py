"""Arguments -> the tool that they are for; a chore -> what does it."""

from typing import assert_never

from protocol.chores import ApplyChanges, CopyWorkspace, FindChanges, Work
from protocol.tools.edit_file import EditFile
from protocol.tools.fetch import Fetch
from protocol.tools.jobs import Jobs
from protocol.tools.list_files import ListFiles
from protocol.tools.read_file import ReadFile
from protocol.tools.run_command import RunCommand
from protocol.tools.search import Search
from protocol.tools.write_file import WriteFile
from worker.call import Call, Outcome
from worker.tools import (
    chores,
    edit_file,
    fetch,
    jobs,
    list_files,
    read_file,
    run_command,
    search,
    write_file,
)


def run(arguments: Work, call: Call) -> Outcome:
    """Raises ToolError for what the tool can't do, and whatever else a faulty tool may raise."""
    match arguments:
        case ReadFile():
            return read_file.run(arguments, call)
        case WriteFile():
            return write_file.run(arguments, call)
        case EditFile():
            return edit_file.run(arguments, call)
        case ListFiles():
            return list_files.run(arguments, call)
        case Search():
            return search.run(arguments, call)
        case RunCommand():
            return run_command.run(arguments, call)
        case Jobs():
            return jobs.run(arguments, call)
        case Fetch():
            return fetch.run(arguments, call)
        case CopyWorkspace() | FindChanges() | ApplyChanges():
            return chores.run(arguments, call)
        case _:
            assert_never(arguments)
