"""The screen's small pure parts: cells, commands, calls, the context report, what a terminal can show."""

import pytest
from prompt_toolkit.utils import get_cwidth

from protocol.display import Display
from protocol.events import ToolFinished
from supervisor.harmless import harmless
from supervisor.screen import calls, report
from supervisor.screen.cells import crop, rows
from supervisor.screen.lines import Leave, Line, Outbox, Outcome, Presses
from supervisor.screen.slash import Command, Nothing, Say, Unknown, meaning, refusal
from supervisor.screen.tones import Terminal, Tone, terminal_of
from tests.supervisor.repl_stage import DIFF, LONG, Report

PLAIN = Terminal(coloured=False, moves=False)


@pytest.mark.parametrize(
    ("line", "width", "wanted"),
    [
        ("", 10, 1),
        ("0123456789", 10, 1),
        ("0123456789a", 10, 2),
        ("漢字漢字漢", 10, 1),
        ("漢字漢字漢字", 10, 2),
        ("a漢字漢字漢", 10, 2),  # the last one does not fit into one cell
        ("é" * 10, 10, 1),
        ("e\u0301" * 10, 10, 1),
        ("\t\t\tab", 10, 2),
    ],
)
def test_rows_are_counted_in_cells(line: str, width: int, wanted: int) -> None:
    assert rows(line, width) == wanted


@pytest.mark.parametrize(
    ("line", "width", "wanted"),
    [
        ("short", 10, "short"),
        ("0123456789", 10, "0123456789"),
        ("0123456789a", 10, "012345678…"),
        ("a\tb", 10, "a b"),
        ("漢字漢字漢", 10, "漢字漢字漢"),
        ("漢字漢字漢字", 10, "漢字漢字…"),
        ("éééé", 10, "éééé"),
    ],
)
def test_a_cropped_line_fits(line: str, width: int, wanted: str) -> None:
    assert crop(line, width) == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("", Nothing()),
        ("  \t", Nothing()),
        ("hello ", Say("hello")),
        ("  indented", Say("  indented")),
        ("/help", Command("help")),
        (" /compact  the plan ", Command("compact", "the plan")),
        ("//help me", Say("/help me")),
        ("/hlep", Unknown("hlep", "help")),
        ("/zzz", Unknown("zzz")),
        ("/exit now", Unknown("exit", extra="now")),
        ("/", Unknown("")),
        ("/Help", Unknown("Help", "help")),
    ],
)
def test_a_line_is_a_turn_a_command_or_nothing(line: str, wanted: object) -> None:
    assert meaning(line) == wanted


def test_an_unknown_command_is_named_with_the_nearest_or_the_way_to_all() -> None:
    assert "did you mean /help?" in refusal(Unknown("hlep", "help"))
    assert "/help lists them" in refusal(Unknown("zzz"))
    assert "(//exit now sends the line" in refusal(Unknown("exit", extra="now"))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"path": "a.py", "offset": 3}', "a.py"),
        ('{"command": "make\\n  all", "timeout": 3}', "make all"),
        ('{"pattern": "x", "path": "src"}', "src x"),
        ('{"action": "stop", "id": "j1"}', "stop j1"),
        ('{"edits": []}', ""),
        ("", ""),
        ("{broken", "{broken"),
        ('["list"]', '["list"]'),
    ],
)
def test_a_call_is_about_its_path_command_or_pattern(arguments: str, wanted: str) -> None:
    assert calls.subject(arguments) == wanted


def finished(
    display: Display, *, name: str = "tool", failed: bool = False, status: str = "done"
) -> ToolFinished:
    return ToolFinished(
        call_id="1", name=name, status=status, failed=failed, seconds=1, bytes=1, display=display
    )


def lines(event: ToolFinished, show: str) -> list[str]:
    return calls.finished(event, '{"path": "a"}', PLAIN, show, harmless)


def test_show_tool_results_decides_how_much_is_shown() -> None:
    event = finished(Display("read 60 lines", preview=LONG))
    assert lines(event, "off") == ["● tool a"]
    assert lines(event, "summary") == ["● tool a · read 60 lines"]
    assert lines(event, "preview") == ["● tool a · read 60 lines"]
    assert len(lines(event, "full")) == 61


def test_of_a_command_the_first_and_the_last_lines_of_its_output_are_shown() -> None:
    event = finished(Display("exit 0", preview=LONG), name="run_command")
    assert lines(event, "preview")[1:] == [
        f"  │ {text}" for text in ("row 0", "row 1", "row 2", "… 54 lines …", "row 57", "row 58", "row 59")
    ]


def test_the_lines_left_out_are_counted_of_what_the_command_printed_not_of_what_is_known_of_it() -> None:
    known = "\n".join(["1", "2", "3", "4", "5", "6", "… 9,988 lines …", "9", "8", "7", "6", "5", "4"])
    event = finished(Display("exit 0", known, lines=10_000), name="run_command")
    assert lines(event, "preview")[4] == "  │ … 9,994 lines …"


def test_a_call_and_its_outcome_stand_on_one_line_of_the_terminal() -> None:
    event = finished(Display("exit 0 in 0.1 s, 3 lines"), name="run_command")
    arguments = '{"command": "' + "echo 漢字 && " * 30 + '"}'
    for columns in (70, 80, 200):
        (line,) = calls.finished(event, arguments, PLAIN, "preview", harmless, columns)
        assert columns - 3 <= get_cwidth(line) < columns
        assert line.endswith("… · exit 0 in 0.1 s, 3 lines")
    (narrow,) = calls.finished(event, arguments, PLAIN, "preview", harmless, 30)
    assert narrow.startswith("● run_command echo 漢字")


def test_an_edit_is_shown_as_a_diff_instead_of_a_preview() -> None:
    event = finished(Display("1 edit", preview="nothing", diff=DIFF.replace("\n", "\r\n"), path="a"))
    assert lines(event, "preview") == ["● tool a · 1 edit", "  1   keep", "  2 - old", "  2 + new"]


def test_a_failure_says_why_even_when_results_are_off() -> None:
    assert lines(finished(Display("not unique"), failed=True), "off") == ["✗ tool a · not unique"]
    assert lines(finished(Display(""), failed=True, status="died"), "off") == ["✗ tool a · died"]


def test_names_arguments_summaries_and_previews_are_made_harmless() -> None:
    evil = "\x1b]0;title\x07"
    event = finished(Display(evil, preview=evil, path=evil))
    text = "\n".join(calls.finished(event, '{"path": "\\u001b[2J"}', PLAIN, "full", harmless))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "^[[2J" in text


def test_a_subject_that_is_far_too_long_is_cut() -> None:
    text = calls.finished(finished(Display("")), '{"path": "' + "x" * 999 + '"}', PLAIN, "off", harmless)[0]
    assert len(text) < 220


def test_the_report_shows_the_share_as_a_bar_and_says_when_it_is_a_guess() -> None:
    head, first, second = report.drawn(Report(), PLAIN, 80, harmless)
    assert head == "█" * 26 + "·" * 4 + " 88% · 440,000 of 500,000 tokens"
    assert first == "      1,200  system prompt"
    assert second.endswith("hello ^[[31m")
    (guessed,) = report.drawn(Report(parts=(), used=7, estimated=True), PLAIN, 80, harmless)
    assert "estimated" in guessed
    (over,) = report.drawn(Report(parts=(), budget=0), PLAIN, 80, harmless)
    assert over.startswith("█" * 30 + " 100%")


@pytest.mark.parametrize(
    ("environ", "tty", "wanted"),
    [
        ({"TERM": "xterm"}, True, Terminal(coloured=True, moves=True)),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, Terminal(coloured=False, moves=True)),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, Terminal(coloured=True, moves=True)),
        ({"TERM": "dumb"}, True, PLAIN),
        ({}, True, PLAIN),
        ({"TERM": "xterm"}, False, PLAIN),
    ],
)
def test_what_a_terminal_can_show(environ: dict[str, str], tty: bool, wanted: Terminal) -> None:
    assert terminal_of(environ, tty=tty) == wanted


def test_paint_colours_each_line_on_its_own() -> None:
    coloured = Terminal(coloured=True, moves=True)
    assert coloured.paint("a\n\nb", Tone.QUIET) == "\x1b[2ma\x1b[0m\n\n\x1b[2mb\x1b[0m"
    assert coloured.paint("a", Tone.NEUTRAL) == "a"
    assert PLAIN.paint("a", Tone.BAD) == "a"


def test_two_presses_leave_only_when_they_are_close() -> None:
    times = iter([10.0, 12.1, 14.0])
    presses = Presses(lambda: next(times))
    assert [presses.leaves() for _ in range(3)] == [False, False, True]


def test_outcomes_from_before_a_connection_are_not_lost() -> None:
    outbox, got = Outbox(), list[Outcome]()
    outbox.put(Line("early"))
    outbox.connect(got.append)
    outbox.put(Leave())
    assert got == [Line("early"), Leave()]
