"""Search the text of files."""

from typing import Annotated

from msgspec import Meta, Struct

DESCRIPTION = (
    "Search files for a regular expression (Rust syntax), `.gitignore` respected. "
    "Lines come as `PATH:LINE:TEXT`; of a long line a window around the match, with its column."
)


class Search(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    path: Annotated[str, Meta(description="A directory or file.")] = "."
    glob: Annotated[str, Meta(description="Only files that match, e.g. `*.py`.")] | None = None
    limit: Annotated[int, Meta(ge=1, description="Matching lines at most.")] = 200
