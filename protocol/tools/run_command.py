"""Run a command in a shell."""

from typing import Annotated

from msgspec import Meta, Struct

DESCRIPTION = (
    "Run a bash command in the workspace. No input, no terminal; stdout and stderr come together; `cd` "
    "lasts for later calls, variables don't. Long output is cut to its head and tail, the whole lies in a "
    "file that is named. `background`: return at once, see `jobs`."
)


class RunCommand(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: Annotated[float, Meta(gt=0, description="Seconds, default 120, at most 600.")] | None = None
    background: bool = False
