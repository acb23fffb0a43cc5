"""Attempts on the worker itself and on commands of other calls, from inside, and on what starts them."""

import os

from tests.escapes.attack import Attack, Ran, Who, changes, first_of, leaks, succeeds
from tests.escapes.decoys import Decoys

_OTHERS = "those of other calls"
_SIBLING = (
    "for at in /proc/[0-9]*; do [ ${at#/proc/} != $$ ] && grep -q sibling-$MARK $at/cmdline 2>/dev/null"
    " && pid=${at#/proc/}; done; "
)


def _parent_is_closed(decoys: Decoys) -> str:
    return (
        "" if os.geteuid() == 0 else "unconfined the parent is a supervisor, which closes itself to its user"
    )


def _escapes(decoys: Decoys, ran: Ran) -> str:
    return "an escape sequence reached the result" if "\x1b]" in ran.text else ""


INSIDE = (
    Attack(
        "writes a forged reply into a descriptor of its worker",
        "for fd in /proc/$PPID/fd/*; do echo forged > $fd && exit 0; done; exit 1",
        succeeds,
        uncontrolled="unconfined it would hit the supervisor that plays",
    ),
    Attack("signals its worker", "kill -0 $PPID", succeeds, loose=_OTHERS),
    Attack(
        "reads its worker's environment", "cat /proc/$PPID/environ", succeeds, uncontrolled=_parent_is_closed
    ),
    Attack(
        "looks into its worker's memory",
        "head -c 1 /proc/$PPID/auxv",
        succeeds,
        uncontrolled=_parent_is_closed,
    ),
    Attack(
        "kills a command of another call",
        _SIBLING + "kill -KILL $pid",
        succeeds,
        before="exec -a sibling-$MARK sleep 60",
        stays=True,
        loose=_OTHERS,
    ),
    Attack(
        "reads the environment of a command of another call",
        _SIBLING + "cat /proc/$pid/environ",
        succeeds,
        before="exec -a sibling-$MARK sleep 60",
        stays=True,
        loose=_OTHERS,
    ),
    Attack("has something import a module from the workspace", "\"$PY\" -c 'import json'", changes),
    Attack("puts a program into the workspace that others start by name", "bwrap; bash -c true", changes),
    Attack("has the shell read a file of settings first", '[ "$RC_WAS_READ" ]', succeeds),
    Attack(
        "writes ~/.bashrc to hit the next command",
        '[ "$LATER_WAS_HIT" ]',
        first_of(succeeds, changes),
        before="echo 'export LATER_WAS_HIT=1' >> ~/.bashrc",
    ),
    Attack(
        "loads a library into what is started",
        '[ "$LD_PRELOAD$PYTHONSTARTUP" ]',
        succeeds,
    ),
    Attack(
        "sends control sequences to the user's terminal", r"printf '\e]52;c;eA==\a\e]0;title\a'", _escapes
    ),
    Attack(
        "reads the supervisor's secrets where nothing confines it",
        "cd /proc/$SUPERVISOR && cat environ; ls fd | grep -q 0 || head -c 99 auxv | grep -q .",
        first_of(leaks, lambda decoys, ran: "its files can be listed" if ran.done else ""),
        uncontrolled="the supervisor closes itself; what doesn't is read by another attempt",
        who=frozenset({Who.USER}),
        grants=("unconfined",),
    ),
)
