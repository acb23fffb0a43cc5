"""Read a text file, or the part of it that is asked for."""

from typing import Annotated

from msgspec import Meta, Struct

DESCRIPTION = (
    "Read a text file. Lines come as `NUMBER<tab>TEXT`; the text after the tab is exact, tabs included. "
    "Long files are cut at a byte cap: the result says where to go on."
)


class ReadFile(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="Relative to the workspace, or absolute within it.")]
    offset: Annotated[int, Meta(ge=1, description="First line, from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, description="Lines at most.")] | None = None
    byte_offset: (
        Annotated[
            int,
            Meta(
                ge=0, description="Read from this byte instead, without line numbers (for very long lines)."
            ),
        ]
        | None
    ) = None
