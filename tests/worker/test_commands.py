"""run_command: bash with the script's very bytes, where it starts and ends, and what its end is called."""

import os
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from protocol.policy import Limit, Limits
from protocol.wire import Status
from tests.worker.command_desk import CommandDesk, command_desk
from worker.call import ToolError
from worker.processes.tree import below


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[CommandDesk]:
    with command_desk(tmp_path) as made:
        yield made


def pids_with(mark: str) -> list[int]:
    """Processes other than this one that have these bytes in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def all_descriptors() -> list[int]:
    """Take all that may still be opened."""
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        return taken


# --- the script ---------------------------------------------------------------------------------------

HARD = r"""true | true; { echo braces; }
cat <<'MY-MARK'
it's $HOME `x` \! !! "q"
MY-MARK
echo 'a!b' "c\$d" $((1+1))
printf '%s\n' "$(cat <<'E'
inner 'quote'
E
)"
"""


def test_quotes_heredocs_braces_and_exclamation_marks_reach_bash_untouched(desk: CommandDesk) -> None:
    assert desk.run(HARD).text == "braces\nit's $HOME `x` \\! !! \"q\"\na!b c$d 2\ninner 'quote'"


def test_a_heredoc_of_200_kb_is_a_command_like_any_other(desk: CommandDesk) -> None:
    body = "\n".join(["x" * 199] * 1000)
    assert desk.run(f"wc -c <<'EOF'\n{body}\nEOF\n").text == "200000"


def test_a_command_that_is_too_long_is_refused_with_both_sizes(desk: CommandDesk) -> None:
    with pytest.raises(ToolError, match=r"4,194,305 bytes; at most 4,194,304") as refused:
        desk.run("#" * (4 * 1024 * 1024 + 1))
    assert refused.value.status is Status.REFUSED
    assert desk.run("#" * (4 * 1024 * 1024)).status is Status.DONE


@pytest.mark.parametrize(("command", "word"), [("echo a\0b", "NUL"), ("echo \ud800", "surrogate")])
def test_what_bash_can_t_be_given_is_refused(desk: CommandDesk, command: str, word: str) -> None:
    with pytest.raises(ToolError, match=word):
        desk.run(command)


def test_bash_counts_the_lines_of_the_script_from_one(desk: CommandDesk) -> None:
    assert "bash: line 2: no-such-program: command not found" in desk.run("true\nno-such-program").text
    assert "line 3: syntax error" in desk.run("true\nif true\n").text


def test_a_trace_shows_the_script_and_nothing_of_ours(desk: CommandDesk) -> None:
    text = desk.run("set -x\necho one\nfalse").text
    assert text.split("\n") == ["++ echo one", "one", "++ false", "exit code 1"]
    assert desk.run("set -ex; cd /; exit 3").text.split("\n") == ["++ cd /", "++ exit 3", "exit code 3"]
    assert desk.run("pwd").text == "/"


def test_neither_script_nor_plumbing_is_seen_by_what_runs(desk: CommandDesk) -> None:
    text = desk.run("ls /proc/self/fd; set | grep -c POLIER_S; echo $#$0").text
    assert text.split() == ["0", "1", "2", "3", "0", "0bash"]


def test_a_desk_that_refuses_commands_says_why(desk: CommandDesk) -> None:
    desk.desk.refuse_commands = "the kernel has no Landlock"
    with pytest.raises(ToolError, match="the kernel has no Landlock") as refused:
        desk.run("true")
    assert refused.value.status is Status.REFUSED


# --- surroundings -------------------------------------------------------------------------------------


def test_the_environment_is_the_policy_s_and_ours_and_nothing_else(
    desk: CommandDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-secret")
    monkeypatch.setenv("EDITOR", "vim")
    found = dict(line.split("=", 1) for line in desk.run("env").text.splitlines())

    assert set(found) == {
        *("PATH", "HOME", "PWD", "SHLVL", "_", "TMPDIR", "POLIER_CALL", "POLIER_OUTPUT", "TERM", "PAGER"),
        *("GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER", "GIT_TERMINAL_PROMPT", "EDITOR", "VISUAL", "GIT_EDITOR"),
        *("GIT_SEQUENCE_EDITOR", "PIP_NO_INPUT", "DEBIAN_FRONTEND"),
    }
    assert (found["TERM"], found["POLIER_OUTPUT"]) == ("dumb", str(desk.output))
    assert found["TMPDIR"] == desk.desk.policy.tmp


def test_no_start_file_is_read(tmp_path: Path) -> None:
    for name in (".bashrc", ".bash_profile", ".profile", "named"):
        (tmp_path / name).write_text("echo a start file was read\n")
    with command_desk(tmp_path) as desk:
        environment = (
            *desk.desk.policy.environment,
            ("BASH_ENV", str(tmp_path / "named")),
            ("SHELLOPTS", "noexec"),
        )
        desk.desk.policy = structs.replace(desk.desk.policy, environment=environment)
        assert desk.run("echo only this").text == "only this"


@pytest.mark.parametrize(
    ("command", "code", "word"),
    [
        ("cat", 0, "no output"),
        ('read x; echo "got:$x"', 0, "got:"),
        ("cat </dev/tty", 1, "/dev/tty"),
        ('sh -c "$EDITOR notes.txt"', 1, "there is no editor here"),
        ("git --paginate help -a | tail -n 1 | wc -l", 0, "1"),
        ("less /etc/passwd", 0, "root"),
    ],
)
def test_a_command_that_wants_a_person_ends_at_once(
    desk: CommandDesk, command: str, code: int, word: str
) -> None:
    began = time.monotonic()
    outcome = desk.run(command, timeout=10)

    assert time.monotonic() - began < 2
    assert word in outcome.text
    assert code == 0 or outcome.text.endswith(f"exit code {code}")


def test_a_password_prompt_and_git_s_editor_fail_instead_of_waiting(desk: CommandDesk) -> None:
    asked = desk.run(f'{sys.executable} -I -c "import getpass; getpass.getpass()"', timeout=10)
    edited = desk.run(
        "git init -q g && cd g && git -c user.name=t -c user.email=t@example.invalid commit --allow-empty",
        timeout=10,
    )

    assert "EOFError" in asked.text
    assert asked.text.splitlines()[-1] == "exit code 1"
    assert "there is no editor here" in edited.text
    assert edited.text.splitlines()[-1] == "exit code 1"


def test_a_command_has_a_session_and_a_group_of_its_own(desk: CommandDesk) -> None:
    # In /proc/PID/stat: the process, its parent, its group, its session, its terminal.
    pid, group, session, terminal = desk.run("echo $$ $(cut -d' ' -f5-7 /proc/$$/stat)").text.split()
    assert pid == group == session
    assert int(session) != os.getsid(0)
    assert terminal == "0"


# --- where it starts and ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        ("cd sub", "sub"),
        ("cd sub; exit 3", "sub"),
        ("set -e; cd sub; false; cd ..", "sub"),
        ("f() { cd sub; exit; }; f", "sub"),
        ("trap 'echo mine' EXIT; cd sub", "sub"),
        ("exec >/dev/null 2>&1; cd sub", "sub"),
        ("set -euo pipefail; cd sub", "sub"),
        ("cd sub; kill -TERM $$", "sub"),
        ("(cd sub); true", "."),
        ("cd sub; exec true", "."),
        ("cd sub & wait", "."),
        ("cd nowhere", "."),
        ("cd 'odd\nname '", "odd\nname "),
        ("cd link", "sub"),
    ],
)
def test_cd_lasts_until_the_next_command(desk: CommandDesk, command: str, ends: str) -> None:
    (desk.workspace / "sub").mkdir()
    (desk.workspace / "odd\nname ").mkdir()
    (desk.workspace / "link").symlink_to("sub")
    desk.run(command)

    assert desk.desk.cwd == (desk.workspace / ends).resolve()
    assert desk.run("pwd").text == str((desk.workspace / ends).resolve())


def test_a_script_s_own_descriptors_are_its_own(desk: CommandDesk) -> None:
    for number in (3, 9, 10, 11, 12, 63, 200, 201, 255):
        desk.run(f"exec {number}>f{number}; echo mine >&{number}; [ {number} = 9 ] || exit 3")
        assert (desk.workspace / f"f{number}").read_text() == "mine\n"


def test_a_directory_that_is_gone_is_named_and_the_workspace_takes_its_place(desk: CommandDesk) -> None:
    (desk.workspace / "sub").mkdir()
    desk.run("cd sub")
    (desk.workspace / "sub").rmdir()
    outcome = desk.run("pwd")

    assert outcome.text == (
        f"[{desk.workspace}/sub is gone; this command started in {desk.workspace}]\n{desk.workspace}"
    )


def test_a_directory_that_the_command_itself_removed_leaves_the_old_one(desk: CommandDesk) -> None:
    assert desk.run("mkdir gone; cd gone; rmdir ../gone").status is Status.DONE
    assert desk.desk.cwd == desk.workspace


def test_a_workspace_that_is_gone_is_an_error_in_words(desk: CommandDesk) -> None:
    desk.workspace.rmdir()
    with pytest.raises(ToolError, match=r"bash can't be started in .*workspace: No such file"):
        desk.run("true")


# --- how it ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ("printf 'before\\n'; kill -KILL $$", Status.FAILED, "before\nkilled by SIGKILL (137)"),
        ("printf 'before\\n'; kill -TERM $$", Status.FAILED, "before\nkilled by SIGTERM (143)"),
        ("printf 'before\\n'; exit 7", Status.DONE, "before\nexit code 7"),
        ("exit 124", Status.DONE, "exit code 124"),
        ("", Status.DONE, "(no output, exit code 0)"),
        ("true", Status.DONE, "(no output, exit code 0)"),
        ("echo out; echo err >&2", Status.DONE, "out\nerr"),
    ],
)
def test_the_model_sees_how_a_command_ended(
    desk: CommandDesk, command: str, status: Status, text: str
) -> None:
    outcome = desk.run(command)
    assert (outcome.status, outcome.text) == (status, text)


def test_a_signal_that_the_shell_only_reports_is_named_too(desk: CommandDesk) -> None:
    outcome = desk.run("sh -c 'kill -SEGV $$'")
    assert outcome.status is Status.FAILED
    assert outcome.text.endswith("killed by SIGSEGV (139)")


def test_a_timeout_keeps_the_text_and_is_not_the_program_s_own_124(desk: CommandDesk) -> None:
    outcome = desk.run("echo CHECKPOINT; sleep 30", timeout=0.4)

    assert outcome.status is Status.TIMED_OUT
    words = (
        r"CHECKPOINT\ntimed out after 0\.[4-9] s; it and all that it started were ended; "
        "ask for more with `timeout`, or run it with `background`"
    )
    assert re.fullmatch(words, outcome.text)
    assert outcome.limit is Limit.WALL
    assert re.fullmatch(r"timed out in 0\.[4-9] s, 1 line", outcome.display.summary)


def test_a_cancel_keeps_the_text_and_says_after_how_long(desk: CommandDesk) -> None:
    cancelled = threading.Event()

    def say(text: str) -> None:
        if "CHECKPOINT" in text:
            cancelled.set()

    began = time.monotonic()
    outcome = desk.run("echo CHECKPOINT; sleep 30", cancelled=cancelled, say=say)

    assert time.monotonic() - began < 2
    assert outcome.status is Status.CANCELLED
    assert outcome.text.startswith("CHECKPOINT\ncancelled after ")


def test_a_timeout_ends_all_that_was_started_wherever_it_hid(desk: CommandDesk) -> None:
    mark = f"MARK_OF_TEST={os.getpid()}_hidden"
    outcome = desk.run(
        f"export {mark}; setsid sleep 61 & (setsid nohup sleep 62 &) ; "
        "(trap '' TERM; echo deaf; while :; do sleep 0.05; done) & sleep 63",
        timeout=0.5,
    )
    assert outcome.status is Status.TIMED_OUT
    assert outcome.text.startswith("deaf\n")
    assert pids_with(mark) == []


def test_a_deaf_child_without_our_mark_is_ended_though_its_parent_goes_first(desk: CommandDesk) -> None:
    (desk.workspace / "deaf.sh").write_text("trap '' TERM; echo $$ >pid; while :; do sleep 0.05; done")
    outcome = desk.run("env -i $(command -v setsid) /bin/bash deaf.sh & sleep 60", timeout=0.5)

    assert outcome.status is Status.TIMED_OUT
    assert not Path(f"/proc/{(desk.workspace / 'pid').read_text().strip()}").exists()


def test_a_program_may_clean_up_once_before_it_is_killed(desk: CommandDesk) -> None:
    outcome = desk.run("trap 'echo cleaned; exit' TERM; sleep 30 & wait", timeout=0.3)
    assert outcome.text.startswith("cleaned\ntimed out after ")
    assert outcome.text.count("cleaned") == 1


def test_a_stopped_program_is_ended_too(desk: CommandDesk) -> None:
    began = time.monotonic()
    assert desk.run("kill -STOP $$; echo never", timeout=0.3).status is Status.TIMED_OUT
    assert time.monotonic() - began < 1


def test_a_longer_time_than_is_allowed_is_cut_and_said(tmp_path: Path) -> None:
    with command_desk(tmp_path, Limits(command_seconds_max=0.3)) as desk:
        outcome = desk.run("sleep 30", timeout=5)
    assert outcome.status is Status.TIMED_OUT
    assert outcome.text.startswith("[the timeout was cut to 0.3 s, the most that is allowed]\ntimed out")


def test_a_call_leaves_no_descriptor_no_thread_and_no_zombie(desk: CommandDesk) -> None:
    desk.run("true")
    fds, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    others = {process.pid for process in below(os.getpid())}
    for command in ("true", "exit 3", "kill -9 $$", "(setsid sh -c 'exit 3' &) ; true", "seq 1 20000"):
        desk.run(command)
    with pytest.raises(ToolError):
        desk.run("\0")
    assert len(os.listdir("/proc/self/fd")) <= fds
    assert threading.active_count() <= threads  # one of an earlier test may leave meanwhile
    assert desk.desk.shells == set()
    assert os.listdir(desk.desk.policy.tmp) == []
    assert {process.pid for process in below(os.getpid())} <= others


@pytest.mark.parametrize("background", [False, True])
def test_where_descriptors_run_out_the_call_fails_in_words_and_leaves_nothing(
    desk: CommandDesk, background: bool
) -> None:
    before = os.listdir("/proc/self/fd")
    others = {process.pid for process in below(os.getpid())}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    failed = 0
    for spare in range(16):
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        filler = all_descriptors()
        try:
            for fd in filler[len(filler) - spare :]:
                os.close(fd)
            del filler[len(filler) - spare :]
            desk.run("true", background=background)
        except (ToolError, OSError):
            failed += 1
        finally:
            for fd in filler:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for job in desk.desk.jobs.values():
            job.stop()

    assert failed > 3
    assert os.listdir("/proc/self/fd") == before
    assert desk.desk.shells == set()
    assert {process.pid for process in below(os.getpid())} <= others


# --- output -------------------------------------------------------------------------------------------


def test_a_progress_bar_is_its_last_picture_and_the_file_has_every_byte(desk: CommandDesk) -> None:
    outcome = desk.run(
        r"""for i in $(seq 0 5 100); do printf '\rFetching %3d%%' $i; done; printf '\nok\r\n';"""
        r"""printf '\033[?25l\033[2K\033[1GWo\rWork\rWorking\033[?25h\n';"""
        r"""printf '\033[31mred\033[0m end\b\b\bEND\n'"""
    )
    assert outcome.text == "Fetching 100%\nok\nWorking\nred END"

    outcome = desk.run("for i in $(seq 1 9000); do printf '\\r%5d' $i; done; echo")
    (name,) = desk.opened
    assert outcome.text == (
        " 9000\n"
        f"[54,001 raw bytes; the whole output: /run/polier/output/{name}, for commands $POLIER_OUTPUT/{name}]"
    )
    assert (desk.output / name).stat().st_size == 54_001


def test_long_output_is_cut_to_its_head_and_tail_and_the_file_holds_the_whole(desk: CommandDesk) -> None:
    outcome = desk.run("seq 1 100000")
    (name,) = desk.opened
    lines = outcome.text.splitlines()

    assert len(outcome.text.encode()) <= 32_000
    assert (lines[0], lines[-1]) == ("1", "100000")
    assert f"bytes left out here; the whole output: /run/polier/output/{name}, for" in outcome.text
    assert (desk.output / name).read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
    assert desk.run(f"wc -l <$POLIER_OUTPUT/{name}").text == "100000"
    assert outcome.display.summary.endswith(" s, 100000 lines")


def test_short_output_needs_no_file(desk: CommandDesk) -> None:
    desk.run("seq 1 1000")
    assert desk.opened == []


@pytest.mark.parametrize("command", ["yes", "cat /dev/zero", "seq 1 200000000", "cat /dev/urandom"])
def test_a_flood_ends_in_time_and_stays_small(tmp_path: Path, command: str) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    with command_desk(tmp_path, Limits(grace_seconds=1.0, output_file_cap=100_000)) as desk:
        before, most = resident(), 0

        def say(text: str) -> None:
            nonlocal most
            most = max(most, resident())

        began = time.monotonic()
        outcome = desk.run(command, timeout=0.7, say=say)
        took = time.monotonic() - began

        assert (outcome.status, outcome.limit) == (Status.TIMED_OUT, Limit.WALL)
        assert took < 1.7
        assert max(most, resident()) - before < 40_000_000
        assert len(outcome.text.encode()) <= 32_000
        assert "are not in the file: the file is full" in outcome.text
        assert command == "cat /dev/zero" or "bytes left out here" in outcome.text
        assert (desk.output / desk.opened[0]).stat().st_size == 100_000


def test_a_huge_line_is_cut_in_its_middle(desk: CommandDesk) -> None:
    outcome = desk.run("printf 'begin'; head -c 300000 /dev/zero | tr '\\0' x; printf 'end'")
    assert outcome.text.startswith("beginxxx")
    assert outcome.text.endswith("xxxend")
    assert "bytes left out here" in outcome.text


def test_binary_and_torn_text_is_named(desk: CommandDesk) -> None:
    outcome = desk.run(r"printf 'a\0b\xff\n'")
    assert outcome.text == (
        "ab\ufffd\n"
        "[binary output: NUL bytes are left out above]\n"
        "[some bytes are not UTF-8: they are shown as \ufffd]"
    )


def test_what_is_printed_is_said_while_the_command_runs(desk: CommandDesk) -> None:
    def say(text: str) -> None:
        # The command goes on only when its first line has been said.
        if "first" in text:
            (desk.workspace / "go").touch()

    outcome = desk.run("echo first; until [ -e go ]; do sleep 0.02; done; echo second", timeout=10, say=say)
    assert outcome.text == "first\nsecond"
