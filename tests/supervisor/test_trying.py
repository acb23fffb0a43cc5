"""Dry runs with real commands, on each view of the workspace that can be had here."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from protocol.conversation import ToolCall
from protocol.policy import Limit
from protocol.wire import Status
from supervisor.permits.asking import Answer
from tests.escapes.attack import Rung
from tests.escapes.stages import not_here, theatre
from tests.supervisor.pool_play import family
from tests.supervisor.try_stage import DISCARD, WITHOUT, left, tree, trying
from tests.worker.ordinary import as_ordinary_user

VIEWS = [
    pytest.param(view, marks=pytest.mark.skipif(bool(why := not_here(rung)), reason=why))
    for view, rung in zip(WITHOUT, (Rung.NATIVE, Rung.BUBBLEWRAP, Rung.LANDLOCK), strict=True)
]
each_view = pytest.mark.parametrize("view", VIEWS)


def project(workspace: Path) -> None:
    """A small repository with a bit of everything."""
    (workspace / "src").mkdir()
    (workspace / "src/a.py").write_text("one\ntwo\nthree\n")
    (workspace / "src/b.py").write_text("b\n")
    (workspace / "docs/deep").mkdir(parents=True)
    (workspace / "docs/deep/page").write_text("page\n")
    (workspace / "docs/index").write_text("index\n")
    (workspace / "run.sh").write_text("echo hi\n")
    (workspace / "link").symlink_to("src/a.py")
    (workspace / ".env").write_text("SECRET=1\n")
    (workspace / "empty").mkdir()


def repository(workspace: Path) -> None:
    project(workspace)
    for words in (["init", "-q", "--template="], ["add", "src"], ["commit", "-q", "-m", "first"]):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=workspace, check=True
        )


COMMANDS = {
    "rm -rf of parts": "rm -rf docs src/b.py empty",
    "sed -i": "sed -i s/two/TWO/ src/a.py",
    "mv of a file and of a directory": "mv src/a.py src/c.py; mv docs papers",
    "ln -s and ln": "ln -sfn docs link; ln -s /etc/passwd out; ln src/a.py src/twin",
    "chmod": "chmod 755 run.sh; chmod 700 docs; chmod 444 src/b.py",
    "a directory in a file's place": "rm run.sh; mkdir run.sh; echo x > run.sh/inside",
    "a file in a directory's place": "rm -r docs; echo x > docs",
    "a directory made anew": "rm -r docs; mkdir docs; echo other > docs/index",
    "a link in a directory's place": "rm -r docs; ln -s src docs",
    "empty directories": "mkdir -p new/er/dirs; rmdir empty",
    "binary files": "printf 'a\\0b' > bin; head -c 300000 /dev/zero > zeros",
    "odd names": (
        "touch -- $'a\\nb' '-rf' ' blank ' $'\\xff\\xfe' \"it's\" 'é'; mkdir $'d\\n'; echo x > $'d\\n/f'"
    ),
    "a pipe": "mkfifo pipe",
    "a new repository": "git init -q sub; echo x > sub/file",
    "a sparse file": "truncate -s 5M sparse; chmod 600 sparse",
    "a command that fails": "echo half > half; exit 3",
    "closed files and directories": (
        "echo x > closed; chmod 0 closed; mkdir shut dark; echo y > shut/in; chmod 0500 shut; chmod 0 dark"
    ),
}


@each_view
async def test_what_is_applied_is_what_the_commands_do(tmp_path: Path, view: str) -> None:
    def projects(workspace: Path) -> None:
        for number in range(len(COMMANDS)):
            project(_made(workspace / f"p{number}"))

    projects(_made(tmp_path / "plain"))
    # All in one run, each in a project of its own: a worker's birth costs more than any of them.
    each = (f"(cd p{number}; {command})" for number, command in enumerate(COMMANDS.values()))
    script = f"umask 022; {'; '.join(each)}"
    await trio.run_process(["bash", "-c", script], cwd=tmp_path / "plain", check=False)
    async with trying(tmp_path, view, prepare=projects) as stage:
        untouched = tree(stage.workspace)
        told = await stage.play(script, DISCARD)
        assert "the user discarded this" in told.text
        assert tree(stage.workspace) == untouched
        told = await stage.play(script)
        assert "it was applied" in told.text, told.text
        for number, name in enumerate(COMMANDS):
            assert sources(stage.workspace / f"p{number}") == sources(tmp_path / f"plain/p{number}"), name
    assert left(stage.site) == []


def sources(root: Path) -> dict[str, tuple[str, int, str]]:
    """Without a repository that was made, whose files differ by the user's configuration."""
    return {path: found for path, found in tree(root).items() if ".git" not in path.split("/")}


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@each_view
async def test_git_works_on_files_while_the_repository_stays_as_it_is(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view, prepare=repository) as stage:
        (stage.workspace / "src/a.py").write_text("spoilt\n")
        before = {path: found for path, found in tree(stage.workspace).items() if path.startswith(".git/")}
        told = await stage.play("git show HEAD:src/a.py > src/a.py; rm -rf .git; echo x > .git/config")
        assert (stage.workspace / "src/a.py").read_text() == "one\ntwo\nthree\n"
    assert ".git/" not in "".join(stage.judge.shown[0].lines)
    assert "changed: src/a.py" in told.text
    assert {
        path: found for path, found in tree(stage.workspace).items() if path.startswith(".git/")
    } == before


@each_view
async def test_hidden_files_stay_hidden_and_where_they_are(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:
        told = await stage.play("cat .env; cp .env copy; echo X > .env; rm -f .env; touch more")
        assert (stage.workspace / ".env").read_text() == "SECRET=1\n"
    assert "SECRET" not in told.text
    assert all("SECRET" not in path.read_text() for path in stage.workspace.glob("copy"))


@each_view
async def test_the_user_sees_and_the_model_reads_what_changed(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:
        told = await stage.play(
            "sed -i s/two/TWO/ src/a.py; rm run.sh; chmod +x src/b.py; cd src; printf 'a\\0' > x"
        )
        (effects,) = stage.judge.shown
        assert stage.pool.cwd == str(stage.workspace)
    assert effects.counts == "1 created, 1 changed, 1 mode changed, 1 deleted"
    assert set(effects.lines) == {
        "deleted: run.sh, 8 bytes",
        "changed: src/a.py, 14 bytes",
        "mode changed: src/b.py, 2 bytes, mode 0644 -> 0755",
        "created: src/x, 2 bytes",
    }
    assert "= src/a.py  changed +1 -1\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three" in effects.diff
    assert "= src/x  created, binary: 0 -> 2 bytes" in effects.diff
    assert effects.counts in told.text
    assert effects.diff in told.text
    assert told.display.summary.endswith(f"; {effects.counts}; applied")
    assert (told.display.diff, stage.applied) == ("", f"applied: {effects.counts}")


@pytest.mark.parametrize("view", VIEWS[:1])
async def test_ten_thousand_files_are_applied_and_the_result_stays_short(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view) as stage:
        told = await stage.play(
            'mkdir d{1..100}; for i in d*; do for j in {1..100}; do printf "%s\\n" {1..9} > $i/$j; done; done'
        )
        again = await stage.play("rm -rf d*")
    assert "10,100 created" in told.text
    assert "more file" in told.text
    assert "and 10,040 more" in told.text
    assert "10,100 deleted" in again.text
    assert max(len(told.text.encode()), len(again.text.encode())) < 32_000
    assert tree(stage.workspace) == {}


@each_view
async def test_long_output_leaves_room_for_what_changed(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view) as stage:
        told = await stage.play("seq 20000; seq 20000 > numbers")
    assert len(told.text.encode()) <= 32_000
    assert "created: numbers" in told.text
    assert "it was applied" in told.text


@each_view
async def test_without_a_change_nobody_is_asked(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:
        told = await stage.play("touch run.sh; cat src/a.py; cp run.sh x; rm x; chmod 644 src/b.py")
    assert stage.judge.shown == []
    assert "no file of the workspace was changed" in told.text
    assert told.display.summary.endswith("; no changes")


@each_view
@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda w: (w / "src/a.py").write_text("mine\n"), "src/a.py"),
        (lambda w: (w / "src/a.py").unlink(), "src/a.py"),
        (lambda w: (w / "src/new").write_text("mine\n"), "src/new"),
        (lambda w: (w / "docs/mine").write_text("mine\n"), "docs"),
        (lambda w: (w / "run.sh").chmod(0o600), "run.sh"),
        (lambda w: (w / "src").rename(w / "moved"), "src/a.py"),
        (lambda w: ((w / "src").rename(w / "moved"), (w / "src").symlink_to("moved")), "src/a.py"),
    ],
)
async def test_a_workspace_that_changed_underneath_stays_as_it_is(
    tmp_path: Path, view: str, spoil: Callable[[Path], object], named: str
) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:
        spoilt: list[dict[str, tuple[str, int, str]]] = []

        def meanwhile() -> None:
            spoil(stage.workspace)
            spoilt.append(tree(stage.workspace))

        stage.judge.before_answering = meanwhile
        told = await stage.play("echo x >> src/a.py; echo y > src/new; rm -r docs; chmod +x run.sh")
        assert tree(stage.workspace) == spoilt[0]
    assert told.status is Status.FAILED
    assert "nothing was applied" in told.text
    assert named in told.text
    assert "changed by someone else" in told.text
    assert told.display.summary.endswith("not applied")


@each_view
async def test_a_file_that_changes_while_the_command_runs_is_told_before_anybody_is_asked(
    tmp_path: Path, view: str
) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:

        async def meanwhile() -> None:
            while "begun\n" not in stage.site.said:
                await trio.sleep(0.01)
            (stage.workspace / "src/a.py").write_text("mine\n")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(meanwhile)
            told = await stage.play("echo y > src/other; sed -i s/two/x/ src/a.py; echo begun; sleep 0.5")
        assert (stage.workspace / "src/a.py").read_text() == "mine\n"
    assert stage.judge.shown == []
    assert "src/a.py was changed by someone else while the command ran" in told.text


@each_view
async def test_where_nobody_can_be_asked_it_is_discarded(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:
        before = tree(stage.workspace)
        told = await stage.play("rm -rf src", None)
        assert tree(stage.workspace) == before
    assert "nobody can be asked in this run" in told.text
    assert "run the command without dry_run" in told.text
    assert "-three" in told.display.diff


@each_view
async def test_a_no_reaches_the_model_with_the_user_s_words(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:
        told = await stage.play("rm -rf src", Answer(None, "keep the sources"))
    assert "the user discarded this, the workspace is as it was: keep the sources" in told.text


@each_view
async def test_what_a_command_leaves_running_ends_and_a_limit_is_told(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view) as stage:
        told = await stage.play("echo x > x; sleep 60 & sleep 60", timeout=0.5)
    assert (told.status, told.limit) == (Status.TIMED_OUT, Limit.WALL)
    assert "created: x" in told.text
    assert (stage.workspace / "x").read_text() == "x\n"


@each_view
async def test_an_interrupt_leaves_the_workspace_and_nothing_else(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view, prepare=project) as stage:
        before = tree(stage.workspace)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.play, "rm -rf src; echo begun; sleep 60")
            while "begun\n" not in stage.site.said:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert tree(stage.workspace) == before
        assert left(stage.site) == []
        assert (await stage.play("echo x > x")).status is Status.DONE


@pytest.mark.parametrize("view", VIEWS[1:])
async def test_a_workspace_that_is_too_large_to_copy_is_refused_with_both_figures(
    tmp_path: Path, view: str
) -> None:
    def large(workspace: Path) -> None:
        (workspace / "large").write_bytes(b"x" * 5000)

    async with trying(tmp_path, view, most_bytes=4000, prepare=large) as stage:
        told = await stage.play("rm large")
        assert (stage.workspace / "large").exists()
    assert told.status is Status.REFUSED
    assert "more than 4,000 bytes" in told.text
    assert "5,000 in the first 1" in told.text
    async with trying(tmp_path, view, most_files=2, prepare=project_again) as stage:
        assert "more than 2 files and directories" in (await stage.play("rm large")).text


def project_again(workspace: Path) -> None:
    for number in range(3):
        (workspace / str(number)).touch()


@each_view
async def test_a_hard_link_within_the_copy_never_reaches_the_workspace(tmp_path: Path, view: str) -> None:
    def twins(workspace: Path) -> None:
        (workspace / "one").write_text("1\n")
        os.link(workspace / "one", workspace / "two")

    async with trying(tmp_path, view, prepare=twins) as stage:
        await stage.play("echo 2 > one", DISCARD)
        assert (stage.workspace / "two").read_text() == "1\n"
        await stage.play("rm two; ln run run2 || { echo r > run; ln run run2; }")
        assert os.path.samefile(stage.workspace / "run", stage.workspace / "run2")


@each_view
async def test_times_of_files_are_kept(tmp_path: Path, view: str) -> None:
    async with trying(tmp_path, view) as stage:
        await stage.play("echo x > x; touch -d 2001-02-03T04:05:06Z x")
    assert (stage.workspace / "x").stat().st_mtime == 981173106


@each_view
async def test_a_directory_that_is_closed_is_written_in_and_closed_again(tmp_path: Path, view: str) -> None:
    def closed(workspace: Path) -> None:
        (workspace / "shut").mkdir()
        (workspace / "shut").chmod(0o555)

    async with trying(tmp_path, view, prepare=closed) as stage:
        told = await stage.play("chmod 755 shut; echo x > shut/x; chmod 555 shut")
    assert "it was applied" in told.text, told.text
    assert tree(stage.workspace) == {"shut": ("directory", 0o555, ""), "shut/x": ("file", 0o644, "x\n")}


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.03, 0.06])
async def test_a_worker_killed_while_it_applies_leaves_whole_files(tmp_path: Path, seconds: float) -> None:
    def many(workspace: Path) -> None:
        for number in range(500):
            (workspace / str(number)).write_text("old" * 100)

    async with trying(tmp_path, prepare=many) as stage:
        scope = trio.CancelScope()

        async def kill() -> None:
            with scope:
                while not stage.judge.shown:
                    await trio.sleep(0.001)
                known = set(_workers())
                while not (fresh := set(_workers()) - known):
                    await trio.sleep(0.001)
                await trio.sleep(seconds)
                for pid in fresh:
                    with contextlib.suppress(ProcessLookupError):  # it was faster
                        os.kill(pid, signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            await stage.play("for i in *; do printf 'new%.0s' {1..100} > $i; done")
            scope.cancel()
    contents = {
        path.read_text() for path in stage.workspace.iterdir() if not path.name.startswith(".polier-")
    }
    assert contents <= {"old" * 100, "new" * 100}
    assert len([path for path in stage.workspace.iterdir() if path.name.isdigit()]) == 500


def _workers() -> list[int]:
    return family()[1:]


async def test_the_model_can_t_name_a_chore_and_a_worker_without_a_view_refuses(tmp_path: Path) -> None:
    async with trying(tmp_path) as stage:
        told = await stage.site.play(stage.pool, "true")
        assert told.status is Status.DONE
        results: list[object] = []
        call = ToolCall("c", "run_command", '{"command": "touch x", "dry_run": true}')
        await stage.pool.run(call, results.append, lambda _: None)
    assert "there is no view of the workspace" in str(results[0])
    assert not (stage.workspace / "x").exists()


@each_view
def test_an_ordinary_user_has_the_same(tmp_path: Path, view: str) -> None:
    """Root's tests play one in a fork, with an interpreter that he can run."""

    def fill(workspace: Path) -> None:
        for name in ("d/in", "e/in"):
            (workspace / name).mkdir(parents=True)
        (workspace / "f").write_text("f\n")

    async def play() -> str:
        async with trying(root / "own", view, prepare=fill) as stage:
            again = await stage.play("rm -rf e; echo y > y; mkdir shut; chmod 0 shut", DISCARD)
            told = await stage.play(
                "id -u; rm -rf d; echo x > e/x; chmod 0 f; mkdir dark; chmod 0 dark; ln -s / all"
            )
            found = sorted(str(path.relative_to(stage.workspace)) for path in stage.workspace.rglob("*"))
            return f"{told.text}\n{again.text}\n{found}\n{left(stage.site)}"

    def run() -> str:
        os.umask(0o022)
        sys.executable = interpreter
        return trio.run(play)

    with theatre() as stage:
        root = stage.root / "ordinary"
        root.mkdir()
        root.chmod(0o777)
        interpreter = stage.interpreter() if os.geteuid() == 0 else sys.executable
        told = as_ordinary_user(run, apart=True)
    assert "it was applied" in told, told
    assert "the user discarded this" in told, told
    assert told.endswith("['all', 'dark', 'e', 'e/in', 'e/x', 'f']\n[]"), told
