"""List files by name."""

from typing import Annotated

from msgspec import Meta, Struct

DESCRIPTION = (
    "List files below a directory, in order of name, `.gitignore` respected. Odd names are shown "
    "quoted; pass such a name on as it is shown. A glob without a slash matches at any depth."
)


class ListFiles(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The directory.")] = "."
    glob: Annotated[str, Meta(description="Only names that match, e.g. `**/*.py`.")] | None = None
    limit: Annotated[int, Meta(ge=1, description="Names at most.")] = 500
