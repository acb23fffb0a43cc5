"""What a command does to files that others act on later is undone, taken away or told."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from protocol.policy import Rung, SandboxPolicy
from supervisor.pool.zygote import Launch
from tests.supervisor.pool_play import CHECKOUT, Site
from worker.sandbox.gitfiles import gitlinks, programs
from worker.sandbox.restore import Keeper

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
LONG = "c" * 200 + "/" + "d" * 200
EVIL = "[core]\n\tfsmonitor = touch /tmp/evil\n"


class Place:
    """A workspace, and a keeper around what is done to it."""

    def __init__(self, root: Path) -> None:
        self.root, self.tmp = root.resolve() / "ws", root.resolve() / "tmp"
        self.root.mkdir()
        self.tmp.mkdir()
        self.rung = Rung.LANDLOCK
        self.changes: dict[str, tuple[str, ...]] = {}
        self._keeper: Keeper | None = None

    @property
    def policy(self) -> SandboxPolicy:
        names = (".git", ".vscode", ".envrc")
        protected = tuple(str(self.root / name) for name in names if (self.root / name).exists())
        policy = SandboxPolicy(str(self.root), tmp=str(self.tmp), protected=protected)
        return replace(policy, **self.changes)

    @property
    def keeper(self) -> Keeper:
        if self._keeper is None:
            self._keeper = Keeper(self.policy, self.rung)
        return self._keeper

    def play(self, script: str, *, jobs_run: bool = False) -> str:
        self.keeper.before(jobs_run=jobs_run)
        subprocess.run(["bash", "-ec", script], cwd=self.root, check=True, capture_output=True)
        return "\n".join(self.keeper.after())

    def put(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *arguments: str) -> None:
        subprocess.run([*GIT, *arguments], cwd=self.root, check=True, capture_output=True)

    def quarantined(self) -> list[str]:
        return sorted(str(path.read_text()) for path in self.tmp.rglob("*") if path.is_file())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def repository(place: Place) -> Place:
    place.git("init", "-q")
    place.git("commit", "-q", "--allow-empty", "-m", "one")
    return place


def test_an_edited_file_is_put_back_and_the_other_version_kept(place: Place) -> None:
    path = place.put(".envrc", "export A=1\n")
    path.chmod(0o640)
    said = place.play("echo evil > .envrc")
    assert ".envrc was changed and has been put back" in said
    assert path.read_text() == "export A=1\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert place.quarantined() == ["evil\n"]
    assert place.play("true") == ""


@pytest.mark.parametrize(
    "script",
    [
        "rm .vscode/tasks.json",
        "chmod +x .vscode/tasks.json",
        "rm -r .vscode",
        "mv .vscode other",
        "mv .vscode other; mkdir .vscode; echo evil > .vscode/tasks.json",
        "rm .vscode/tasks.json; ln -s /etc/passwd .vscode/tasks.json",
        "mv .vscode other; ln -s other .vscode; echo evil > other/tasks.json",
        "sleep 0.01; f=.vscode/tasks.json; cp -p $f x; echo evil > $f; touch -r x $f; rm x",
    ],
)
def test_whatever_was_done_to_a_protected_directory_is_undone(place: Place, script: str) -> None:
    tasks = place.put(".vscode/tasks.json", "{}\n")
    assert "[protected: " in place.play(script)
    assert tasks.read_text() == "{}\n"
    assert not tasks.is_symlink()
    assert not tasks.parent.is_symlink()
    assert not os.access(tasks, os.X_OK) or tasks.stat().st_mode & 0o111 == 0


def test_what_comes_into_a_protected_directory_is_taken_away(place: Place) -> None:
    place.put(".vscode/tasks.json", "{}\n")
    assert "launch.json is new" in place.play("echo evil > .vscode/launch.json")
    assert os.listdir(place.root / ".vscode") == ["tasks.json"]


def test_a_flood_of_new_files_hides_none_of_them(place: Place) -> None:
    place.put(".git/config", "[core]\n")
    place.put(".git/hooks/x.sample", "")
    place.put(".vscode/tasks.json", "{}")
    said = place.play(
        "cd .git/hooks; for i in $(seq 1100); do > 0$i; done; echo evil > pre-commit; > ../../.vscode/zz;"
        "echo evil > ../../.vscode/tasks.json"
    )
    assert "such changes]" in said
    assert os.listdir(place.root / ".git/hooks") == ["x.sample"]
    assert os.listdir(place.root / ".vscode") == ["tasks.json"]
    assert (place.root / ".vscode/tasks.json").read_text() == "{}"


@pytest.mark.parametrize("rung", [Rung.FULL, Rung.LANDLOCK])
def test_a_link_that_others_follow_stays_and_what_it_leads_to_is_left_alone(place: Place, rung: Rung) -> None:
    place.rung = rung
    config = place.put("repo/config", EVIL)
    place.put("repo/HEAD", "ref: refs/heads/main\n")
    (place.root / ".git").symlink_to("repo")
    place.changes = {"protected": (str(place.root / "repo"),)}
    assert place.play("true") == ""
    said = place.play("rm .git; mkdir .git; echo evil > .git/config")
    assert ".git stood in the place of a link" in said
    assert (place.root / ".git").readlink() == Path("repo")
    assert config.read_text() == EVIL
    assert place.play("true") == ""


def test_writing_a_file_again_as_it_was_is_no_change(place: Place) -> None:
    place.put(".envrc", "a\n")
    assert place.play("cp .envrc x; cat x > .envrc; touch .envrc; rm x") == ""


def test_what_the_user_changes_between_commands_stays(place: Place) -> None:
    path = place.put(".envrc", "a\n")
    place.play("true")
    path.write_text("mine\n")
    for jobs_run in (False, True):
        assert place.play("true", jobs_run=jobs_run) == ""
        assert path.read_text() == "mine\n"


@pytest.mark.parametrize("rung", [Rung.LANDLOCK, Rung.FULL])
def test_a_new_name_that_others_act_on_is_told_and_left(place: Place, rung: Rung) -> None:
    place.rung = rung
    assert ".idea" in place.play("mkdir .idea; echo x > .idea/workspace.xml")
    assert place.play("true") == ""
    assert (place.root / ".idea/workspace.xml").exists()


@needs_git
@pytest.mark.parametrize(
    "script",
    [
        "git config core.fsmonitor 'touch evil'",
        "echo 'touch evil' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit",
        "mv .git g2; cp -r g2 .git; git config core.fsmonitor 'touch evil'",
        "mkdir ../evil; cp .git/config ../evil; git config -f ../evil/config core.fsmonitor x; "
        "echo ../../evil > .git/commondir",
        "mv .git/hooks h; mkdir .git/hooks; echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        "mkdir h; echo x > h/pre-commit; chmod +x h/pre-commit; rm -r .git/hooks; ln -s ../h .git/hooks",
    ],
)
def test_a_repository_runs_nothing_that_it_did_not_run_before(repository: Place, script: str) -> None:
    config = (repository.root / ".git/config").read_text()
    inode = (repository.root / ".git").stat().st_ino
    assert "[protected: " in repository.play(script)
    git = repository.root / ".git"
    assert (git / "config").read_text() == config
    assert git.stat().st_ino == inode
    assert not (git / "commondir").exists()
    assert not (git / "hooks").is_symlink()
    if (git / "hooks").exists():
        assert all(path.suffix == ".sample" for path in (git / "hooks").iterdir())
    repository.git("status")


@needs_git
def test_commits_and_branches_are_left_alone(repository: Place) -> None:
    git = " ".join(GIT)
    assert repository.play(f"echo x > f; {git} add f; {git} commit -qm two; {git} checkout -qb other") == ""
    repository.git("fsck")


@needs_git
def test_while_a_job_runs_only_what_makes_git_run_something_is_undone(repository: Place) -> None:
    repository.play("true")
    repository.git("remote", "add", "origin", "https://example.org/a.git")
    assert repository.play("true", jobs_run=True) == ""
    repository.git("config", "core.fsmonitor", "touch evil")
    assert "put back" in repository.play("true", jobs_run=True)
    assert "fsmonitor" not in (repository.root / ".git/config").read_text()
    assert "origin" in (repository.root / ".git/config").read_text()


@needs_git
@pytest.mark.parametrize("rung", [Rung.LANDLOCK, Rung.FULL])
def test_a_new_submodule_is_told_and_what_it_would_run_taken_away(repository: Place, rung: Rung) -> None:
    repository.rung = rung
    if rung is Rung.FULL:  # under the grant to write the repository
        repository.changes = {"protected": (), "pinned": (str(repository.root / ".git"),)}
    git = " ".join(GIT)
    said = repository.play(
        f"{git} init -q sub; {git} -C sub commit -q --allow-empty -m x; "
        f"git -C sub config core.fsmonitor 'touch evil'; {git} add sub"
    )
    assert "sub is now a submodule" in said
    assert "core.fsmonitor" in said
    assert not (repository.root / "sub/.git/config").exists()
    assert "submodule" not in repository.play("true")
    assert "is a hook" in repository.play(
        "echo x > sub/.git/hooks/pre-commit; chmod +x sub/.git/hooks/pre-commit"
    )


@needs_git
def test_a_new_repository_may_be_made_but_names_no_program(place: Place) -> None:
    assert place.play("git init -q .") == ""
    assert "names programs to run (filter.x.clean)" in place.play("git config filter.x.clean 'touch evil'")
    assert place.play("git init -q .") == ""


@needs_git
@pytest.mark.parametrize("version", [2, 3, 4])
def test_submodules_are_read_from_each_version_of_an_index(repository: Place, version: int) -> None:
    for name in ("a", "b/deep", "b/deeper", LONG):
        repository.git("init", "-q", f"{name}/sub")
        repository.git("-C", f"{name}/sub", "commit", "-q", "--allow-empty", "-m", "x")
        repository.put(f"{name}/file", "x")
    repository.put("new", "x")
    repository.git("add", ".")
    if version == 3:
        repository.put("intended", "x")
        repository.git("add", "-N", "intended")
    repository.git("update-index", "--index-version", str(version))
    index = (repository.root / ".git/index").read_bytes()
    assert index[7] == version
    assert set(gitlinks(index)) == {f"{name}/sub" for name in ("a", "b/deep", "b/deeper", LONG)}
    for cut in range(0, len(index), 97):
        gitlinks(index[:cut])


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        (EVIL, ("core.fsmonitor",)),
        ("[core]\n\tfsmonitor = true\n", ()),
        ("[CORE] FSMonitor=\"x\"\n", ("core.fsmonitor",)),
        ('[filter "a b"]\n\tclean = x\n', ("filter.a b.clean",)),
        ("[core]\n\thooks\\\nPath = x\n", ("core.hookspath",)),
        ("[include]\n\tpath = ../x\n", ("include.path",)),
        ('[includeIf "gitdir:x"]\n\tpath = ../x\n', ("includeif.gitdir:x.path",)),
        ("[alias]\n\ts = status\n\tx = !touch evil\n", ("alias.x",)),
        ("# [core]\n#fsmonitor = x\n[user]\n\tname = fsmonitor\n", ()),
        ('[remote "o"]\n\turl = https://example.org\n\tfetch = +refs\n', ()),
    ],
)  # fmt: skip
def test_a_configuration_names_its_programs(config: str, keys: tuple[str, ...]) -> None:
    assert programs(config) == keys


@needs_git
def test_looking_before_and_after_costs_little(repository: Place) -> None:
    for number in range(20):
        repository.put(f".vscode/{number}.json", "{}")
    repository.put(".envrc", "x")
    best = 1.0
    for _ in range(50):
        begun = time.perf_counter()
        repository.keeper.before(jobs_run=False)
        repository.keeper.after()
        best = min(best, time.perf_counter() - begun)
    assert best < 0.005, f"{best * 1e3:.2f} ms"


@needs_git
async def test_without_namespaces_a_command_s_result_says_what_was_put_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await trio.run_process(["git", "init", "-q", str(site.workspace)])
    (site.workspace / ".envrc").write_text("export A=1\n")
    launch = Launch(roots=(str(CHECKOUT),), without=("native", "bubblewrap"))
    async with site.pool(launch=launch) as pool:
        if (await pool.ready()).rung is not Rung.LANDLOCK:
            pytest.skip("this kernel offers no Landlock")
        result = await site.play(pool, "echo evil > .envrc; git config core.pager evil; echo done")
    assert "done" in result.text
    assert "[protected: .envrc was changed and has been put back" in result.text
    assert "[protected: .git/config was changed and has been put back" in result.text
    assert (site.workspace / ".envrc").read_text() == "export A=1\n"
    assert "evil" not in (site.workspace / ".git/config").read_text()
