"""The command line with help and usage errors, through typer: whatever the plain parser leaves to it.

Typer's signatures are built from the table in options.py, so there is one place where an option is
described.  What the commands do is in verbs.py.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from supervisor import verbs
from supervisor.exits import INTERRUPTED, USAGE, StopError
from supervisor.options import (
    BARE_OPTIONS,
    RUN_OPTIONS,
    Kind,
    Option,
    ReplOptions,
    RunOptions,
    Value,
    means,
    repl_options,
    run_options,
    with_resumed,
)
from supervisor.version import VERSION

TYPES: dict[Kind, type] = {
    Kind.TEXT: str,
    Kind.SECONDS: float,
    Kind.COUNT: int,
    Kind.SWITCH: bool,
    Kind.WORDS: list[str],
}
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def main(arguments: Sequence[str]) -> int:
    """Parse and run; the exit code.  Raises StopError, also for a usage error."""
    return play(arguments, verbs.run, verbs.repl)


def play(
    arguments: Sequence[str], on_run: Callable[[RunOptions], int], on_bare: Callable[[ReplOptions], int]
) -> int:
    """`main` with the two commands that have options of the table given by the caller."""
    command = typer.main.get_command(_application(on_run, on_bare))
    try:
        returned = command.main(with_resumed(arguments), prog_name="agent", standalone_mode=False)
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return INTERRUPTED
    except typer.TyperException as error:
        words = " ".join(error.format_message().split())
        raise StopError(f"{words.rstrip('.')}; agent --help shows what there is", USAGE) from error
    return returned if isinstance(returned, int) else 0


def _application(on_run: Callable[[RunOptions], int], on_bare: Callable[[ReplOptions], int]) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    def bare(context: typer.Context, version: bool = False, **values: Value) -> None:
        if version:
            sys.stdout.write(f"polier {VERSION}\n")
            raise typer.Exit
        given = [option.flag for option in BARE_OPTIONS if values[option.field] not in (None, False, (), [])]
        if context.invoked_subcommand is None:
            raise typer.Exit(on_bare(repl_options(values)))
        if given:
            raise StopError(f"{given[0]} belongs after `{context.invoked_subcommand}`", USAGE)

    def run_task(task: str | None = None, **values: Value) -> None:
        raise typer.Exit(on_run(run_options(values, task)))

    version = typer.Option("--version", "-V", help="Print the version.")
    _sign(bare, BARE_OPTIONS, context=(typer.Context, ...), version=(Annotated[bool, version], False))
    task = typer.Argument(metavar="TASK", help='What to do; "-" reads stdin.')
    _sign(run_task, RUN_OPTIONS, task=(Annotated[str | None, task], None))
    app.callback(invoke_without_command=True, help="A terminal AI agent. Without a command: the REPL.")(bare)
    app.command("run", help="Play one turn without a person and print the answer.")(run_task)
    _add_rarer(app)
    return app


def _add_rarer(app: typer.Typer) -> None:
    """The commands whose options stand in no table."""
    app.command("rehearse", help="See it work without a model: a script plays its part.")(_rehearse)
    app.command("sessions", help="List this project's conversations.")(_sessions)
    app.command("trust", help="Trust what a project's settings widen.")(_trust)
    app.command("grants", help="List what was granted for this project, or take it back.")(_grants)
    app.command("doctor", help="Say what confines commands on this machine.")(_doctor)
    app.command(
        "scripted-server",
        context_settings=PASS_ON,
        help="Serve a scripted model, for tests of your own.",
    )(_scripted_server)


def _rehearse(
    check: Annotated[bool, typer.Option("--check", help="Without a person: verify each effect.")] = False,
) -> None:
    raise typer.Exit(verbs.rehearse(check))


def _sessions(
    every: Annotated[bool, typer.Option("--all", help="Those of other projects too.")] = False,
) -> None:
    raise typer.Exit(verbs.sessions(every))


def _trust(
    directory: Annotated[
        str | None, typer.Argument(metavar="DIR", help="In the project; otherwise the current one.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking, for scripts.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust nothing of it any more.")] = False,
) -> None:
    raise typer.Exit(verbs.trust(directory, yes=yes, take_back=revoke))


def _grants(
    directory: Annotated[
        str | None, typer.Argument(metavar="DIR", help="In the project; otherwise the current one.")
    ] = None,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="WORD", help="Take that one back, or all.")
    ] = None,
) -> None:
    raise typer.Exit(verbs.grants(directory, revoke))


def _doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    without: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="As if these were missing: native, processes, bubblewrap, landlock (commas between).",
        ),
    ] = "",
) -> None:
    raise typer.Exit(verbs.doctor(as_json=as_json, without=means(without)))


def _scripted_server(context: typer.Context) -> None:
    raise typer.Exit(verbs.scripted_server(context.args))


def _sign(function: Callable[..., None], options: Sequence[Option], **first: tuple[object, object]) -> None:
    """Give the function the parameters that typer shall see: `first` (type, default), then the options."""
    described = {name: kind for name, (kind, _) in first.items()}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if default is ... else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is ... else default,
            annotation=kind,
        )
        for name, (kind, default) in first.items()
    ]
    for option in options:
        kind = TYPES[option.kind] if option.kind is Kind.SWITCH else TYPES[option.kind] | None
        given = typer.Option(option.flag, help=option.help, metavar=option.metavar or None)
        described[option.field] = Annotated[kind, given]
        parameters.append(
            inspect.Parameter(
                option.field,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=described[option.field],
            )
        )
    function.__annotations__ = described
    vars(function)["__signature__"] = inspect.Signature(parameters)
