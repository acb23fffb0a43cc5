"""What a worker may touch and how much it may use: data only.  Enforcement lives in worker/sandbox/."""

from enum import Enum

from msgspec import Struct

OUTPUT_MOUNT = "/run/polier/output"
"""Where results say that whole outputs lie, on every rung.  Without a mount namespace the file tools
translate it, and commands find the real directory in $POLIER_OUTPUT."""

RUN_LATER = (
    ".agent",  # our own settings for the project
    "AGENTS.md",  # instructions that a later session takes from the project
    ".bash_login", ".bash_profile", ".bashrc", ".profile", ".zlogin", ".zprofile", ".zshenv", ".zshrc",
    ".devcontainer", ".envrc", ".gitconfig", ".githooks", ".husky", ".idea", ".mcp.json", ".vscode",
    ".claude", ".codex", ".cursor", ".gemini", "CLAUDE.md", "GEMINI.md",
)  # fmt: skip
"""Names at the top of a workspace that other programs act on later, unseen: settings of editors, shells and
agents.  Those that exist are protected; a new one is told of."""


OF_THE_MACHINE = ("/proc", "/sys", "/dev")
"""Here a file is a switch of the machine or a device, and root's number is enough to use it.  Never writable
within a sandbox; with namespaces a worker has a /proc and a /dev of its own."""


def of_the_machine(path: str) -> bool:
    """Whether a writable place would reach such a switch."""
    return path == "/" or any(path == place or path.startswith(f"{place}/") for place in OF_THE_MACHINE)


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


class Means(Enum):
    """Who makes the namespaces of the rung `full`; on the others there are none."""

    NATIVE = "native"
    """The worker itself."""
    BUBBLEWRAP = "bubblewrap"
    """A `bwrap` of the system, where it may and we may not (Ubuntu's AppArmor profile)."""
    NONE = "none"


class Network(Enum):
    OFF = "off"
    """Commands reach nothing but themselves."""
    LISTED = "listed"
    """Commands reach hosts and ports on a list, through the supervisor's proxy.  Needs the rung `full`; what
    is lower enforces it as OFF."""
    ON = "on"
    """Commands share the machine's network."""


class SandboxPolicy(Struct, frozen=True):
    """What the tools of one worker may touch.  All paths are absolute and real (no links in them).  What
    does not exist is passed over."""

    workspace: str
    mode: Mode = Mode.WORKSPACE_WRITE
    readable: tuple[str, ...] = ()
    """Files and directories that commands may read and execute, beside the writable ones; the file tools keep
    to the workspace and `opened`."""
    writable: tuple[str, ...] = ()
    """Files and directories that may be written, beside the workspace and `tmp`."""
    tmp: str = ""
    """A private directory for temporary files, $TMPDIR of commands.  Writable."""
    output: str = ""
    """The directory of whole outputs.  Readable, never writable: the supervisor opens files in it."""
    environment: tuple[tuple[str, str], ...] = ()
    """The whole environment of commands; nothing else is inherited."""
    opened: tuple[str, ...] = ()
    """Files and directories outside of the workspace that the file tools may read too (a user's grant)."""
    hidden: tuple[str, ...] = ()
    """Files and directories that nothing may read, though they lie below a place that may be.  With
    namespaces a file there is empty, and so is a directory.  Landlock alone closes them too, and with them
    what is made beside them later; within the workspace only the file tools refuse them."""
    protected: tuple[str, ...] = ()
    """Files and directories that stay as they are, though they lie below a place that may be written.  With
    namespaces they are read-only; else changes are undone after each command, as far as they are small."""
    pinned: tuple[str, ...] = ()
    """Directories that may be written, but neither renamed nor replaced."""
    network: Network = Network.OFF
    hosts: tuple[str, ...] = ()
    """HOST:PORT or *.HOST:PORT: what the supervisor connects to for this worker: for `fetch` always, for
    commands (by its proxy) where the network is LISTED."""
    layer: str = ""
    """An empty private directory: what a command does to the workspace lands there instead.  Empty text:
    the workspace itself is changed."""
    copied: str = ""
    """A copy of the workspace that is changed instead.  With namespaces it is shown at the workspace's own
    place; where there are none, `workspace` is the copy itself."""

    @property
    def tries(self) -> bool:
        """Whether commands have a view of the workspace, and leave the workspace itself as it is."""
        return bool(self.layer or self.copied)

    @property
    def needs_mounts(self) -> bool:
        """Whether only mounts keep commands from the workspace itself."""
        return bool(self.layer) or self.copied not in ("", self.workspace)


class Limits(Struct, frozen=True):
    """How much may be used.  Bytes and seconds; 0 where there is no limit."""

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
    memory_bytes: int = 0
    """Of all commands of a worker together, in memory (shared pages counted once).  The supervisor fills it
    in from the machine's memory."""
    processes: int = 1024
    """Of all commands of a worker together, and four times as many threads."""
    cpu_seconds: int = 600
    """Of one process."""
    open_files: int = 8192
    """Of one process."""
    file_bytes: int = 4 * 1024**3
    """Of one file."""
    output_bytes: int = 16 * 1024**3
    """What one command may print, kept or not."""
    disk_bytes: int = 10 * 1024**3
    """By how much the free space of a disk that commands write to may shrink during one command."""
    disk_free_bytes: int = 1024**3
    """What must stay free there while a command runs, or half of what was free before where that is less."""


class Limit(Enum):
    """Which limit ended a command."""

    WALL = "wall time"
    CPU = "CPU time"
    MEMORY = "memory"
    PROCESSES = "processes"
    FILES = "open files"
    FILE_SIZE = "file size"
    OUTPUT = "output"
    DISK = "disk"
