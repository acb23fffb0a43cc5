"""What an attempt is: a script, how the outside tells that it got through, and what is known of it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tests.escapes.decoys import Decoys


class Who(Enum):
    ROOT = "root"
    USER = "an ordinary user"


class Rung(Enum):
    NATIVE = "full by native namespaces"
    BUBBLEWRAP = "full by bubblewrap"
    BARE = "full without Landlock"
    LANDLOCK = "landlock"
    NONE = "nothing"
    """The controls: what is tried here must get through."""


ISOLATED = frozenset({Rung.NATIVE, Rung.BUBBLEWRAP, Rung.BARE})
"""Where there are namespaces."""


@dataclass(frozen=True)
class Ran:
    """A script that has ended: what it printed, and how."""

    text: str
    done: bool
    """Exit code 0."""
    denials: tuple[str, ...] = ()


Judge = Callable[[Decoys, Ran], str]
"""What shows that an attempt got through; empty where nothing does."""

EVERYBODY = frozenset(Who)


@dataclass(frozen=True)
class Attack:
    """`script`: bash, with the variables of Decoys.  Unconfined it must get through, unless `uncontrolled`
    says (or finds out as the user who plays) why that can't be shown.  `noted`: part of a note by which the
    rung landlock says that it gets through there, `loose` the same of namespaces without Landlock.
    `prepare` and `meanwhile` are run outside, the latter again and again while the script runs; what it
    returns counts as evidence.  `before`: a script that runs earlier in the same worker, and goes on beside
    this one where it `stays`.  `grants`: permissions that its worker has."""

    name: str
    script: str
    judge: Judge
    uncontrolled: str | Callable[[Decoys], str] = ""
    noted: str = ""
    loose: str = ""
    who: frozenset[Who] = EVERYBODY
    prepare: Callable[[Decoys], None] | None = None
    meanwhile: Callable[[Decoys], str] | None = None
    before: str = ""
    stays: bool = False
    grants: tuple[str, ...] = ()
    rungs: frozenset[Rung] = frozenset(Rung)

    def note(self, rung: Rung) -> str:
        """The part of a note that must be there where it gets through; empty where it must not."""
        return {Rung.LANDLOCK: self.noted, Rung.BARE: self.loose}.get(rung, "")

    def why_uncontrolled(self, decoys: Decoys) -> str:
        return self.uncontrolled if isinstance(self.uncontrolled, str) else self.uncontrolled(decoys)


@dataclass(frozen=True)
class Work:
    """Ordinary work: the script must end with exit code 0.  `noted`: part of a note by which
    the rung landlock says that it doesn't work there, `loose` the same of
    namespaces without Landlock.  `needs`: a program that it is about."""

    name: str
    script: str
    noted: str = ""
    loose: str = ""
    needs: str = ""
    grants: tuple[str, ...] = ()

    def note(self, rung: Rung) -> str:
        return {Rung.LANDLOCK: self.noted, Rung.BARE: self.loose}.get(rung, "")


def python(code: str) -> str:
    """A script that runs this code; nothing of it needs more than the standard library."""
    return f"\"$PY\" -I -S - <<'END_OF_CODE'\nimport os, sys\nE = os.environ\n{code}\nEND_OF_CODE\n"


def nothing_below_run(decoys: Decoys) -> str:
    """Why what is aimed at /run has no control run."""
    return "" if decoys.run else "only root can put something below /run"


def changes(decoys: Decoys, ran: Ran) -> str:
    """Something outside of the workspace is not as it was."""
    return ", ".join(decoys.changes())


def leaks(decoys: Decoys, ran: Ran) -> str:
    """A secret was printed."""
    return "the secret was printed" if decoys.secret in ran.text else ""


def succeeds(decoys: Decoys, ran: Ran) -> str:
    """The script itself says whether it was let."""
    return "the kernel allowed it" if ran.done else ""


def arrives(decoys: Decoys, ran: Ran) -> str:
    """A socket outside was reached."""
    return ", ".join(f"the {name} socket was reached" for name in decoys.reached())


def harms(decoys: Decoys, ran: Ran) -> str:
    """The process outside was signalled."""
    return decoys.harmed()


def plants(decoys: Decoys, ran: Ran) -> str:
    """What later runs by itself in the workspace is not as it was."""
    return ", ".join(
        change
        for change in decoys.workspace_tree.changes(times=False)
        if change.startswith((".git", ".vscode", ".idea", ".envrc"))
    )


def first_of(*judges: Judge) -> Judge:
    def judge(decoys: Decoys, ran: Ran) -> str:
        return next((found for each in judges if (found := each(decoys, ran))), "")

    return judge
