"""Decisions about calls: told to the front, written down, and remembered as far as they reach.

A no holds until the turn ends, for what it was about; a yes for the session quiets a rule, or lets one
command through where nothing confines any.  Grants of permissions are grants.py's.
"""

import shlex
from collections.abc import Callable

from msgspec import Struct

from protocol.conversation import ToolCall
from protocol.events import AnyEvent, PermissionAnswered
from supervisor.permits.asking import Decider, Scope
from supervisor.permits.wanted import Wanted


class Case(Struct, frozen=True):
    """A call, and what about it has to be decided."""

    call: ToolCall
    subject: str
    """The command; of another tool, its arguments."""
    rule: str = ""
    needs: tuple[Wanted, ...] = ()
    asks: bool = False
    """A rule of the user's wants a question."""
    doubt: str = ""
    """Why only running it would show whether a rule is about it; empty where one is."""
    bare: bool = False
    """Nothing would confine it."""
    unlisted: bool = False
    """A host would mean the whole network, since no list of hosts can be held to."""
    ran_before: bool = False
    question: int | None = None

    @property
    def permissions(self) -> tuple[str, ...]:
        return tuple(str(one.permission) for one in self.needs)

    @property
    def at_stake(self) -> str:
        """In words."""
        return ", ".join(self.permissions) or (
            "this command" if self.call.name == "run_command" else "this call"
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """What a no is about: each permission, or else this very call."""
        return self.permissions or (f"{self.call.name} {self.subject}",)


class Decision(Struct, frozen=True):
    """`scope`: None for no.  `words`: of a no, what the model is told; of a yes, what the user said."""

    by: Decider
    scope: Scope | None = None
    words: str = ""


Record = Callable[[PermissionAnswered], object]
"""Writes a decision into the transcript.  Raises StopError where that can't be done."""


class Decisions:
    def __init__(self, tell: Callable[[AnyEvent], None], record: Record) -> None:
        self._tell = tell
        self._record = record
        self._refused: dict[str, Decision] = {}
        self._quiet: set[tuple[str, str]] = set()
        self._approved: set[str] = set()

    def forget_refusals(self) -> None:
        self._refused.clear()

    def refused(self, case: Case) -> Decision | None:
        """The no that this turn has had already."""
        return next((self._refused[key] for key in case.keys if key in self._refused), None)

    def quiet(self, case: Case) -> bool:
        """Whether the user has had enough of this rule's questions, or of doubts about this command."""
        return _asked_by(case) in self._quiet

    def approved(self, case: Case) -> bool:
        """Whether the user lets this very command through in this session."""
        return case.subject in self._approved

    def take(self, case: Case, decision: Decision) -> Decision:
        """Write it down, tell it, remember it.  Raises StopError; then it counts for nothing."""
        self._record(_event(case, decision))
        self.tell(case, decision)
        if decision.scope is None and decision.by in (Decider.USER, Decider.NOBODY):
            self._refused.update(dict.fromkeys(case.keys, decision))
        if decision.scope is Scope.SESSION and decision.by is Decider.USER:
            if case.asks:
                self._quiet.add(_asked_by(case))
            if case.bare:
                self._approved.add(case.subject)
        return decision

    def tell(self, case: Case, decision: Decision) -> None:
        self._tell(_event(case, decision))


def _asked_by(case: Case) -> tuple[str, str]:
    """A yes to what is in doubt says nothing of other commands that are."""
    return ("", case.subject) if case.doubt else (case.rule, "")


def _event(case: Case, decision: Decision) -> PermissionAnswered:
    return PermissionAnswered(
        question=case.question,
        call_id=case.call.id,
        name=case.call.name,
        subject=case.subject,
        permissions=case.permissions,
        allowed=decision.scope is not None,
        by=decision.by.value,
        scope=decision.scope.value if decision.scope is not None else "",
        words=decision.words,
    )


def nobody_words(case: Case) -> str:
    """A no where nobody can be asked, with what would permit it."""
    ways: list[str] = []
    if case.needs:
        ways.append(" ".join(f"--allow {shlex.quote(word)}" for word in case.permissions))
    if case.asks and not case.doubt:
        ways.append(f"taking the rule ask {case.rule!r} out of the settings")
    if case.bare:
        ways.append("--sandbox unconfined")
    said = [f"not run: {case.at_stake} needs the user's word, and nobody can be asked in this run."]
    if ways:
        said.append(f"Whoever starts it can permit it by {' and '.join(ways)}.")
    if case.doubt:
        said.append(f"Rules of the settings can't tell what it does ({case.doubt}): write it more plainly.")
    said.append("Go on without it, or say in the answer what is needed and why.")
    return " ".join(said)
