"""A real worker is started as a session would start it, in a workspace of its own, and runs a command."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import trio

from protocol.conversation import ToolCall
from protocol.policy import Rung
from protocol.wire import Ready, Status, ToolFinished
from supervisor import machine
from supervisor.doctor.findings import Findings
from supervisor.exits import StopError
from supervisor.places import user_file
from supervisor.policy.default import default_policy
from supervisor.policy.memory import for_this_machine
from supervisor.pool.events import PoolEvent
from supervisor.pool.opening import open_pool
from supervisor.pool.zygote import Launch
from supervisor.settings import Settings
from supervisor.version import VERSION

_HARMLESS = ToolCall("doctor", "run_command", '{"command": "true"}')
_SECONDS = 30.0
"""For a worker and a command, which need a fraction of a second."""


def examine(settings: Settings, environ: Mapping[str, str], without: tuple[str, ...] = ()) -> Findings:
    """What is found on this machine with these settings.  `without`: means of the sandbox that are treated
    as if they were missing.  Raises StopError."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix="polier-doctor-")).resolve()
    except OSError as error:
        raise StopError(f"no scratch directory can be made: {error.strerror}; set TMPDIR") from error
    try:
        return trio.run(_examined, settings, environ, without, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


async def _examined(
    settings: Settings, environ: Mapping[str, str], without: tuple[str, ...], scratch: Path
) -> Findings:
    for name in ("workspace", "output", "tmp"):
        (scratch / name).mkdir()
    chosen, limits = settings.sandbox, for_this_machine(settings.limits)
    policy = default_policy(
        scratch / "workspace", scratch / "output", scratch / "tmp", environ, settings.home, chosen
    )
    # Before our own processes are there; they carry a living run's marker anyway.
    left = tuple(machine.strays())
    results: list[ToolFinished] = []
    launch = Launch.told_by(environ)
    if without:
        launch = Launch(measure=launch.measure, without=without)
    ready = Ready(Rung.OFF, refuse_commands=f"no worker was ready within {_SECONDS:.0f} s")
    opening = open_pool(policy, limits, _no_output, _ignore, environ=environ, launch=launch)
    async with opening as pool:
        with trio.move_on_after(_SECONDS):
            ready = await pool.ready()
            await pool.run(_HARMLESS, results.append, lambda text: None)
    return Findings(
        ready,
        policy.mode,
        policy.network,
        chosen.require,
        limits,
        _complaint(results),
        left,
        str(settings.home),
        str(user_file(environ)),
        VERSION,
        os.uname().release,
    )


def _complaint(results: list[ToolFinished]) -> str:
    if not results:
        return f"it did not end within {_SECONDS:.0f} s"
    return "" if results[0].status is Status.DONE else results[0].text


def _no_output(call_id: str) -> tuple[str, int]:
    raise OSError(f"no files are kept of {call_id}")


def _ignore(event: PoolEvent) -> None:
    """What matters is asked for."""
