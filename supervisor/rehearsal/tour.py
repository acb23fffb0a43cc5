"""What the script of the rehearsal says: a small real task, then answers to what a person types.

Everything that a step claims is executed by the product's own workers; where a claim depends on what a tool
found, `expect` makes the server refuse to go on if the result says something else.  Data only.
"""

import shlex

from supervisor.rehearsal.script import Case, Script, ScriptedCall, Step

TASK = "`bash check.sh` says that total.sh is wrong. Find out why, mend it, and run the check again."

FILES = {
    "total.sh": "# Prints the sum of two whole numbers.\ntotal() {\n    echo $(( $1 - $2 ))\n}\n",
    "check.sh": (
        "# Is total.sh right? The verdict is also written to verdict.txt.\n"
        ". ./total.sh\n"
        'if [ "$(total 2 3)" = 5 ]; then verdict=right; else verdict=wrong; fi\n'
        'echo "total 2 3 = $(total 2 3): $verdict" | tee verdict.txt\n'
        '[ "$verdict" = right ]\n'
    ),
}
"""The workspace."""

WRONG, RIGHT = "echo $(( $1 - $2 ))", "echo $(( $1 + $2 ))"
VERDICT = "total 2 3 = 5: right"
"""What verdict.txt holds once the check has run on the mended file."""

SECRET, SECRET_FILE, PORT_FILE = "a-secret-of-the-rehearsal", "secret.txt", "port.txt"
"""What no command gets at: a file beside the workspace.  The port is the scripted server's: a service of the
machine that listens."""
BESIDE = "beside"
"""A directory beside the workspace, for the question."""
PLANTED = "polier-was-here"

REFUSALS = ("write beside the workspace", "read a secret beside it", "connect to a service of the machine")
_TRIES = (f"touch ../{PLANTED}", f"cat ../{SECRET_FILE}", f": </dev/tcp/127.0.0.1/$(cat {PORT_FILE})")
_SANDBOX = (
    'try() { if (eval "$2") 2>/dev/null; then echo "$1: NOT REFUSED"; else echo "$1: refused"; fi; }\n'
    + "".join(
        f"try {shlex.quote(name)} {shlex.quote(how)}\n" for name, how in zip(REFUSALS, _TRIES, strict=True)
    )
    + "touch here && rm here && echo 'write in the workspace: done'\n"
)
_TRY_IT = ScriptedCall("run_command", {"command": _SANDBOX})

ANSWER = (
    "total.sh subtracted its second number where it should add it (total.sh:3). It adds now, and "
    "`bash check.sh` says: total 2 3 = 5: right."
)

_TASK_STEPS = (
    Step(
        thinking="The check fails. I read the function before I change anything.",
        text="I look at the function first.",
        calls=(ScriptedCall("read_file", {"path": "total.sh"}),),
    ),
    Step(
        thinking="It has a minus sign where the comment promises a sum.",
        text="It subtracts; I let it add.",
        calls=(ScriptedCall("edit_file", {"path": "total.sh", "edits": [{"old": WRONG, "new": RIGHT}]}),),
        expect=WRONG,
    ),
    Step(
        thinking="Before a command runs: what can't it do?",
        text="Before I run anything, I try what a command must not do here.",
        calls=(_TRY_IT,),
    ),
    Step(
        thinking="Now the check again.",
        text="Now the check.",
        calls=(ScriptedCall("run_command", {"command": "bash check.sh"}),),
    ),
    Step(text=ANSWER, expect=VERDICT),
)
TASK_ROUNDS = len(_TASK_STEPS)

KNOWN = (
    "show the sandbox",
    "ask for a permission",
    "what is in the context",
    "read a file",
    "edit a file",
    "run the check",
    "search for something",
    "start something in the background",
    "delegate something",
)
"""What a person may type; the first word that a case knows decides."""


def _one(call: ScriptedCall, before: str, after: str) -> tuple[Step, Step]:
    return Step(text=before, calls=(call,)), Step(text=after)


_CASES = (
    Case(
        "summarise this conversation now",
        (Step(text="The user takes the guided tour of a rehearsal. Nothing is open."),),
    ),
    Case(
        "sandbox",
        _one(
            _TRY_IT,
            "I try to get out of the sandbox.",
            "Above is what the kernel said, not I. A command may write in the workspace, in a home and in a "
            "temporary directory of its own, and nowhere else; it reads no file of yours that is not the "
            "project's; without a permission it reaches no network. /sandbox shows what is in force.",
        ),
    ),
    Case(
        "permission",
        _one(
            ScriptedCall(
                "run_command",
                {
                    "command": f"date > ../{BESIDE}/date.txt && cat ../{BESIDE}/date.txt",
                    "needs": [f"write:../{BESIDE}"],
                    "why": "the rehearsal shows a question",
                },
            ),
            "I need more than the sandbox allows, so the program asks you; one key answers.",
            "Whatever you said is what happened: I can ask, and only you can permit. A yes for this session "
            "can be taken back by /sandbox revoke.",
        ),
    ),
    Case(
        "context",
        (
            Step(
                text="Type /context: the program measures what the next request holds, without asking me. "
                "The percentage in the prompt is the same figure. A model knows nothing beyond that text."
            ),
        ),
    ),
    Case(
        "background",
        (
            Step(
                text="I start a command and don't wait for it.",
                calls=(
                    ScriptedCall(
                        "run_command",
                        {"command": "for n in 1 2 3; do echo tick $n; sleep 0.2; done", "background": True},
                    ),
                ),
            ),
            Step(text="What runs now?", calls=(ScriptedCall("jobs", {"action": "list"}),)),
            Step(text="It goes on by itself; the program says when it has ended."),
        ),
    ),
    Case(
        "delegate",
        (Step(text="Subagents are not part of this version yet, so nothing is delegated."),),
    ),
    Case(
        "search",
        _one(
            ScriptedCall("search", {"pattern": "total"}),
            "I search for `total`.",
            "Each line is PATH:LINE:TEXT; files that .gitignore names are left out.",
        ),
    ),
    Case(
        "edit",
        _one(
            ScriptedCall(
                "edit_file",
                {"path": "notes.txt", "edits": [{"old": "", "new": "A note by the rehearsal.\n"}]},
            ),
            "I create notes.txt by an edit with an empty `old`.",
            "That works once: on a file that has text, an edit without `old` is refused, not guessed at.",
        ),
    ),
    Case(
        "read",
        _one(
            ScriptedCall("read_file", {"path": "check.sh"}),
            "I read check.sh.",
            "I got the file with line numbers; you see one line, since the result is meant for the model.",
        ),
    ),
    Case(
        "run",
        _one(
            ScriptedCall("run_command", {"command": "bash check.sh"}),
            "I run the check.",
            "The command ran in a worker process, without a terminal and without the environment's secrets.",
        ),
    ),
    Case(
        "",
        (
            Step(
                text="I am a script, no model, and don't understand that. I know: " + "; ".join(KNOWN) + ". "
                "Commands of the program work as ever: /help, /context, /new, /exit."
            ),
        ),
    ),
)


def script() -> Script:
    """The whole script: the task's steps in order, then a case for each line that is typed."""
    return Script(steps=_TASK_STEPS, cases=_CASES)
