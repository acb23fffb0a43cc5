"""What each command does: the way from parsed options to the room that does it.

Rooms are imported when their command is called, since `agent run` must not wait for the editor, nor the
editor for HTTP.  What is *not* here: parsing (options.py, commands.py), errors' words (__main__.py).
"""

import gc
import os
import signal
import sys
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

from supervisor.exits import ANSWERED, FAILED, MODEL, USAGE, StopError
from supervisor.machine import harden, require_linux
from supervisor.options import NO_MODEL, ReplOptions, RunOptions

if TYPE_CHECKING:
    from supervisor.settings import Loaded


def run(options: RunOptions) -> int:
    """`agent run`."""
    _prepare()
    from supervisor import headless

    _imported()
    return headless.run(options)


def repl(options: ReplOptions) -> int:
    """Bare `agent`: the REPL; without a model the rehearsal, or exit 3 where nobody could watch it."""
    _prepare()
    loaded = _without_model(options)
    if loaded is None:
        return _run_repl(options)
    from supervisor.streams import complain

    for notice in loaded.notices:  # they may say why there is no model
        complain(notice)
    if not _at_terminal():
        raise StopError(NO_MODEL, MODEL)
    from supervisor.streams import erase_line

    erase_line()
    return rehearse(check=False)


def rehearse(check: bool) -> int:
    """`agent rehearse`: the small task, then at a terminal the REPL against the script."""
    _prepare()
    from supervisor.rehearsal import check as checking
    from supervisor.rehearsal import play as playing
    from supervisor.rehearsal.stage import set_up

    _imported()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)  # so that the stage is taken down
    if check:
        return checking.run()
    with set_up() as stage:
        code = playing.run(stage)
        if code == 0 and _at_terminal():
            playing.say_what_it_knows()
            # From here on this process has the surroundings of the stage: no key, a state of its own.
            os.environ.clear()
            os.environ.update(stage.environment)
            code = _run_repl(
                ReplOptions(workspace=str(stage.workspace), base_url=stage.base_url, rehearsal=True)
            )
    playing.say_how_to_go_on()
    return code


def sessions(every: bool) -> int:
    """`agent sessions`: this project's conversations; `every`: those of other projects below."""
    _prepare()
    from supervisor.places import current_directory
    from supervisor.screen.sessions import drawn
    from supervisor.settings import Flags, load
    from supervisor.store.listing import listing

    _imported()
    settings = load(Flags(), os.environ, current_directory()).settings
    found = listing(settings.home, settings.project)
    columns = os.get_terminal_size(1).columns or None if os.isatty(1) else None
    for line in drawn(found, everything=every, columns=columns):
        _print(line)
    return 0


def trust(directory: str | None, *, yes: bool, take_back: bool) -> int:
    """`agent trust`: show what the project's file widens, ask, and keep the answer."""
    _prepare()
    from supervisor.permits import trust as trusting
    from supervisor.places import current_directory

    _imported()
    if yes and take_back:
        raise StopError("--yes and --revoke exclude each other; give one of them", USAGE)
    if take_back:
        _print(trusting.revoke(directory, os.environ, current_directory()))
        return 0
    found = trusting.look(directory, os.environ, current_directory())
    for line in trusting.told(found):
        _print(line)
    if found.is_trusted or not found.lines:
        return 0
    if not yes and not _at_terminal():
        raise StopError("nobody is here to say yes; read what stands above, then: agent trust --yes", USAGE)
    if yes or _agreed(trusting.QUESTION):
        _print(trusting.keep(found))
        return 0
    _print("Not trusted.")
    return FAILED


def grants(directory: str | None, revoke: str | None) -> int:
    """`agent grants`: what was granted for the project; `revoke`: one of them, or all."""
    _prepare()
    from supervisor.harmless import harmless_line
    from supervisor.permits.grants import ProjectGrants
    from supervisor.places import current_directory
    from supervisor.settings import Flags, load

    _imported()
    settings = load(Flags(workspace=directory), os.environ, current_directory()).settings
    kept = ProjectGrants(settings.home, settings.project)
    found = kept.all()
    if kept.problem:
        raise StopError(kept.problem)
    if revoke is not None:
        if not kept.revoke(revoke):
            if revoke == "all":
                _print("Nothing was granted for this project.")
                return 0
            there = ", ".join(one.permission for one in found) or "none"
            words = f"{revoke} was not granted for this project; there are: {there}"
            raise StopError(harmless_line(words), USAGE)
        _print(harmless_line(f"Taken back: {revoke}. Sessions that run keep it until they end."))
        return 0
    for one in found:
        _print(harmless_line(f"{one.permission}  since {one.time}, for: {one.command}"))
    if not found:
        _print("Nothing was granted for this project.")
    return 0


def doctor(*, as_json: bool, without: tuple[str, ...]) -> int:
    """`agent doctor`: 0 where commands run confined, as far as the settings require; else 1."""
    _prepare()
    from supervisor.doctor import report
    from supervisor.doctor.examine import examine
    from supervisor.places import current_directory
    from supervisor.settings import Flags, load
    from supervisor.streams import complain

    _imported()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    loaded = load(Flags(), os.environ, current_directory())
    for notice in loaded.notices:
        complain(notice)
    found = examine(loaded.settings, os.environ, without)
    for line in [report.as_json(found)] if as_json else report.lines(found):
        _print(line)
    return ANSWERED if found.well else FAILED


def scripted_server(arguments: list[str]) -> int:
    """`agent scripted-server`: the same as `python -m supervisor.rehearsal.server`."""
    from supervisor.rehearsal import server

    _imported()
    return server.main(arguments)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _prepare() -> None:
    require_linux()
    harden()
    _stub_command_line_of_httpx()


def _imported() -> None:
    """The imports are done: they stay for good, so the collector need not look at them again."""
    gc.freeze()
    gc.enable()


def _stub_command_line_of_httpx() -> None:
    """Keep `import httpx` from loading its own command line (click, rich, pygments): 40 % of its time."""

    def main() -> None:
        raise SystemExit("the command line of httpx is not available inside agent")

    stub = ModuleType("httpx._main")
    stub.__dict__["main"] = main
    sys.modules.setdefault("httpx._main", stub)


def _print(line: str) -> None:
    from supervisor.streams import encoded

    if sys.stdout is not None:
        sys.stdout.buffer.write(encoded(line + "\n", sys.stdout.encoding))
        sys.stdout.flush()


def _agreed(question: str) -> bool:
    """Whether the user says yes; anything else, the end of the input too, is no."""
    sys.stdout.write(question)
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _run_repl(options: ReplOptions) -> int:
    from supervisor.screen.repl import run_repl

    _imported()
    return run_repl(options)


def _at_terminal() -> bool:
    return os.isatty(0) and os.isatty(1)


def _without_model(options: ReplOptions) -> "Loaded | None":
    """The settings, where neither a key nor a server is named; else None.

    They are read only where flags and environment don't tell.
    """
    if options.base_url or any(os.environ.get(name) for name in ("AGENT_BASE_URL", "DEEPSEEK_API_KEY")):
        return None
    from supervisor.places import current_directory
    from supervisor.settings import Flags, load, read_key

    flags = Flags(workspace=options.workspace, sandbox=options.sandbox, allow=options.allow)
    loaded = load(flags, os.environ, current_directory())
    has_model = loaded.settings.configured or read_key(loaded.settings, os.environ) is not None
    return None if has_model else loaded
