"""A command's script and the shell that runs it, begun where the last one ended, known to the desk.

How bash is started is shell.py, from inside of which walls starter.py.
"""

from pathlib import Path

from protocol.policy import OUTPUT_MOUNT
from protocol.wire import Status
from worker.call import Call, ToolError
from worker.processes.shell import MAX_SCRIPT, Shell, start
from worker.processes.starter import starter_of


def script_of(command: str) -> bytes:
    """What bash is given.  Raises ToolError where it can't be."""
    try:
        script = command.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"the command holds a lone surrogate at character {error.start}", Status.REFUSED
        ) from error
    if len(script) > MAX_SCRIPT:
        raise ToolError(
            f"the command has {len(script):,} bytes; at most {MAX_SCRIPT:,} are allowed. "
            "Write the data to a file with write_file and use it from there.",
            Status.REFUSED,
        )
    if b"\0" in script:
        raise ToolError("the command holds a NUL character, which bash can't read", Status.REFUSED)
    return script


def begun(
    script: bytes, call: Call, notes: list[str], *, with_input: bool, cpu_seconds: tuple[int, int]
) -> Shell:
    """A shell that runs, known to the desk before anybody else could reap it."""
    desk = call.desk
    environment = dict(desk.policy.environment)
    environment |= {"POLIER_CALL": call.id, "POLIER_OUTPUT": desk.policy.output or OUTPUT_MOUNT}
    if desk.policy.tmp:
        environment["TMPDIR"] = desk.policy.tmp
    with desk.lock:
        workspace = Path(desk.policy.workspace)
        if not desk.cwd.is_dir():
            notes.append(f"[{desk.cwd} is gone; this command started in {workspace}]")
            desk.cwd = workspace
        try:
            shell = start(
                script,
                str(desk.cwd),
                environment,
                starter_of(desk).start,
                with_input=with_input,
                cpu_seconds=cpu_seconds,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            at, desk.cwd = desk.cwd, workspace
            raise ToolError(
                f"bash can't be started in {at}: {error.strerror}. The next command starts in {workspace}."
            ) from error
        except OSError as error:
            raise ToolError(f"bash can't be started: {error.strerror}") from error
        desk.shells.add(shell.pid)
    return shell
