"""Write a whole file."""

from typing import Annotated

from msgspec import Meta, Struct

DESCRIPTION = (
    "Create a file or replace its whole content. Parent directories are made. "
    "To change a part, use edit_file."
)


class WriteFile(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="Relative to the workspace, or absolute within it.")]
    content: str
