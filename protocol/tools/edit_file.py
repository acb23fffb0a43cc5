"""Change parts of a file by exact replacement."""

from typing import Annotated

from msgspec import Meta, Struct

DESCRIPTION = (
    "Replace exact text in a file. Each `old` must occur exactly once (else give more of its surroundings, "
    "or replace_all), without line numbers, with the file's own tabs and spaces. All edits of a call apply "
    "in order, or none. An empty `old` is allowed only where the file is missing or empty: it creates it."
)


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    old: Annotated[str, Meta(description="The exact text to replace.")]
    new: Annotated[str, Meta(description="What stands there afterwards.")]
    replace_all: bool = False


class EditFile(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="Relative to the workspace, or absolute within it.")]
    edits: Annotated[tuple[Edit, ...], Meta(min_length=1)]
