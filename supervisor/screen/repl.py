"""Starts the REPL and takes it down: the editor first, then everything that a session needs.

The first key shall be echoed as early as possible, so this file imports the editor alone; the loop (talk.py),
the session, HTTP and the pool are imported once the prompt is on the screen.  The terminal gets its modes
back on every way out.
"""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from supervisor.exits import INTERRUPTED
from supervisor.harmless import for_stream
from supervisor.options import REHEARSAL, ReplOptions
from supervisor.screen.lines import Lines, PlainLines
from supervisor.screen.prompt import Fragments, Shown
from supervisor.screen.tones import Terminal, terminal_of
from supervisor.screen.tty import Output, drop_what_nobody_takes, given_back

if TYPE_CHECKING:
    from supervisor.screen.port import Prepare
    from supervisor.screen.talk import Ended

PAINT_SECONDS = 10.0
"""How long the rest waits for the first prompt; then it goes on all the same."""


def run_repl(options: ReplOptions, prepare: "Prepare | None" = None) -> int:
    """Play until the user leaves; the exit code.  Raises StopError where nothing can be opened.

    `prepare` builds the parts of the session; without it they are built from `options` and the settings.
    """
    tty = os.isatty(0) and os.isatty(1)
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    terminal = terminal_of(os.environ, tty=tty)
    output = Output(1, encoding)
    shown = Shown()
    shown.alarm = "UNCONFINED" if options.sandbox == "unconfined" else ""
    glyph = for_stream("❯", encoding)

    def draw() -> Fragments:
        return shown.drawn(coloured=terminal.coloured, glyph=glyph)

    with given_back(0):
        lines: Lines
        if terminal.moves:
            from supervisor.screen.editor import Editor

            lines = Editor(draw, output, banner=REHEARSAL if options.rehearsal else "")
        else:
            lines = PlainLines(draw, output)
        lines.start()
        try:
            lines.wait_until_shown(PAINT_SECONDS)
            ended = _play(options, prepare, lines, output, terminal, shown)
        except KeyboardInterrupt:  # Ctrl-C before the loop listens
            return INTERRUPTED
        finally:
            lines.stop()
            drop_what_nobody_takes()
    if ended.conversation and not options.rehearsal:  # a rehearsal's conversations are removed with it
        output.write(f"to go on: agent --resume {ended.conversation}\n")
    return ended.exit_code


def _play(
    options: ReplOptions,
    prepare: "Prepare | None",
    lines: Lines,
    output: Output,
    terminal: Terminal,
    shown: Shown,
) -> "Ended":
    """Everything that is not the editor: imported and run while the first line is being typed."""
    from supervisor.screen.talk import talk

    if prepare is None:
        from supervisor.screen.wired import wired

        prepare = partial(wired, options)
    with prepare() as prepared:
        return talk(lines, output, terminal, prepared, shown, 0 if terminal.moves else None)
