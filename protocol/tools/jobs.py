"""Look after what runs in the background."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

DESCRIPTION = (
    "Look after background jobs: list them, read the output of one (since a byte), write to its "
    "input, wait for its end, or stop it."
)


class Jobs(Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["list", "output", "input", "wait", "stop"]
    id: Annotated[str, Meta(description="The job, e.g. `j1`; for all but list.")] | None = None
    since: Annotated[int, Meta(ge=0, description="output: from this byte on.")] = 0
    text: (
        Annotated[str, Meta(description="input: what to write; no line break is added; empty closes it.")]
        | None
    ) = None
    timeout: Annotated[float, Meta(gt=0, description="wait: seconds, default 60.")] | None = None
