"""What a worker may touch and how much it may use: data only.  Enforcement lives in worker/sandbox/."""

from enum import Enum

from msgspec import Struct

OUTPUT_MOUNT = "/run/polier/output"
"""Where results say that whole outputs lie, on every rung.  Without a mount namespace the file tools
translate it, and commands find the real directory in $POLIER_OUTPUT."""


class Mode(Enum):
    """What tools may write: nothing, the workspace, or what the user may."""

    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    UNCONFINED = "unconfined"


class Rung(Enum):
    """How far the kernel enforces a policy: namespaces and Landlock, Landlock alone, or not at all."""

    FULL = "full"
    LANDLOCK = "landlock"
    OFF = "off"


class SandboxPolicy(Struct, frozen=True):
    """What the tools of one worker may touch.  All paths are absolute and real (no links in them)."""

    workspace: str
    mode: Mode = Mode.WORKSPACE_WRITE
    readable: tuple[str, ...] = ()
    """Files and directories that commands may read and execute, beside the writable ones; the file tools keep
    to the workspace.  What does not exist is passed over."""
    writable: tuple[str, ...] = ()
    """Files and directories that may be written, beside the workspace and `tmp`."""
    tmp: str = ""
    """A private directory for temporary files, $TMPDIR of commands.  Writable."""
    output: str = ""
    """The directory of whole outputs.  Readable, never writable: the supervisor opens files in it."""
    environment: tuple[tuple[str, str], ...] = ()
    """The whole environment of commands; nothing else is inherited."""


class Limits(Struct, frozen=True):
    """How much one call may use.  Bytes and seconds."""

    result_cap_bytes: int = 32_000
    """What the model gets of one result: a quarter of it from the head, the rest from the tail."""
    output_file_cap: int = 256 * 1024 * 1024
    """What is kept of one command's output.  Above it the command goes on and the bytes are counted."""
    command_seconds: float = 120.0
    """A command's time when the call names none."""
    command_seconds_max: float = 600.0
    """The longest time that a call may ask for."""
    grace_seconds: float = 2.0
    """From SIGTERM to SIGKILL."""
