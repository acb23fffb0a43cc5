"""Work that the supervisor gives to a worker for itself: what a dry run needs before and after its command.

The model is never offered a chore, and can't call one: no tool has a colon in its name.  All of them work in
the directory that is the worker's `tmp`: that of one dry run.
"""

from typing import assert_never

import msgspec
from msgspec import Struct

from protocol.tools import catalog
from protocol.tools.catalog import ArgumentsError

UPPER, COPY, NOTES = "upper", "copy", "changes"
"""In the directory of a dry run: what a layer holds; a copy of the workspace; the changes that were found."""
BEGAN, COPIED = "began", "copied"
"""Files whose times say when the dry run began, and when the copy was whole."""


class CopyWorkspace(Struct, frozen=True, forbid_unknown_fields=True):
    """Copy the workspace, unless it has more than so much."""

    bytes: int
    files: int


class FindChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """Compare the view with the workspace, note each change and tell of them."""

    layered: bool
    """The view is a layer over the workspace, not a copy."""


class ApplyChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """Do to the workspace what was noted."""

    layered: bool


Chore = CopyWorkspace | FindChanges | ApplyChanges
Work = catalog.Arguments | Chore

CHORES: dict[str, type[Chore]] = {
    "chore:copy": CopyWorkspace,
    "chore:find": FindChanges,
    "chore:apply": ApplyChanges,
}


def name_of(chore: Chore) -> str:
    match chore:
        case CopyWorkspace():
            return "chore:copy"
        case FindChanges():
            return "chore:find"
        case ApplyChanges():
            return "chore:apply"
        case _:
            assert_never(chore)


def decode(name: str, arguments: str) -> Work:
    """A tool's arguments, or a chore.  Raises ArgumentsError."""
    kind = CHORES.get(name)
    if kind is None:
        return catalog.decode(name, arguments)
    try:
        return msgspec.json.decode(arguments, type=kind)
    except msgspec.MsgspecError as error:
        raise ArgumentsError(f"{name}: {error}") from error
