"""The default policy: what is on the list, what is not, and that real programs work under it."""

import os
import re
import shutil
from pathlib import Path

import pytest

from protocol.policy import Mode, Network
from supervisor.choices.tables import SandboxChoices
from supervisor.exits import USAGE, StopError
from supervisor.policy.default import default_policy
from tests.supervisor.pool_play import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    home, work = tmp_path / "home", tmp_path / "workspace"
    for name in (".ssh", ".cargo/bin", ".pyenv/shims", ".config/git", "bin"):
        (home / name).mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("secret\n")
    (home / ".config/git/config").write_text("[user]\n\tname = From Config\n\temail = a@example.org\n")
    (home / ".gitconfig").write_text('[core]\n\tpager = less\n[user]\n\tname = "Ada"\n[alias]\n\tx = y\n')
    environ = {
        "HOME": str(home),
        "PATH": f"{home}/bin:{work}/bin:relative:{work}/.venv/bin:{os.environ['PATH']}",
        "VIRTUAL_ENV": f"{work}/.venv",
        "LC_ALL": "C.UTF-8",
        "DEEPSEEK_API_KEY": "sesame",
        "SSH_AUTH_SOCK": "/run/agent",
        "BASH_ENV": "/tmp/evil",
        "GIT_DIR": "/tmp/evil",
    }
    return Site(tmp_path, environ=environ)


def test_a_virtual_environment_on_the_path_is_readable_as_a_whole_but_never_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for place in (home / "envs/web", home):
        (place / "bin").mkdir(parents=True)
        (place / "pyvenv.cfg").touch()
    path = f"{home}/bin:{home}/envs/web/bin:{os.environ['PATH']}"
    site = Site(tmp_path, environ={"HOME": str(home), "PATH": path})
    assert granted(site, home / "envs/web/lib/python3.11")
    assert granted(site, home / "bin/tool")
    assert not granted(site, home / "pyvenv.cfg")
    assert not granted(site, home / "envs/other")


def granted(site: Site, path: Path) -> bool:
    policy = site.policy
    return any(path.is_relative_to(place) for place in (*policy.readable, policy.workspace, policy.tmp))


def test_toolchains_can_be_read_and_the_home_and_the_state_can_t(site: Site) -> None:
    home = site.root / "home"
    assert granted(site, home / ".cargo/bin")
    assert granted(site, home / ".pyenv/shims")
    assert granted(site, home / "bin")
    assert not granted(site, home / ".ssh")
    assert not granted(site, home / ".cargo/credentials.toml")
    assert not granted(site, site.state / "sessions")
    for directory in ("/root", "/home", "/tmp", "/var", "/run", "/"):
        assert directory not in site.policy.readable
    assert "/etc" in site.policy.readable
    assert "/etc/shadow" in site.policy.hidden or not Path("/etc/shadow").exists()
    assert {str(site.state), str(home / ".ssh")} <= set(site.policy.hidden)
    assert granted(site, Path("/usr/bin"))


def test_a_state_directory_inside_a_readable_one_is_hidden(tmp_path: Path) -> None:
    site = Site(tmp_path)
    toolchain = tmp_path / "toolchain"
    (toolchain / "bin").mkdir(parents=True)
    (toolchain / "state").mkdir()
    environ = site.environ | {"JAVA_HOME": str(toolchain)}
    policy = default_policy(site.workspace, site.output, site.tmp, environ, toolchain / "state")
    assert str(toolchain) in policy.readable
    assert str(toolchain / "state") in policy.hidden


@pytest.mark.skipif(not Path("/srv").is_dir() or Path("/srv").is_symlink(), reason="no /srv here")
def test_what_lies_beside_the_workspace_is_not_readable(site: Site) -> None:
    def readable(workspace: Path) -> tuple[str, ...]:
        return default_policy(workspace, site.output, site.tmp, site.environ, site.state).readable

    assert "/srv" in readable(site.workspace)
    assert "/srv" not in readable(Path("/srv"))
    assert "/usr" in readable(Path("/usr/share"))


def test_a_home_on_the_path_does_not_become_readable(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    Path(home).mkdir()
    site = Site(tmp_path, environ={"HOME": home, "PATH": f"{home}:{tmp_path}:/usr/bin"})
    assert not {home, str(tmp_path)} & set(site.policy.readable)


def test_the_environment_holds_what_is_on_the_list_and_nothing_else(site: Site) -> None:
    environment = dict(site.policy.environment)
    assert not {"DEEPSEEK_API_KEY", "SSH_AUTH_SOCK", "BASH_ENV", "GIT_DIR"} & environment.keys()
    assert environment["LC_ALL"] == "C.UTF-8"
    assert environment["PYENV_ROOT"] == str(site.root / "home/.pyenv")
    assert environment["TMPDIR"] == str(site.tmp)
    path = environment["PATH"].split(":")
    assert "relative" not in path
    assert f"{site.workspace}/bin" not in path
    assert f"{site.workspace}/.venv/bin" in path


def test_names_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    site = Site(tmp_path, environ={"HOME": str(tmp_path), "PATH": "/bin", "USER": "a\udcff", "LANG": "C"})
    assert "USER" not in dict(site.policy.environment)


def test_commands_have_a_private_home_that_knows_only_who_commits(site: Site) -> None:
    home = Path(dict(site.policy.environment)["HOME"])
    assert home.is_relative_to(site.tmp)
    config = (home / ".gitconfig").read_text()
    assert 'name = "Ada"' in config
    assert "a@example.org" in config
    assert str(site.workspace) in config
    assert "pager" not in config


def test_unconfined_commands_have_the_user_s_own_home(site: Site) -> None:
    site.mode = Mode.UNCONFINED
    assert dict(site.policy.environment)["HOME"] == str(site.root / "home")


def test_a_workspace_that_can_t_be_worked_in_is_refused_with_words(tmp_path: Path) -> None:
    site = Site(tmp_path)
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    for workspace, words in (
        (tmp_path / "missing", "is no directory"),
        (Path("/"), "can't be / itself"),
        (odd, "not UTF-8"),
    ):
        with pytest.raises(StopError, match=words) as caught:
            default_policy(workspace, site.output, site.tmp, site.environ, site.state)
        assert caught.value.exit_code == USAGE


def test_settings_can_t_open_the_machine_s_switches(site: Site) -> None:
    for place in ("/", "/proc", "/dev/null"):
        with pytest.raises(StopError, match="switches of the machine"):
            default_policy(
                site.workspace,
                site.output,
                site.tmp,
                site.environ,
                site.state,
                SandboxChoices(write=(place,)),
            )


@pytest.mark.parametrize("link", [False, True], ids=["real", "through a link"])
@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("git", "git init -q . && touch a && git add a && git commit -qm 'one' && git log --format=%an"),
        ("python3", "python3 -c 'import json, ssl, tempfile; tempfile.TemporaryFile(); print(1)'"),
        ("node", 'node -e \'require("fs").writeFileSync("n", "1"); console.log(1)\''),
        ("gcc", "echo 'int main(void) { return 0; }' > m.c && gcc m.c -o m && ./m && echo 1"),
    ],
)
async def test_everyday_programs_work_in_the_sandbox(
    tmp_path: Path, program: str, command: str, link: bool
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = a@example.org\n")
    environ = {name: os.environ[name] for name in ("PATH", "PYENV_ROOT") if name in os.environ}
    site = Site(tmp_path, environ={"HOME": os.environ["HOME"]} | environ)
    if program == "git":
        site.environ["HOME"] = str(home)
    if link:
        (tmp_path / "link").symlink_to(site.workspace)
        site.workspace = tmp_path / "link"
    async with site.pool() as pool:
        result = await site.play(pool, f'({command}) 2>&1; echo "exit $?"')
    assert result.text.endswith("exit 0\n"), result.text
    if program == "git":
        assert "Ada" in result.text


WORDS = "start in the directory of a project"


def test_a_workspace_that_no_sandbox_could_mean_anything_for_is_refused(site: Site) -> None:
    home = site.root / "home"
    (site.state / "project").mkdir()
    for workspace, words in (
        (home, "holds your home directory"),
        (Path("/etc"), "a directory of the system"),
        (site.root, "holds your home directory"),
        (site.state / "project", "lies in the agent's own state"),
    ):
        with pytest.raises(StopError, match=words) as caught:
            default_policy(workspace, site.output, site.tmp, site.environ, site.state)
        assert WORDS in str(caught.value)
    with pytest.raises(StopError, match="holds the agent's own state"):
        default_policy(site.workspace, site.output, site.tmp, site.environ, site.workspace / "state")


def test_who_asks_for_no_sandbox_may_work_in_their_home(site: Site) -> None:
    home = site.root / "home"
    unconfined = SandboxChoices(mode=Mode.UNCONFINED)
    policy = default_policy(home, site.output, site.tmp, site.environ, site.state, unconfined)
    assert (policy.hidden, policy.protected, policy.network) == ((), (), Network.ON)
    assert "DEEPSEEK_API_KEY" not in dict(policy.environment)


async def test_a_command_can_read_neither_the_state_nor_the_supervisor(site: Site) -> None:
    (site.state / "conversation.jsonl").write_text("private words\n")
    async with site.pool() as pool:
        if (await pool.ready()).refuse_commands:
            pytest.skip("this kernel offers no Landlock")
        me = os.getpid()
        for command in (
            f"cat {site.state}/conversation.jsonl",
            f"cat {site.root}/home/.ssh/id_ed25519",
            f"tr '\\0' ' ' < /proc/{me}/environ | head -c 20",
            f"head -c 1 /proc/{me}/mem",
            f"cat /proc/{me}/fd/0",
            f"echo x > {site.root}/outside",
            f"echo x > {site.output}/planted",
        ):
            result = await site.play(pool, f'set -o pipefail; ({command}) 2>&1; echo "exit $?"')
            assert not result.text.endswith("exit 0\n"), (command, result.text)
            assert re.search("ermission denied|No such file|Read-only", result.text), result.text
        # Where it has a name at all, it holds only what may be seen.
        assert "conversation" not in (await site.play(pool, f"ls {site.state} 2>&1")).text
    assert not (site.root / "outside").exists()
