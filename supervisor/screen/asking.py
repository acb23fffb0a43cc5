"""Questions on the terminal: who asks waits here, and keys or a line answer.

A key answers only where it is alone: nothing was typed for a moment before it, nothing with it, and it is no
paste.  What was typed before a question was shown is never its answer.  Not here: how a question looks
(question.py), who asks what (permits), and where keys are read (talk.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import trio

from supervisor.permits.asking import Answer, Question, Scope
from supervisor.screen import question as drawing
from supervisor.screen.keys import MARK_NO_PASTES, MARK_PASTES, Escape, Keys, Pasted, Press, Typed
from supervisor.screen.lines import Leave, Outcome
from supervisor.screen.tones import Terminal, Tone
from supervisor.screen.view import View

QUIET_SECONDS = 0.4
"""How long nothing may have been typed before a key that answers: who types a line is faster than that, and
nobody has read a question in less."""

ENTER, ERASE, CLEAR = ("\r", "\n"), ("\x7f", "\x08"), "\x15"

WORDS = "; words for the model (Enter: none): "


class Input(Protocol):
    """Where answers come from."""

    def forget_typed(self) -> None:
        """What was typed until now answers nothing that is asked from now on."""
        ...

    def ask_line(self, prompt: str) -> bool:
        """Without keys: ask for a line; one outcome follows.  False where the input has ended."""
        ...


@dataclass(frozen=True)
class Option:
    """`word`: its first letter is its key."""

    word: str

    @property
    def shown(self) -> str:
        return f"[{self.word[0]}]{self.word[1:]}"


@dataclass
class _Open:
    """The question that is shown.  Keys: `options` by their letter."""

    options: dict[str, str]
    otherwise: str
    """What Esc and the end of the input say."""
    line: Callable[[int], str]
    """The line of keys, for so many columns."""
    armed_at: float
    """From when on a key may answer."""
    whole: Callable[[], None] | None = None
    """Shows the command whole."""
    with_words: str = ""
    """The option that takes words."""
    words: str | None = None
    """Being typed."""
    chosen: str = ""
    keys: Keys = field(default_factory=Keys)
    settled: trio.Event = field(default_factory=trio.Event)

    def settle(self, chosen: str) -> None:
        self.chosen = chosen
        self.settled.set()


class ScreenAsker:
    """`permits.Asker` on a terminal, or on plain lines where `has_keys` is False.  One question at a time."""

    def __init__(
        self,
        view: View,
        write: Callable[[str], None],
        terminal: Terminal,
        size: Callable[[], tuple[int, int]],
        source: Input,
        *,
        has_keys: bool,
    ) -> None:
        self._view = view
        self._write = write
        self._terminal = terminal
        self._size = size
        self._source = source
        self._has_keys = has_keys
        self._open: _Open | None = None

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def wants_lone_keys(self) -> bool:
        """Whether who reads keys shall wait a moment for more, since only a key that is alone counts."""
        return self._open is not None and self._open.words is None

    async def ask(self, question: Question) -> Answer:
        """As `permits.Asker` says."""
        width = self._size()[0]
        folded = drawing.is_folded(question, width)
        no = question.no or "no"
        options = {scope.value[0]: scope.value for scope in question.scopes}
        if question.yes:
            options = {question.yes[0]: question.yes}
        opened = _Open(
            options | {no[0]: no},
            no,
            lambda columns: drawing.keys_line(question, columns, folded=folded),
            trio.current_time() + QUIET_SECONDS,
            with_words="" if question.own else no,
        )
        if folded:
            opened.whole = lambda: self._view.lines(drawing.whole(question, self._terminal, self._size()[0]))
        await self._play(drawing.block(question, self._terminal, width, question.waiting), opened)
        words = " ".join((opened.words or "").split())
        if opened.chosen == no:
            return Answer(None, words)
        return Answer(Scope.ONCE if question.yes else Scope(opened.chosen))

    async def choose(self, lines: Sequence[str], options: Sequence[Option], otherwise: str) -> str:
        """The word of the option that was chosen; `otherwise` is what Esc and the end of the input mean.
        `lines` are drawn already, and harmless.  When this is cancelled, the question disappears."""
        opened = _Open(
            {option.word[0]: option.word for option in options},
            otherwise,
            lambda columns: drawing.fitting([option.shown for option in options], otherwise, columns),
            trio.current_time() + QUIET_SECONDS,
        )
        await self._play(lines, opened)
        return opened.chosen

    async def _play(self, lines: Sequence[str], opened: _Open) -> None:
        self._source.forget_typed()
        self._view.lines(lines)
        self._open = opened
        try:
            if self._has_keys:
                self._write(MARK_PASTES)
                await self._until_quiet(opened)
                self._show(opened)
            else:
                self._ask_line(opened)
            await opened.settled.wait()
        finally:
            self._open = None
            self._view.asks("")
            if self._has_keys:
                self._write(MARK_NO_PASTES)

    async def _until_quiet(self, opened: _Open) -> None:
        """The keys are shown when they count."""
        while trio.current_time() < opened.armed_at:
            await trio.sleep_until(opened.armed_at)

    def _show(self, opened: _Open) -> None:
        columns = self._size()[0]
        if opened.words is None:
            self._view.asks(opened.line(columns))
        else:
            prompt = opened.with_words + WORDS
            room = max(1, columns - len(prompt) - 2)
            self._view.asks(prompt + drawing.visible(opened.words)[-room:])

    def press(self, data: bytes) -> None:
        """Keys that were read while a question is open."""
        opened = self._open
        if opened is None or opened.settled.is_set():
            return
        presses = opened.keys.feed(data)
        if opened.words is not None:
            for press in presses:
                self._take_word(opened, press)
            return
        now = trio.current_time()
        early = now < opened.armed_at
        match presses:
            case [Escape()] if not early:
                opened.settle(opened.otherwise)
            case [Typed("w")] if opened.whole is not None and not early:
                opened.whole()
            case [Typed(key)] if key.lower() in opened.options and not early:
                self._choose(opened, opened.options[key.lower()])
            case _:
                opened.armed_at = now + QUIET_SECONDS

    def _choose(self, opened: _Open, word: str) -> None:
        if word == opened.with_words:
            opened.words = ""
            self._show(opened)
        else:
            opened.settle(word)

    def _take_word(self, opened: _Open, press: Press) -> None:
        words = opened.words or ""
        match press:
            case Typed(key) if key in ENTER:
                opened.settle(opened.with_words)
            case Escape():
                words = ""
                opened.settle(opened.with_words)
            case Typed(key) if key in ERASE:
                words = words[:-1]
            case Typed(key) if key == CLEAR:
                words = ""
            case Typed(key) if key.isprintable():
                words += key
            case Pasted(text):
                words += " ".join(text.split())
            case _:
                pass
        opened.words = words
        self._show(opened)

    def _ask_line(self, opened: _Open) -> None:
        if not self._source.ask_line(f"{opened.line(200)} > "):
            opened.settle(opened.otherwise)

    def take_line(self, outcome: Outcome) -> None:
        """A line that answers, where there are no keys: a word or its letter; words behind no go to the
        model.  At the end of the input the answer is no."""
        opened = self._open
        if opened is None:
            return
        if isinstance(outcome, Leave):
            opened.settle(opened.otherwise)
            return
        name, _, rest = outcome.text.strip().partition(" ")
        word = opened.options.get(name[:1].lower(), "")
        if not word or name.lower() not in (word[0], word):
            if name.lower() in ("w", "whole") and opened.whole is not None:
                opened.whole()
            else:
                there = ", ".join(opened.options.values())
                self._view.line(f"{drawing.visible(name)!s}: no answer; there are: {there}", Tone.WARNING)
            self._ask_line(opened)
            return
        if word == opened.with_words:
            opened.words = rest
        opened.settle(word)
