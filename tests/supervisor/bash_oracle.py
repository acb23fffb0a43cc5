"""Commands made up at random, and bash itself as the witness of what they run.

Programs are stand-ins that write their name into a file; nothing else is on PATH.  A redirection needs no
program, and `> /x` is soon made up: Landlock keeps commands to a directory of their own.
"""

import os
import random
import signal
import subprocess
import threading
from pathlib import Path

from protocol.policy import Rung, SandboxPolicy
from worker.sandbox import landlock, prctl

STAND_INS = ("ls", "cat", "rm", "curl")
REAL = ("env", "xargs", "timeout", "nohup", "nice", "find")
SECONDS = 2.0
"""A made-up loop may have no end.  What it has run by then has been seen."""

_TOKENS = (
    "ls", "rm", "cat", "echo", "curl", "x", "rm x", "'", '"', "`", "$(", ")", "(", "{ ", "; }", "}", ";",
    "\n", " ", " ", "|", "&", "&&", "||", "\\", "\\\n", " \\\n", "#", "!", "=", "x=", "$x", "${x:-", "$((",
    "))", "<(", ">(", "<<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "\tE\n", "<<<", "> o", ">", "<", "2>&1",
    "/dev/null", "[[ ", " ]]", "if ", "; then ", "; fi", "for x in a; do ", "; done", "case x in x) ",
    ";; esac", "f() {", "sh -c '", 'bash -c "', "eval ", "env ", "| xargs ", "command ", "exec ", "time ",
    "*", "?", "[", "]", "$'", "\\'", '\\"', "\\`", "\\$", "\\\\", '$"', "~", "\t", "@P}", "${!x}",
    "a[$(rm x)]", "-eq", "x[0]=", "((", ",", "{r,}m", "trap '", "EXIT", "coproc ", "é", "$@", "function f ",
    "do", "in", "<&3", "&>", "|&", "+=", "$[",
)  # fmt: skip
_SIMPLE = (
    "ls", "ls -la", "cat a", "echo a", "rm x", "curl x", "echo '$(rm x)'", 'echo "a  b"', "echo $x",
    "echo *.c", "cat a 2>&1", "ls > /dev/null", "echo \\$\\(rm x\\)", "echo 'it'\\''s'", 'echo "\\`"',
    "x=ls", "echo a#b", "echo $((6*7))", "echo {a,b}", "[[ -n a ]]", "[ a = b ]", ":", "true",
)  # fmt: skip
_AROUND = (
    "echo \"${{x:-'$({})'}}\"", "echo ${{x:-'{}'}}", 'echo "${{x:-\"$({})\"}}"', "echo ${{x/a/$({})}}",
    "{}; {}", "{} && {}", "{} | {}", "{} & {}", "{}\n{}", "! {}", "( {}; {} )", "{{ {}; }}", "echo $({})",
    'echo "$({}) b"', "echo `{}`", "cat <({})", "cat <<E\n$({})\nE", "cat <<'E'\n{}\nE\n{}",
    "cat <<E\n`{}`\nE", "if {}; then {}; fi", "for x in a b; do {}; done", "while {}; do {}; break; done",
    "case a in a) {};; esac", "f() {{ {}; }}; f", "echo ${{x:-$({})}}", 'cat <<< "$({})"', "x=$({}); {}",
    "env {}", "sh -c '{}'", "eval {}", "echo a | xargs {}", "timeout 5 {}", "command {}", "time {}",
    "nohup {}", "echo '{}'", "{} # {}", "{} \\\n{}", 'echo "{}"', "x={} {}", "trap '{}' EXIT", "{} > o",
    "cat <<E | {}\na\nE", "cat <<-E\n\t$({})\n\tE\n{}", "echo $(( $({}) + 1 ))", "a=($({}))",
    "find . -maxdepth 0 -exec {} \\;", "[[ -n $({}) ]]", "echo $'{}'",
)  # fmt: skip


def made_up(source: random.Random) -> str:
    """A command: parts put into each other, then perhaps a token more or a character less."""
    command = _nested(source, source.randint(0, 3))
    for _ in range(source.choice((0, 0, 1, 1, 2, 4))):
        at = source.randint(0, len(command))
        if source.random() < 0.7:
            command = command[:at] + source.choice(_TOKENS) + command[at:]
        else:
            command = command[:at] + command[at + 1 :]
    if source.random() < 0.1:
        command = "".join(source.choice(_TOKENS) for _ in range(source.randint(1, 12)))
    return command


def _nested(source: random.Random, depth: int) -> str:
    if depth == 0:
        return source.choice(_SIMPLE)
    around = source.choice(_AROUND)
    inside = [_nested(source, source.randint(0, depth - 1)) for _ in range(around.count("{}"))]
    return around.format(*inside)


class Witness:
    """Runs commands in `place` and tells which programs they ran."""

    def __init__(self, place: Path) -> None:
        self._programs = place / "programs"
        self._work = place / "work"
        self._seen = place / "seen"
        self._seen.mkdir()
        self._count = 0
        for directory in (self._programs, self._work):
            directory.mkdir()
        for name in STAND_INS:
            program = self._programs / name
            program.write_text(f"#!/bin/sh\necho {name} >> $SEEN\n")
            program.chmod(0o755)
        for name in REAL:
            (self._programs / name).symlink_to(f"/usr/bin/{name}")
        for name in ("sh", "bash"):
            (self._programs / name).symlink_to("/bin/bash")
        system = ("/usr", "/bin", "/lib", "/lib64", "/etc")
        policy = SandboxPolicy(workspace=str(place.resolve()), readable=system)
        abi = landlock.version()
        rights = landlock.handled(abi)
        given = landlock.rules(policy, Rung.LANDLOCK, rights)
        self._walls = landlock.Ruleset(rights, given, abi=abi, scopes=landlock.SCOPE_SIGNAL)

    def ran(self, command: str) -> set[str]:
        """The names of the stand-ins that bash runs for this command."""
        self._count += 1  # what a command left behind in the background must not be taken for the next one's
        seen = self._seen / str(self._count)
        seen.touch()
        # What a thread has entered it can't leave, so each command has one that ends with it.
        thread = threading.Thread(target=self._run, args=(command, seen))
        thread.start()
        thread.join()
        return set(seen.read_text().split())

    def _run(self, command: str, seen: Path) -> None:
        prctl.gain_no_privileges()
        self._walls.enter()
        with subprocess.Popen(
            ["/bin/bash", "-c", command],
            cwd=self._work,
            env={"PATH": str(self._programs), "LC_ALL": "C.UTF-8", "SEEN": str(seen)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as child:
            try:
                # What goes on in the background holds the pipe, so its end is the end of all.
                child.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
