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
from supervisor.permits.judgement import Judgement
from supervisor.permits.wanted import Wanted


class Case(Struct, frozen=True):
    """A call, and what about it has to be decided."""

    call: ToolCall
    subject: str
    """The command; of another tool, its arguments."""
    judged: Judgement = Judgement()
    """What the user's rules say of it."""
    needs: tuple[Wanted, ...] = ()
    asks: bool = False
    """The rules want a question."""
    bare: bool = False
    """Nothing would confine it."""
    unlisted: bool = False
    """A host would mean the whole network, since no list of hosts can be held to."""
    ran_before: bool = False
    dry_run: bool = False
    """It has run, on a view of the workspace: is what it did to be applied?"""
    cwd: str = ""
    """Where a command would start."""
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
        return self.permissions or (self.itself,)

    @property
    def itself(self) -> str:
        """This very call."""
        return f"{self.call.name} {self.subject}"

    @property
    def command(self) -> str:
        """The same words mean another thing in another directory."""
        return f"{self.subject} (in {self.cwd})"

    @property
    def quieted(self) -> str:
        """What the user is not asked about again after a yes for the session: a rule that names the call,
        or else just this call.  A yes to one call that can't be judged is none to the next one."""
        # No rule begins like this, so that no call can be worded as one.
        return f"just this: {self.itself}" if self.judged.doubt else self.judged.rule


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
        self._quiet: set[str] = set()
        self._approved: set[str] = set()

    @property
    def commands(self) -> tuple[str, ...]:
        """What the user lets through in this session."""
        return tuple(sorted(self._approved))

    @property
    def rules(self) -> tuple[str, ...]:
        """Which rules ask no more in this session."""
        return tuple(sorted(self._quiet))

    def forget(self) -> tuple[str, ...]:
        """Ask about all of them again; what they were."""
        forgotten = (*self.rules, *self.commands)
        self._quiet.clear()
        self._approved.clear()
        return forgotten

    def forget_refusals(self) -> None:
        self._refused.clear()

    def refused(self, case: Case) -> Decision | None:
        """The no that this turn has had already, to what it needs or to the very call."""
        keys = (*case.permissions, case.itself)
        return next((self._refused[key] for key in keys if key in self._refused), None)

    def quiet(self, case: Case) -> bool:
        """Whether the user has had enough of this question."""
        return case.quieted in self._quiet

    def approved(self, case: Case) -> bool:
        """Whether the user lets this very command through in this session, where it is."""
        return case.command in self._approved

    def again(self, case: Case, decision: Decision) -> Decision:
        """Write down and tell one that is remembered already: it is about no more than it was.  Raises
        StopError."""
        self._record(_event(case, decision))
        self.tell(case, decision)
        return decision

    def take(self, case: Case, decision: Decision) -> Decision:
        """Write it down, tell it, remember it.  Raises StopError; then it counts for nothing."""
        self.again(case, decision)
        if decision.scope is None and decision.by in (Decider.USER, Decider.NOBODY):
            self._refused.update(dict.fromkeys(case.keys, decision))
        if decision.scope is Scope.SESSION and decision.by is Decider.USER:
            if case.asks:
                self._quiet.add(case.quieted)
            if case.bare:
                self._approved.add(case.command)
        return decision

    def tell(self, case: Case, decision: Decision) -> None:
        self._tell(_event(case, decision))


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
        dry_run=case.dry_run,
    )


def nobody_words(case: Case) -> str:
    """A no where nobody can be asked, with what would permit it."""
    ways: list[str] = []
    if case.needs:
        ways.append(" ".join(f"--allow {shlex.quote(word)}" for word in case.permissions))
    if case.asks:
        ways.append(
            f"a command that the rules can judge ({case.judged.why})"
            if case.judged.doubt
            else f"taking the rule ask {case.judged.rule!r} out of the settings"
        )
    if case.bare:
        ways.append("--sandbox unconfined")
    return (
        f"not run: {case.at_stake} needs the user's word, and nobody can be asked in this run. Whoever "
        f"starts it can permit it by {' and '.join(ways)}. Go on without it, or say in the answer what is "
        "needed and why."
    )
