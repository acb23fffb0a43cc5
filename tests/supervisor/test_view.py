"""What stands on the screen while a session tells its events; drawn by a real terminal's rules."""

import msgspec
import pyte
import pytest

from protocol.display import Display
from protocol.events import (
    AnyEvent,
    Compacted,
    Denial,
    Notice,
    PermissionAnswered,
    ReasoningDelta,
    ReplyFinished,
    ReplyRetried,
    RoundStarted,
    SandboxReady,
    SessionClosed,
    SessionStarted,
    StopReason,
    TextDelta,
    ToolFinished,
    ToolOutputDelta,
    ToolStarted,
    TurnFinished,
    Usage,
)
from supervisor.harmless import harmless
from supervisor.screen.tones import Terminal
from supervisor.screen.view import View

AMBER, GREY = "ffaf00", "8a8a8a"


class Screen(pyte.HistoryScreen):
    """A screen that notes from which row it was cleared."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows, history=1000)
        self.cleared_from: list[int] = []

    def erase_in_display(self, how: int = 0, *more: object, **private: object) -> None:
        self.cleared_from.append(self.cursor.y)
        super().erase_in_display(how, *more, **private)


class Watched:
    """A view and the terminal that it draws on."""

    def __init__(
        self, columns: int = 40, rows: int = 10, *, coloured: bool = True, moves: bool = True
    ) -> None:
        self.screen = Screen(columns, rows)
        self.screen.cleared_from.clear()
        self.screen.set_mode(pyte.modes.LNM)
        self.written: list[str] = []
        stream = pyte.Stream(self.screen)

        def write(text: str) -> None:
            self.written.append(text)
            stream.feed(text)

        terminal = Terminal(coloured=coloured, moves=moves)
        self.view = View(write, terminal, lambda: (columns, rows), harmless)

    def tell(self, *events: AnyEvent) -> "Watched":
        for event in events:
            self.view(event)
        return self

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def gone(self) -> list[str]:
        width = self.screen.columns
        return ["".join(row[x].data for x in range(width)).rstrip() for row in self.screen.history.top]

    def colours(self) -> list[str]:
        return [
            str(self.screen.buffer[y][0].fg) for y, line in enumerate(self.screen.display) if line.strip()
        ]


def text(words: str) -> TextDelta:
    return TextDelta(text=words)


def reply(kind: str, words: str = "") -> ReplyFinished:
    return ReplyFinished(kind=kind, text=words, round=1)


def ended(reason: StopReason, error: str = "") -> TurnFinished:
    return TurnFinished(turn=1, reason=reason, text="", rounds=1, usage=Usage(), seconds=1, error=error)


def call(number: str = "1", arguments: str = '{"command": "make"}') -> ToolStarted:
    return ToolStarted(call_id=number, name="run_command", arguments=arguments)


def result(number: str = "1", **display: str) -> ToolFinished:
    shown = Display(display.get("summary", "exit 0"), preview=display.get("preview", ""))
    return ToolFinished(
        call_id=number, name="run_command", status="done", failed=False, seconds=1, bytes=1, display=shown
    )


def test_text_is_neutral_while_it_is_open_and_takes_its_colour_once_its_kind_is_known() -> None:
    watched = Watched().tell(text("some wo"), text("rds\nmore"))
    assert watched.colours() == ["default", "default"]
    watched.tell(reply("answer"))
    assert watched.lines() == ["some words", "more"]
    assert watched.colours() == [AMBER, AMBER]


def test_a_call_that_begins_makes_the_open_text_narration() -> None:
    watched = Watched().tell(text("I look."), call())
    assert watched.lines() == ["I look.", "run_command make …"]
    assert watched.colours()[0] == GREY


@pytest.mark.parametrize("words", ["x" * 40, "x" * 41, "漢" * 20, "漢" * 21, "a\n\n\nb", "\tx\n"])
def test_redrawing_leaves_exactly_the_text(words: str) -> None:
    plain = Watched(moves=False, coloured=False).tell(text(words), reply("answer")).lines()
    assert Watched().tell(text("before"), reply("answer"), text(words), reply("answer")).lines() == [
        "before",
        *plain,
    ]


def test_what_has_scrolled_away_stays_neutral_and_nothing_is_lost_or_doubled() -> None:
    rows = [f"row {number}" for number in range(30)]
    watched = Watched().tell(text("\n".join(rows)), reply("answer"))
    assert watched.gone() + watched.lines() == rows
    assert set(watched.colours()[1:]) == {AMBER}
    assert watched.screen.history.top[0][0].fg == "default"


def test_the_screen_is_never_cleared_from_its_top_row() -> None:
    """There tmux puts what stood on the screen into its scrollback, and the text would stand twice."""
    watched = Watched().tell(Notice(text="a prompt always stands above"))
    for count in range(1, 25):
        watched.tell(text("\n".join("abc" for _ in range(count))), reply("answer"))
    assert len(watched.screen.cleared_from) == 24
    assert min(watched.screen.cleared_from) > 0


def test_a_line_that_is_larger_than_the_screen_is_left_as_it_is() -> None:
    words = "y" * 500
    watched = Watched().tell(text(words), reply("answer"))
    assert "".join(watched.gone() + watched.lines()) == words


def test_a_text_that_was_not_streamed_is_shown_all_the_same() -> None:
    watched = Watched().tell(reply("answer", "at once"))
    assert watched.lines() == ["at once"]
    assert watched.colours() == [AMBER]
    assert Watched().tell(reply("narration", "")).lines() == []


def test_another_try_replaces_what_was_shown() -> None:
    watched = Watched().tell(text("lost"), ReplyRetried(why="it broke"), text("kept"), reply("answer"))
    assert watched.lines() == ["asking again: it broke", "kept"]


def test_what_can_not_be_erased_is_said_to_be_replaced() -> None:
    watched = Watched(columns=80).tell(text("lost\n" * 30), ReplyRetried(why="it broke"))
    assert watched.lines() == ["lost", "the text above is replaced; asking again: it broke"]
    plain = Watched(columns=80, coloured=False, moves=False).tell(text("lost"), ReplyRetried(why="it broke"))
    assert plain.lines() == ["lost", "the text above is replaced; asking again: it broke"]
    assert Watched().tell(ReplyRetried(why="busy")).lines() == ["asking again: busy"]


def test_thinking_is_a_status_that_leaves_no_trace() -> None:
    watched = Watched().tell(RoundStarted(turn=1, round=1, share=0.1), ReasoningDelta(text="secret thought"))
    assert watched.lines() == ["thinking…"]
    watched.tell(text("hello"), ReasoningDelta(text="more"), reply("answer"))
    assert watched.lines() == ["hello"]
    assert "secret" not in "".join(watched.written)


def test_a_running_command_shows_its_last_line_and_nothing_stays_of_it() -> None:
    watched = Watched().tell(call(), ToolOutputDelta(call_id="1", text="10%\r50%\ncompiling \x1b[31mb.c\n"))
    assert watched.lines() == ["run_command make · compiling ^[[31mb.c"]
    watched.tell(ToolOutputDelta(call_id="1", text="\n"), ToolOutputDelta(call_id="?", text="x"), result())
    assert watched.lines() == ["● run_command make · exit 0"]


def test_of_calls_side_by_side_the_one_that_still_runs_is_shown() -> None:
    watched = Watched().tell(call("1"), call("2", '{"command": "sleep"}'), result("2"))
    assert watched.lines() == ["● run_command sleep · exit 0", "run_command make …"]
    watched.tell(result("1"), result("unknown"))
    assert watched.lines()[-1] == "● run_command · exit 0"


def test_a_notice_does_not_cut_through_an_open_text() -> None:
    watched = Watched().tell(text("begun "), Notice(text="job 1 ended"), text("and ended"), reply("answer"))
    assert watched.lines() == ["begun and ended", "job 1 ended"]


def test_a_notice_stands_above_the_status() -> None:
    watched = Watched().tell(call(), Notice(text="careful", level="warning"))
    assert watched.lines() == ["careful", "run_command make …"]
    assert watched.colours()[0] == AMBER


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (ended(StopReason.ANSWERED), []),
        (ended(StopReason.FAILED, "the server is gone"), ["error: the server is gone"]),
        (ended(StopReason.INTERRUPTED), ["[interrupted]"]),
        (ended(StopReason.ROUNDS), ["the round limit ended this turn (max_tool_", "rounds_per_turn)"]),
        (Compacted(pairs=2, before=4000, after=10), ["compacted 2 turns: 4,000 → 10 tokens"]),
        (SandboxReady(rung="full"), ["sandbox: full"]),
        (
            SandboxReady(rung="off", notes=("no kernel",)),
            ["sandbox: off; not enforced: no kernel"],
        ),
        (SessionClosed(exit_code=0, conversation="c", turns=1, rounds=1, usage=Usage()), []),
        (
            SessionStarted(conversation="c1", workspace="/w", model="m", resumed=True),
            ["c1 (resumed) · m · /w"],
        ),
    ],
)
def test_what_is_told_of_a_session(event: AnyEvent, wanted: list[str]) -> None:
    assert Watched(columns=42).tell(event).lines() == wanted


def test_a_turn_that_is_interrupted_keeps_its_text_as_an_answer() -> None:
    watched = Watched().tell(text("half"), ended(StopReason.INTERRUPTED, "interrupted by the user"))
    assert watched.lines() == ["half", "[interrupted by the user]"]
    assert watched.colours()[0] == AMBER


def test_without_cursor_movements_only_text_is_written() -> None:
    watched = Watched(coloured=False, moves=False)
    watched.tell(
        RoundStarted(turn=1, round=1, share=0.1), ReasoningDelta(text="x"), text("\n\nI look.\n"), call()
    )
    watched.tell(result(), text("done"), reply("answer"))
    assert "".join(watched.written) == "I look.\n● run_command make · exit 0\ndone\n"


def test_a_sequence_that_is_split_over_deltas_stays_visible_text() -> None:
    watched = Watched(columns=60).tell(
        *(text(piece) for piece in "A\x1b]52;c;eA==\x07B\x9b31mC\rD\x7f"), reply("answer")
    )
    assert watched.lines() == ["A^[]52;c;eA==^GB\\x9b31mC^MD^?"]


def test_what_the_sandbox_or_a_limit_stopped_stands_below_the_call() -> None:
    denials = (
        Denial("/home/u/x can't be written", "write:/home/u/x"),
        Denial("a signal to\x1b another process", "", sure=False),
        Denial("c"),
        Denial("d"),
    )
    ended = msgspec.structs.replace(result(summary="exit 1"), failed=True, denials=denials, limit="memory")
    assert Watched(columns=60).tell(call(), ended).lines()[1:] == [
        "  ended: memory",
        "  blocked: write:/home/u/x",
        "  likely blocked: a signal to^[ another process",
        "  blocked: c",
        "  and 1 more",
    ]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (("user", True, "session"), "  allowed for this session: write:/opt"),
        (("grant", True, "session"), "  allowed (granted before): write:/opt"),
        (("flag", True, "session"), "  allowed (by --allow): write:/opt"),
        (("nobody", False, ""), "  not allowed (nobody could be asked): write:/opt"),
    ],
)
def test_a_decision_is_one_line(event: tuple[str, bool, str], line: str) -> None:
    by, allowed, scope = event
    told = PermissionAnswered(
        question=1,
        call_id="1",
        name="run_command",
        subject="make",
        permissions=("write:/opt",),
        allowed=allowed,
        by=by,
        scope=scope,
    )
    assert Watched(columns=70).tell(told).lines() == [line]


@pytest.mark.parametrize(
    ("scope", "by", "line"),
    [
        ("once", "user", "  applying: make"),
        ("", "user", "  discarded: make"),
        ("", "cancelled", "  discarded (the call ended before an answer): make"),
    ],
)
def test_what_becomes_of_a_dry_run_is_no_permission(scope: str, by: str, line: str) -> None:
    told = PermissionAnswered(
        question=1,
        call_id="1",
        name="run_command",
        subject="make",
        permissions=(),
        allowed=bool(scope),
        by=by,
        scope=scope,
        dry_run=True,
    )
    assert Watched(columns=70).tell(told).lines() == [line]


def test_the_keys_of_a_question_stand_until_it_is_answered_whatever_else_is_told() -> None:
    watched = Watched(columns=60).tell(call())
    watched.view.asks("[o]nce  [n]o")
    watched.tell(ToolOutputDelta(call_id="1", text="printed\n"), Notice(text="a job ended"))
    assert watched.lines() == ["a job ended", "[o]nce  [n]o"]
    watched.view.asks("")
    assert watched.lines() == ["a job ended", "run_command make · printed"]


def test_a_sandbox_that_stays_as_it_is_is_told_once() -> None:
    watched = Watched().tell(SandboxReady(rung="full"), SandboxReady(rung="full"), SandboxReady(rung="off"))
    assert watched.lines() == ["sandbox: full", "sandbox: off"]
