"""What the default policy hides and protects inside a workspace, and what the user's settings change."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from protocol.policy import Network, SandboxPolicy
from supervisor.choices.tables import SandboxChoices
from supervisor.policy.default import default_policy
from supervisor.policy.survey import REPOSITORY_DEPTH, secret, survey
from tests.supervisor.pool_play import Site

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "home").mkdir()
    return Site(tmp_path)


def put(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def policy_of(site: Site, wishes: SandboxChoices | None = None, **environ: str) -> SandboxPolicy:
    return default_policy(
        site.workspace, site.output, site.tmp, site.environ | environ, site.state, wishes or SandboxChoices()
    )


def within(site: Site, places: tuple[str, ...]) -> set[str]:
    root = f"{site.workspace}/"
    return {place.removeprefix(root) for place in places if place.startswith(root)}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (".env", True),
        (".env.local", True),
        (".env.production", True),
        (".env.example", False),
        (".env.sample", False),
        (".env.local.template", False),
        (".envrc", False),
        ("env", False),
        ("server.pem", True),
        ("tls.key", True),
        (".key", False),
        ("id_rsa", True),
        ("id_ed25519.old", True),
        ("id_ed25519.pub", False),
        ("id_generator.go", False),
        ("key.py", False),
    ],
)
def test_a_name_tells_what_usually_holds_a_secret(name: str, is_one: bool) -> None:
    assert secret(name) is is_one


def test_secrets_of_the_workspace_are_hidden_down_to_three_levels(site: Site) -> None:
    for name in (
        ".env", "a/.env.local", "a/b/deploy.pem", "a/b/c/.env", "node_modules/p/.env", "venv/lib/ca.pem",
        ".env.example",
    ):  # fmt: skip
        put(site.workspace / name)
    put(site.workspace / "venv/pyvenv.cfg")
    (site.workspace / ".env.link").symlink_to("config/real")
    put(site.workspace / "config/real")
    (site.workspace / ".env.out").symlink_to("/etc/hostname")
    assert within(site, policy_of(site).hidden) == {".env", "a/.env.local", "a/b/deploy.pem", "config/real"}
    assert within(site, policy_of(site, SandboxChoices(hide_env_files=False)).hidden) == set()


def test_credentials_are_hidden_also_where_the_user_opens_what_is_around_them(site: Site) -> None:
    home = site.root / "home"
    for name in (".ssh/id_rsa", ".config/gh/hosts.yml", ".netrc", "notes/todo", "odd/aws"):
        put(home / name)
    policy = policy_of(
        site,
        SandboxChoices(read=(str(home), f"{home}/notes", f"{home}/missing")),
        AWS_CONFIG_FILE=f"{home}/odd/aws",
    )
    assert str(home) in policy.readable
    assert policy.opened == (str(home), f"{home}/notes")
    assert {f"{home}/{name}" for name in (".ssh", ".config/gh", ".netrc", "odd/aws")} <= set(policy.hidden)


def test_what_others_run_later_is_protected_where_it_exists(site: Site) -> None:
    for name in (
        ".git/config",
        ".vscode/tasks.json",
        ".envrc",
        "lib/dep/.git/config",
        "a/b/c/d/e/.git/config",
    ):
        put(site.workspace / name)
    put(site.workspace / "sub/.git", "gitdir: ../.git/modules/sub\n")
    put(site.workspace / "deep/er/than/the/survey/.git", "gitdir: elsewhere\n")
    put(site.workspace / ".gitmodules", '[submodule "x"]\n\tpath = deep/er/than/the/survey\n')
    put(site.workspace / "conf/claude/settings.json")
    (site.workspace / ".claude").symlink_to("conf/claude")
    (site.workspace / ".idea").symlink_to("/etc")
    (site.workspace / ".gemini").symlink_to(".")
    policy = policy_of(site)
    assert within(site, policy.protected) == {
        ".git", ".vscode", ".envrc", "lib/dep/.git", "sub/.git", "deep/er/than/the/survey/.git",
        "conf/claude",
    }  # fmt: skip
    assert not (site.workspace / ".husky").exists()


def test_what_a_repository_s_configuration_runs_or_includes_is_protected(site: Site) -> None:
    put(site.workspace / "tools/hooks/pre-commit")
    put(site.workspace / "team.gitconfig")
    put(
        site.workspace / ".git/config",
        "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../team.gitconfig\n",
    )
    assert within(site, policy_of(site).protected) == {".git", "tools/hooks", "team.gitconfig"}


@needs_git
def test_a_linked_working_tree_can_read_its_repository_only_where_that_points_back(site: Site) -> None:
    main = site.root / "main"
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(main))
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    site.workspace.rmdir()
    subprocess.run([*git, "worktree", "add", "-q", str(site.workspace)], check=True, capture_output=True)
    assert str(main / ".git") in policy_of(site).readable
    assert within(site, policy_of(site).protected) == {".git"}

    planted = Site(site.root / "second")
    put(planted.workspace / ".git", (site.workspace / ".git").read_text())
    assert str(main / ".git") not in policy_of(planted).readable


def test_the_look_through_a_workspace_is_bounded(tmp_path: Path) -> None:
    for first in range(60):
        for second in range(60):
            (tmp_path / f"d{first}" / f"d{second}").mkdir(parents=True)
    put(tmp_path / ".env")
    put(tmp_path / "/".join("abcd"[: REPOSITORY_DEPTH - 1]) / ".git" / "config")
    seen = survey(tmp_path)
    assert tmp_path / ".env" in seen.secrets


def test_settings_pass_names_and_secrets_only_where_they_are_called_secrets(site: Site) -> None:
    names = ("EDITOR_MODE", "DEPLOY_TOKEN", "BASH_ENV", "LD_PRELOAD")
    environ = dict.fromkeys((*names, "OTHER"), "1")
    wishes = SandboxChoices(environment=names)
    passed = dict(policy_of(site, wishes, **environ).environment)
    assert passed["EDITOR_MODE"] == "1"
    assert not {"DEPLOY_TOKEN", "BASH_ENV", "LD_PRELOAD", "OTHER"} & passed.keys()
    wishes = SandboxChoices(environment_secret=("DEPLOY_TOKEN",))
    assert dict(policy_of(site, wishes, **environ).environment)["DEPLOY_TOKEN"] == "1"


def test_without_a_network_programs_are_told_to_give_up_at_once(site: Site) -> None:
    assert dict(policy_of(site).environment)["PIP_RETRIES"] == "0"
    assert "PIP_RETRIES" not in dict(policy_of(site, SandboxChoices(network=Network.ON)).environment)


def test_a_writable_place_of_the_settings_never_swallows_the_workspace(site: Site) -> None:
    other = site.root / "other"
    other.mkdir()
    policy = policy_of(site, SandboxChoices(write=(str(other), str(site.root), os.devnull + "-missing")))
    assert policy.writable == (str(other),)
