"""What a grant adds to a policy: exactly what it names."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.permission import parse
from protocol.policy import Mode, Network, Rung, SandboxPolicy
from supervisor.choices.tables import SandboxChoices
from supervisor.policy.default import default_policy
from supervisor.policy.planted import plant, uproot
from supervisor.policy.widen import impossible, widened
from supervisor.pool.opening import open_pool
from supervisor.pool.zygote import Launch
from tests.supervisor.pool_play import CHECKOUT, LIMITS, Site

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    for name in ("home/.ssh", "home/notes"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("config", "id_rsa", "known_hosts"):
        (tmp_path / "home/.ssh" / name).write_text("x")
    return Site(tmp_path)


@pytest.fixture
def repository(site: Site) -> Site:
    subprocess.run(["git", "init", "-q", str(site.workspace)], check=True)
    return site


def wider(policy: SandboxPolicy, *words: str, rung: Rung = Rung.FULL) -> SandboxPolicy:
    return widened(policy, [parse(word) for word in words], rung=rung)


def test_a_readable_place_is_open_for_commands_and_file_tools(site: Site) -> None:
    policy, notes = site.policy, f"{site.root}/home/notes"
    assert wider(policy, f"read:{notes}") == replace(
        policy, readable=(*policy.readable, notes), opened=(*policy.opened, notes)
    )


def test_a_place_inside_a_hidden_one_leaves_its_neighbours_hidden(site: Site) -> None:
    ssh = f"{site.root}/home/.ssh"
    policy = wider(site.policy, f"read:{ssh}/config")
    assert ssh not in policy.hidden
    assert {f"{ssh}/id_rsa", f"{ssh}/known_hosts"} <= set(policy.hidden)
    assert f"{ssh}/config" not in policy.hidden
    assert ssh not in wider(site.policy, f"read:{ssh}").hidden


def test_a_place_around_a_hidden_one_leaves_it_hidden(site: Site) -> None:
    home = f"{site.root}/home"
    for word in ("read", "write"):
        assert f"{home}/.ssh" in wider(site.policy, f"{word}:{home}").hidden


def test_a_hidden_file_of_the_workspace_is_opened_by_its_relative_name(site: Site) -> None:
    (site.workspace / ".env").write_text("x")
    assert f"{site.workspace}/.env" in site.policy.hidden
    policy = wider(site.policy, "read:.env")
    assert f"{site.workspace}/.env" not in policy.hidden
    assert policy.readable == site.policy.readable


def test_a_writable_place_is_added_and_a_protected_one_let_go(site: Site) -> None:
    (site.workspace / ".vscode").mkdir()
    for name in ("tasks.json", "settings.json"):
        (site.workspace / ".vscode" / name).write_text("{}")
    home, policy = f"{site.root}/home/notes", site.policy
    assert wider(policy, f"write:{home}").writable == (home,)
    assert wider(policy, "write:.vscode").protected == ()
    assert wider(policy, "write:.vscode/settings.json").protected == (f"{site.workspace}/.vscode/tasks.json",)


def test_a_read_only_sandbox_gives_no_place_to_write(site: Site) -> None:
    policy = replace(site.policy, mode=Mode.READ_ONLY)
    for word in (f"write:{site.root}/home/notes", "git-write"):
        assert wider(policy, word) == policy
        assert "read-only" in impossible(policy, parse(word))


def test_what_does_not_exist_or_leads_elsewhere_is_not_given(site: Site) -> None:
    (site.root / "link").symlink_to(site.root / "home")
    for word, words in (
        (f"write:{site.root}/missing", "does not exist"),
        (f"read:{site.root}/link/.ssh", "leads to"),
        ("write:/", "switches of the machine"),
        ("write:/proc/sys/kernel", "switches of the machine"),
    ):
        assert wider(site.policy, word) == site.policy
        assert words in impossible(site.policy, parse(word))
    assert "no git repository" in impossible(site.policy, parse("git-write"))


def test_a_host_needs_the_list_and_without_namespaces_the_whole_network(site: Site) -> None:
    policy = wider(site.policy, "network:example.org:443")
    assert policy.network is Network.LISTED
    assert "UV_OFFLINE" not in dict(policy.environment)
    assert wider(site.policy, "network:example.org:443", rung=Rung.LANDLOCK).network is Network.ON
    on = default_policy(
        site.workspace, site.output, site.tmp, site.environ, site.state, SandboxChoices(network=Network.ON)
    )
    assert wider(on, "network:example.org:443") == on


def test_unconfined_is_only_that_and_the_environment_stays_a_list(site: Site) -> None:
    policy = widened(site.policy, [parse("unconfined")], home="/home/ada")
    assert (policy.mode, policy.network) == (Mode.UNCONFINED, Network.ON)
    assert (policy.hidden, policy.protected) == ((), ())
    environment = dict(policy.environment)
    assert environment["HOME"] == "/home/ada"
    assert environment.keys() <= dict(site.policy.environment).keys()


@needs_git
def test_git_write_opens_the_repository_but_what_runs_programs(repository: Site) -> None:
    git = f"{repository.workspace}/.git"
    assert git in repository.policy.protected
    policy = wider(repository.policy, "git-write")
    assert policy.pinned == (git,)
    assert set(policy.protected) == {
        f"{git}/{name}"
        for name in ("config", "config.worktree", "hooks", "modules", "worktrees", "commondir")
    }
    assert policy.writable == ()


@needs_git
def test_what_must_exist_to_be_kept_is_made_and_removed_and_git_works_with_it(repository: Site) -> None:
    git = repository.workspace / ".git"
    shutil.rmtree(git / "hooks")
    assert plant(repository.policy) == ()
    made = plant(wider(repository.policy, "git-write"))
    assert {Path(path).name for path in made} == {"commondir", "hooks", "modules", "worktrees"}
    run = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository.workspace))
    for arguments in (("commit", "-q", "--allow-empty", "-m", "x"), ("status",), ("gc", "-q"), ("fsck",)):
        subprocess.run([*run, *arguments], check=True, capture_output=True)
    again = plant(wider(repository.policy, "git-write"))  # gc may have removed an empty directory
    assert {Path(path).name for path in again} <= {"commondir", "modules", "worktrees"}
    uproot(made)
    assert not (git / "commondir").exists()
    assert not (git / "hooks").exists()


@needs_git
def test_git_write_in_a_linked_working_tree_leaves_the_others_closed(repository: Site) -> None:
    run = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository.workspace))
    subprocess.run([*run, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    for name in ("mine", "other"):
        command = [*run, "worktree", "add", "-q", str(repository.root / name)]
        subprocess.run(command, check=True, capture_output=True)
    git, mine = repository.workspace / ".git", repository.root / "mine"
    policy = default_policy(mine, repository.output, repository.tmp, repository.environ, repository.state)
    policy = wider(policy, "git-write")
    assert policy.writable == policy.pinned == (str(git),)
    assert {str(git / "config"), str(git / "worktrees/other"), str(git / "worktrees/mine/commondir")} <= set(
        policy.protected
    )
    assert not {str(git / "worktrees"), str(git / "worktrees/mine")} & set(policy.protected)
    assert str(mine / ".git") in policy.protected


@needs_git
async def test_a_worker_with_git_write_commits_and_can_t_have_git_run_anything(repository: Site) -> None:
    git = repository.workspace / ".git"
    policy = wider(repository.policy, "git-write")
    launch = Launch(roots=(str(CHECKOUT),))
    opening = open_pool(
        policy, LIMITS, repository.open_output, repository.tell, environ=os.environ, launch=launch
    )
    async with opening as pool:
        if (await pool.ready()).rung is not Rung.FULL:
            pytest.skip("no namespaces here")
        commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git status --short"
        assert (await repository.play(pool, commit)).text == "(no output, exit code 0)"
        for attack in (
            "git config core.fsmonitor evil",
            "echo evil > .git/hooks/pre-commit",
            "echo ../evil > .git/commondir",
            "rm .git/commondir",
            "mv .git g2",
            "mkdir -p .git/modules/x",
        ):
            result = await repository.play(pool, f'({attack}) 2>&1; echo "exit $?"')
            assert "exit 0" not in result.text, (attack, result.text)
    assert "fsmonitor" not in (git / "config").read_text()
    assert not (git / "commondir").exists()
