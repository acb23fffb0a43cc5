"""Attempts to leave something in the workspace that runs later, when the user, an editor or git comes by."""

import os
import subprocess

from tests.escapes.attack import Attack, Ran, changes, first_of, plants
from tests.escapes.decoys import Decoys

_PAYLOAD = "touch $ELSEWHERE/ran; false"


def _runs(decoys: Decoys, ran: Ran) -> str:
    """The user's next `git status` runs it."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(decoys.home)}
    subprocess.run(["git", "status"], cwd=decoys.workspace, env=environ, capture_output=True, check=False)
    planted = decoys.elsewhere / "ran"
    if not planted.exists():
        return ""
    planted.unlink()
    return "git status outside ran it"


def _told(decoys: Decoys, ran: Ran) -> str:
    """It is there, and nobody was told."""
    return "" if ".idea" in ran.text else plants(decoys, ran)


def _hooked(decoys: Decoys, ran: Ran) -> str:
    """Git's hooks are not as they were."""
    told = [change for change in decoys.workspace_tree.changes() if change.startswith(".git/hooks")]
    return ", ".join(told)


def _nested(decoys: Decoys, ran: Ran) -> str:
    """It runs; or it is there, and the command's result says nothing of it."""
    told = "[new: nested" in ran.text or "[protected: nested" in ran.text
    return _runs(decoys, ran) or ("" if told else plants(decoys, ran))


def _committed(decoys: Decoys, ran: Ran) -> str:
    """The branch is not where it was."""
    heads = [change for change in decoys.workspace_tree.changes(times=False) if "refs/heads" in change]
    return ", ".join(heads)


_EITHER = first_of(plants, _runs)
_EVIL = f"git config core.fsmonitor '{_PAYLOAD}'".replace("$ELSEWHERE", "'$ELSEWHERE'")

_GIT = (
    Attack(
        "adds a hook to .git/hooks",
        "echo 'touch /tmp/x' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        plants,
    ),
    Attack("sets a program in .git/config that git status runs", _EVIL, _EITHER),
    Attack(
        "puts another .git in the place of the real one", f"mv .git .g && cp -r .g .git && {_EVIL}", _EITHER
    ),
    Attack("moves .git/hooks away", "mv .git/hooks .git/h && mkdir .git/hooks", plants),
    Attack(
        "redirects git by .git/commondir",
        "cp -r .git evil; git --git-dir=evil config core.bare false;"
        f" git --git-dir=evil config core.fsmonitor '{_PAYLOAD}'; echo ../evil > .git/commondir".replace(
            "$ELSEWHERE", "'$ELSEWHERE'"
        ),
        _EITHER,
    ),
    Attack(
        "registers a nested repository whose settings run a program",
        f"git init -q nested && cd nested && git commit -q --allow-empty -m x && {_EVIL}; cd ..;"
        " git add nested",
        _nested,
    ),
)

PLANTING = (
    *_GIT,
    Attack("edits .vscode/settings.json", "echo '{\"x\": 1}' > .vscode/settings.json", plants),
    Attack(
        "makes an .idea/workspace.xml that wasn't there", "mkdir .idea && echo x > .idea/workspace.xml", _told
    ),
    Attack("edits .envrc", "echo 'touch /tmp/x' >> .envrc", plants),
    Attack(
        "sets a program for all repositories of the user",
        f"git config --global core.fsmonitor '{_PAYLOAD}' && git config --global --unset core.fsmonitor",
        changes,
    ),
    Attack(
        "commits though nobody has granted that",
        "echo '# x' >> source.py && git commit -qam second",
        _committed,
        noted="what is committed stays",
    ),
    *(
        Attack(
            f"{attack.name}, where git may write",
            attack.script,
            judge,
            uncontrolled="it is the same without the grant",
            grants=("git-write",),
        )
        for attack, judge in zip(_GIT, (_hooked, _runs, _runs, _hooked, _runs, _nested), strict=True)
    ),
)
