"""Run a command in a shell."""

from typing import Annotated

from msgspec import Meta, Struct

DESCRIPTION = (
    "Run a bash command in the workspace. No input, no terminal; stdout and stderr come together; `cd` "
    "lasts for later calls, variables don't. Long output is cut to its head and tail, the whole lies in a "
    "file that is named. `background`: return at once, see `jobs`. What the sandbox keeps a command from is "
    "asked of the user with `needs`, and `why` says what for; ask for the least that will do. `dry_run`: run "
    "on a view of the workspace; the user sees what it did to files, and applies or discards that."
)


class RunCommand(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: Annotated[float, Meta(gt=0, description="Seconds, default 120, at most 600.")] | None = None
    background: bool = False
    dry_run: bool = False
    needs: Annotated[
        tuple[str, ...],
        Meta(
            max_length=16,
            description="read:PATH write:PATH network:HOST:PORT git-write unconfined",
        ),
    ] = ()
    why: Annotated[str, Meta(max_length=400)] = ""
