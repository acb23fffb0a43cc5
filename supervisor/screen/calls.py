"""A tool call as a person sees it: what it is about, one line with its outcome, and what is unfolded below.

Pure: events in, lines out.  `show_tool_results` decides how much; it never changes what the model gets.
"""

from collections.abc import Callable

import msgspec
from prompt_toolkit.utils import get_cwidth

from protocol.events import PermissionAnswered, ToolFinished, ToolStarted
from supervisor.harmless import harmless_line
from supervisor.screen.cells import crop
from supervisor.screen.diff import drawn
from supervisor.screen.tones import Terminal, Tone

OFF, SUMMARY, PREVIEW, FULL = "off", "summary", "preview", "full"
"""Values of `show_tool_results`."""

PREVIEW_LINES = 6
"""Lines of a command's output that are shown folded, half of them the last ones, where the verdict stands."""

LEAST = 20
"""Cells that what a call is about gets at least, also on a narrow terminal."""

DIFF_LINES = 40
"""Lines of a diff that are shown folded: most edits whole, a rewritten file not."""

DENIALS = 3
"""Of one call that are shown: a build that may not write says so a hundred times."""

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
    event: ToolFinished,
    arguments: str,
    terminal: Terminal,
    show: str,
    harmless: Callable[[str], str],
    columns: int = 200,
) -> list[str]:
    """The lines that stay: the call with its outcome on one line of so many cells, and below it the diff or
    the preview."""
    mark, tone = ("✗ ", Tone.BAD) if event.failed else ("● ", Tone.GOOD)
    name = harmless(_line(event.name))
    summary = harmless(_line(event.display.summary))
    if event.failed and not summary:
        summary = harmless(event.status)
    outcome = f" · {summary}" if summary and (show != OFF or event.failed) else ""
    room = columns - 2 - get_cwidth(mark + name + outcome)
    about = crop(harmless(subject(arguments)), max(room, LEAST))
    head = terminal.paint(mark, tone) + terminal.paint(name, Tone.STRONG) + (f" {about}" if about else "")
    head += terminal.paint(outcome, Tone.BAD if event.failed else Tone.QUIET)
    return [head, *_stopped(event, terminal, columns), *_below(event, terminal, show, harmless)]


def _stopped(event: ToolFinished, terminal: Terminal, columns: int) -> list[str]:
    """What the sandbox or a limit kept it from: shown whatever `show_tool_results` says."""
    words = [f"ended: {event.limit}"] if event.limit else []
    words += [
        f"{'blocked' if one.sure else 'likely blocked'}: {one.permission or one.what}"
        for one in event.denials[:DENIALS]
    ]
    if len(event.denials) > DENIALS:
        words.append(f"and {len(event.denials) - DENIALS} more")
    return [terminal.paint(crop(f"  {harmless_line(word)}", columns - 1), Tone.WARNING) for word in words]


DECIDERS = {
    "user": "",
    "rule": "by a rule of yours",
    "grant": "granted before",
    "flag": "by --allow",
    "program": "it can't be had here",
    "nobody": "nobody could be asked",
    "cancelled": "the call ended before an answer",
}
"""Who decided, in words; nothing of who has just answered."""
SCOPES = {"once": "once", "session": "for this session", "project": "for this project"}


def decided(event: PermissionAnswered, terminal: Terminal, columns: int) -> str:
    """The line that stays of a decision."""
    what = harmless_line(", ".join(event.permissions) or _line(event.subject))
    by = DECIDERS.get(event.by, event.by)
    verdict = "allowed" if event.allowed else "not allowed"
    if event.dry_run:
        verdict = "applying" if event.allowed else "discarded"
    elif event.allowed and not by:  # for how long an earlier yes holds, /sandbox says
        verdict = f"allowed {SCOPES.get(event.scope, event.scope)}"
    head = f"  {verdict}{f' ({by})' if by else ''}: "
    about = crop(what, max(columns - 1 - len(head), LEAST))
    return terminal.paint(head, Tone.QUIET if event.allowed else Tone.WARNING) + about


def _below(event: ToolFinished, terminal: Terminal, show: str, harmless: Callable[[str], str]) -> list[str]:
    if show not in (PREVIEW, FULL):
        return []
    whole = show == FULL
    if event.display.diff:
        text = harmless(event.display.diff.replace("\r\n", "\n"))
        return drawn(text, terminal, "  ", None if whole else DIFF_LINES)
    if not whole and event.name not in PREVIEWED:
        return []
    text = harmless(event.display.preview.replace("\r\n", "\n"))
    return preview(text, terminal, event.display.lines, whole=whole)


def preview(text: str, terminal: Terminal, count: int, *, whole: bool) -> list[str]:
    """The lines of an output that has `count` lines (0: the text is all of it), folded unless `whole`: the
    first ones, how many are left out, the last ones."""
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    # One line more is shown rather than replaced by "1 line".
    if not whole and len(lines) > PREVIEW_LINES + 1:
        half = PREVIEW_LINES // 2
        left_out = max(count, len(lines)) - 2 * half
        lines = [*lines[:half], f"… {left_out:,} lines …", *lines[-half:]]
    return [terminal.paint(f"  │ {line}", Tone.QUIET) for line in lines]


def _line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())
