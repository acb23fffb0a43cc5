"""A tool call as a person sees it: what it is about, one line with its outcome, and what is unfolded below.

Pure: events in, lines out.  `show_tool_results` decides how much; it never changes what the model gets.
"""

from collections.abc import Callable

import msgspec

from protocol.events import ToolFinished, ToolStarted
from supervisor.screen.diff import drawn
from supervisor.screen.tones import Terminal, Tone

OFF, SUMMARY, PREVIEW, FULL = "off", "summary", "preview", "full"
"""Values of `show_tool_results`."""

PREVIEW_LINES = 6
"""Lines of a command's output that are shown folded: enough for a verdict, little enough for ten calls."""

DIFF_LINES = 40
"""Lines of a diff that are shown folded: most edits whole, a rewritten file not."""

PREVIEWED = ("run_command", "jobs")
"""Calls whose output is worth a folded preview; of a file that was read one line says enough."""

SUBJECTS = ("command", "path", "pattern", "glob", "action", "id")
"""The arguments that say what a call is about, the most telling first."""

_decoder = msgspec.json.Decoder(dict[str, object])


def subject(arguments: str) -> str:
    """What a call is about, on one line: its path, command or pattern.  Empty where nothing says so."""
    try:
        values = _decoder.decode(arguments or "{}")
    except (msgspec.MsgspecError, UnicodeEncodeError):  # a lone surrogate can't be encoded for decoding
        return _line(arguments)
    found = [str(values[name]) for name in SUBJECTS if values.get(name)]
    return _line(" ".join(found[:2]))


def started(event: ToolStarted, harmless: Callable[[str], str]) -> str:
    """The call, for a status line."""
    return harmless(f"{_line(event.name)} {subject(event.arguments)}".rstrip())


def finished(
    event: ToolFinished, arguments: str, terminal: Terminal, show: str, harmless: Callable[[str], str]
) -> list[str]:
    """The lines that stay: the call with its outcome, and below it the diff or the preview."""
    about = harmless(_shortened(subject(arguments)))
    head = terminal.paint(
        "✗ " if event.failed else "● ", Tone.BAD if event.failed else Tone.GOOD
    ) + terminal.paint(harmless(_line(event.name)), Tone.STRONG)
    if about:
        head += f" {about}"
    summary = harmless(_line(event.display.summary))
    if event.failed and not summary:
        summary = harmless(event.status)
    if summary and (show != OFF or event.failed):
        head += terminal.paint(f" · {summary}", Tone.BAD if event.failed else Tone.QUIET)
    return [head, *_below(event, terminal, show, harmless)]


def _below(event: ToolFinished, terminal: Terminal, show: str, harmless: Callable[[str], str]) -> list[str]:
    if show not in (PREVIEW, FULL):
        return []
    whole = show == FULL
    if event.display.diff:
        text = harmless(event.display.diff.replace("\r\n", "\n"))
        return drawn(text, terminal, "  ", None if whole else DIFF_LINES)
    if not whole and event.name not in PREVIEWED:
        return []
    return preview(harmless(event.display.preview.replace("\r\n", "\n")), terminal, whole=whole)


def preview(text: str, terminal: Terminal, *, whole: bool) -> list[str]:
    """The lines of an output, folded unless `whole`; the last one names how many are left out."""
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    # One line more is shown rather than replaced by "1 more line".
    shown = lines if whole or len(lines) <= PREVIEW_LINES + 1 else lines[:PREVIEW_LINES]
    drawn_lines = [terminal.paint(f"  │ {line}", Tone.QUIET) for line in shown]
    if len(shown) < len(lines):
        drawn_lines.append(terminal.paint(f"  │ … {len(lines) - len(shown)} more lines", Tone.QUIET))
    return drawn_lines


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())
