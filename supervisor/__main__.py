"""The way in: decides what is wanted before anything heavy is imported, and words the way out.

Importing this file imports nothing but `sys`: `--version` costs what a bare interpreter costs, and bare
`agent` shows a prompt before the editor behind it is loaded.  What is *not* here: parsing (options.py,
commands.py), and what the commands do (verbs.py).
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

NO_ROOM = (28, 122)
"""ENOSPC and EDQUOT of Linux; `import errno` is not worth its time here."""


def main() -> int:
    """Run the command line; the exit code.  Every error but a broken interpreter ends here."""
    arguments = sys.argv[1:]
    import gc

    gc.disable()  # nothing that is imported becomes garbage; verbs.py switches it on again
    try:
        if arguments in (["--version"], ["-V"]):
            _print_version()
        return _play(arguments)
    except BaseException as error:  # noqa: BLE001  the outermost boundary: no traceback reaches the user
        return _explain(error, bare=not arguments or arguments[0].startswith("-"))
    finally:
        gc.freeze()  # else the interpreter looks at every object once more before it leaves


def _print_version() -> "NoReturn":
    from supervisor.version import VERSION

    if sys.stdout is not None:  # it is None where the program was started without one
        sys.stdout.write(f"polier {VERSION}\n")
        sys.stdout.flush()
    import os

    os._exit(0)  # nothing is open, and taking the interpreter down costs more than all of this


def _play(arguments: list[str]) -> int:
    _occupy_streams()
    if not arguments:
        _show_glyph()
    from supervisor import options, verbs

    bare = options.plain_bare(options.with_resumed(arguments))
    if arguments and bare is not None:
        _show_glyph()
    plain = options.plain_run(arguments[1:]) if arguments[:1] == ["run"] else None
    if plain is not None:
        return verbs.run(plain)
    if bare is not None:
        return verbs.repl(bare)
    from supervisor import commands

    return commands.main(arguments)


def _occupy_streams() -> None:
    """Put /dev/null where one of the three streams is closed.

    Otherwise the next file that is opened, a transcript perhaps, gets its number, and what is meant for the
    screen is written into it.
    """
    import os

    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _show_glyph() -> None:
    """The end of the prompt, where a person looks at it; what comes next erases it (streams.erase_line)."""
    import os

    if os.environ.get("TERM", "dumb") not in ("", "dumb") and os.isatty(0) and os.isatty(1):
        glyph = "❯ " if sys.stdout.encoding.lower().startswith("utf") else "> "
        sys.stdout.write(glyph)
        sys.stdout.flush()


def _explain(error: BaseException, *, bare: bool) -> int:
    """Say in one line what ended the program; its exit code."""
    from supervisor.exits import FAILED, INTERRUPTED, READER_GONE, causes, first_stop
    from supervisor.streams import complain, erase_line

    if bare:
        erase_line()
    found = causes(error)
    stop = first_stop(error)
    if stop is not None:
        complain(str(stop))
        return stop.exit_code
    for cause in found:
        if isinstance(cause, SystemExit):
            return cause.code if isinstance(cause.code, int) else FAILED
    if all(isinstance(cause, KeyboardInterrupt) for cause in found):
        return INTERRUPTED
    if all(isinstance(cause, BrokenPipeError) for cause in found):
        _silence_stdout()
        return READER_GONE
    if any(isinstance(cause, OSError) and cause.errno in NO_ROOM for cause in found):
        _silence_stdout()
        complain("the disk is full; what was to be written is not")
        return FAILED
    from supervisor.crash import record

    complain(record(error, found[0]))
    return FAILED


def _silence_stdout() -> None:
    """What Python still holds for a reader that is gone must not fail once more at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
