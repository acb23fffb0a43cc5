"""Trust: what a project's file widens waits for the user, who trusts one content at one place."""

import json
import os
from pathlib import Path

import pytest

from protocol.policy import Mode, Network, Rung
from supervisor.choices import project, trusted
from supervisor.exits import USAGE, StopError
from supervisor.permits import trust
from supervisor.settings import Flags
from tests.product import COMMAND, Product
from tests.pseudo_terminal import PseudoTerminal
from tests.supervisor.test_settings import environment, fails, loaded, place, project_says, user_says

__all__ = ["place"]

WIDENS = (
    'model = "other"\nthinking = false\nmax_tool_rounds_per_turn = 900\n'
    '[sandbox]\nmode = "unconfined"\nnetwork = "on"\nhosts = ["h"]\nread = ["/r"]\nwrite = ["/w"]\n'
    'environment = ["E"]\nenvironment_secret = ["E_KEY"]\nhide_env_files = false\n'
    '[limits]\nmemory = "9T"\nprocesses = 9999\n[rules]\nallow = ["run_command rm"]\n'
)
WAITING = (
    "model, thinking, max_tool_rounds_per_turn, sandbox.mode, sandbox.network, sandbox.hosts, sandbox.read, "
    "sandbox.write, sandbox.environment, sandbox.environment_secret and 4 more"
)


def trust_it(place: Path) -> None:
    trust.keep(trust.look(None, environment(place), place / "p"))


def test_before_it_is_trusted_nothing_is_widened_and_one_line_says_so(place: Path) -> None:
    project_says(place, WIDENS)
    found = loaded(place)
    assert found.notices == (
        f"{place}/p/.agent/settings.toml: not used before you trust it (agent trust): {WAITING}",
    )
    project_says(place, "")
    assert found.settings == loaded(place).settings


def test_at_any_time_a_project_tightens(place: Path) -> None:
    user_says(
        place,
        '[sandbox]\nnetwork = "on"\nrequire = "landlock"\nhide_env_files = false\n'
        '[rules]\ndeny = ["jobs"]\nallow = ["run_command ls"]\n',
    )
    project_says(
        place,
        'mask_transcript = true\n[sandbox]\nmode = "read-only"\nnetwork = "off"\nrequire = "full"\n'
        'hide_env_files = true\n[limits]\nmemory = "1G"\nprocesses = 100\n'
        '[rules]\ndeny = ["run_command rm"]\nask = ["run_command git"]\n',
    )
    found = loaded(place)
    settings, sandbox = found.settings, found.settings.sandbox
    assert found.notices == ()
    assert (sandbox.mode, sandbox.network, sandbox.require) == (Mode.READ_ONLY, Network.OFF, Rung.FULL)
    assert (sandbox.hide_env_files, settings.mask_transcript) == (True, True)
    assert (settings.limits.memory_bytes, settings.limits.processes) == (1 << 30, 100)
    assert settings.rules.deny == ("jobs", "run_command rm")
    assert (settings.rules.ask, settings.rules.allow) == (("run_command git",), ("run_command ls",))


@pytest.mark.parametrize(
    ("key", "value", "users", "tightens"),
    [
        ("sandbox.mode", Mode.READ_ONLY, Mode.UNCONFINED, True),
        ("sandbox.mode", Mode.WORKSPACE_WRITE, Mode.READ_ONLY, False),
        ("sandbox.network", Network.LISTED, Network.ON, True),
        ("sandbox.network", Network.LISTED, Network.OFF, False),
        ("sandbox.require", Rung.OFF, Rung.FULL, False),
        ("sandbox.require", Rung.LANDLOCK, Rung.OFF, True),
        ("limits.memory", 3 << 30, None, False),
        ("limits.memory", 3 << 30, 4 << 30, True),
        ("limits.disk", 5, 5, True),
        ("limits.disk", 6, 5, False),
        ("window", 5000, 9000, False),
        ("thinking", False, True, False),
        ("rules.allow", (), ("a",), True),
    ],
)
def test_what_tightens_is_less_than_the_user_has(
    key: str, value: object, users: object, *, tightens: bool
) -> None:
    assert project.tightens(key, value, users) is tightens


def test_what_is_trusted_is_used_and_comes_to_what_the_user_has(place: Path) -> None:
    user_says(place, '[sandbox]\nhosts = ["mine"]\n[rules]\ndeny = ["run_command rm"]\n')
    project_says(place, WIDENS)
    trust_it(place)
    found = loaded(place)
    settings, sandbox = found.settings, found.settings.sandbox
    assert found.notices == ()
    assert (settings.model, settings.max_tool_rounds_per_turn) == ("other", 900)
    assert (sandbox.mode, sandbox.network) == (Mode.UNCONFINED, Network.ON)
    assert sandbox.hosts == ("mine:443", "h:443")
    assert (settings.rules.allow, settings.rules.deny) == (("run_command rm",), ("run_command rm",))
    flags = Flags(sandbox="read-only", model="mine")
    assert loaded(place, flags).settings.sandbox.mode is Mode.READ_ONLY
    assert loaded(place, flags).settings.model == "mine"


def test_where_requests_and_the_key_go_is_never_taken_from_a_project(place: Path) -> None:
    project_says(place, 'base_url = "http://127.0.0.1:1"\nkey_env = "HOME"\nmodel = "m"\nhooks = ["x"]\n')
    trust_it(place)
    found = loaded(place)
    assert (found.settings.base_url, found.settings.key_env) == (
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
    )
    assert (found.settings.model, found.settings.configured) == ("m", False)
    assert found.notices == (
        f"{place}/p/.agent/settings.toml: not read from a project's file: base_url, key_env, hooks",
    )


def test_trust_is_void_when_the_content_changes(place: Path) -> None:
    project_says(place, 'model = "m"\n')
    trust_it(place)
    project_says(place, 'model = "n"\n')
    found = loaded(place)
    assert found.settings.model == "deepseek-flash"
    assert found.notices == (
        f"{place}/p/.agent/settings.toml: it has changed since you trusted it; "
        "not used before you trust it (agent trust): model",
    )
    project_says(place, 'model = "m"\n')
    assert loaded(place).settings.model == "m"


def test_what_is_trusted_is_what_was_shown(place: Path) -> None:
    project_says(place, 'model = "m"\n')
    shown = trust.look(None, environment(place), place / "p")
    project_says(place, 'model = "swapped"\n')
    trust.keep(shown)
    assert loaded(place).settings.model == "deepseek-flash"


def test_trust_holds_for_one_place(place: Path) -> None:
    project_says(place, 'model = "m"\n')
    trust_it(place)
    (place / "p").rename(place / "q")
    (place / "p").symlink_to("q")
    assert loaded(place).settings.model == "deepseek-flash"


def test_trust_is_kept_privately_and_outside_of_the_project(place: Path) -> None:
    project_says(place, 'model = "m"\n')
    trust_it(place)
    (path,) = (place / "state").rglob("trust.json")
    assert path.parent.parent == place / "state" / "projects"
    assert path.stat().st_mode & 0o777 == 0o600
    for directory in (path.parent, path.parent.parent, place / "state"):
        assert directory.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"root": "00", "digest": ""}', b"\xff"])
def test_what_is_kept_and_can_not_be_read_trusts_nothing(place: Path, kept: bytes) -> None:
    project_says(place, 'model = "m"\n')
    trust_it(place)
    (path,) = (place / "state").rglob("trust.json")
    path.write_bytes(kept)
    assert loaded(place).settings.model == "deepseek-flash"


def test_the_trust_of_another_root_is_none(place: Path) -> None:
    project_says(place, 'model = "m"\n')
    trust_it(place)
    (path,) = (place / "state").rglob("trust.json")
    kept = json.loads(path.read_bytes())
    assert trusted.trusted(place / "state", place / "p", path.parent.name) == kept["digest"]
    assert trusted.trusted(place / "state", place / "other", path.parent.name) == ""
    path.write_text(json.dumps({**kept, "root": os.fsencode(place).hex()}))
    assert loaded(place).settings.model == "deepseek-flash"


def test_trust_is_taken_back(place: Path) -> None:
    project_says(place, 'model = "m"\n')
    trust_it(place)
    root = str(place / "p")
    assert trust.revoke(root, environment(place), place) == f"{root} is no longer trusted."
    assert trust.revoke(root, environment(place), place) == f"{root} was not trusted."
    assert loaded(place).settings.model == "deepseek-flash"


def test_a_project_without_a_file_can_not_be_trusted(place: Path) -> None:
    with pytest.raises(StopError, match="there is nothing to trust") as caught:
        trust_it(place)
    assert caught.value.exit_code == USAGE


def test_a_wrong_value_stops_before_there_is_trust(place: Path) -> None:
    project_says(place, '[sandbox]\nnetwork = "all"\n')
    assert "line 2: sandbox.network: Invalid enum value 'all'" in fails(place)
    with pytest.raises(StopError, match="Invalid enum value"):
        trust_it(place)


# The program


@pytest.fixture
def product(tmp_path: Path) -> Product:
    """A project whose file names hooks and commands that would touch a marker, and widens."""
    made = Product(tmp_path)
    marker = tmp_path / "ran"
    (made.workspace / ".agent").mkdir()
    (made.workspace / ".agent" / "settings.toml").write_text(
        f'hooks = ["touch {marker}"]\n[tools]\nrun = "touch {marker}"\n[permissions]\nallow = ["*"]\n'
        f'[api]\nkey_command = "touch {marker}"\n[sandbox]\nmode = "unconfined"\nstart = "touch {marker}"\n'
        '[rules]\nallow = ["run_command rm \\u0061*"]\n'
    )
    return made


SAYS = (
    "not read from a project's file: hooks, tools, permissions, api, sandbox.start; not used before you trust"
)


@pytest.mark.parametrize("arguments", [("run", "Hello"), ()])
@pytest.mark.parametrize(
    "environ", [{}, {"DEEPSEEK_API_KEY": "sk-1", "AGENT_BASE_URL": "http://127.0.0.1:9/v1"}]
)
def test_a_start_names_what_a_project_asks_for_once_and_runs_nothing(
    product: Product, tmp_path: Path, arguments: tuple[str, ...], environ: dict[str, str]
) -> None:
    done = product.run(*arguments, given=b"", environ=environ)
    assert (done.stdout + done.stderr).count(SAYS) == 1, done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_script_trusts_and_takes_back(product: Product, tmp_path: Path) -> None:
    done = product.run("trust")
    assert done.returncode == USAGE
    assert done.stdout.splitlines()[1:] == [
        '  sandbox.mode = "unconfined"',
        '  rules.allow = ["run_command rm a*"]',
        "With that, nothing would confine commands: each may do all that you may, unasked.",
    ]
    assert "agent trust --yes" in done.stderr
    assert not list(product.home.rglob("trust.json"))
    done = product.run("trust", "--yes", str(product.workspace))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("Trusted, until the file changes")
    assert "is trusted as it is" in product.run("trust").stdout
    assert "not used before you trust" not in product.run("run", "Hello").stderr
    assert product.run("trust", "--revoke").stdout.endswith("is no longer trusted.\n")
    assert SAYS in product.run("run", "Hello").stderr
    assert product.run("trust", "--revoke", "--yes").returncode == USAGE
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("keys", "code"), [("y\r", 0), ("\r", 1), ("n\r", 1), ("\x04", 1)])
def test_a_person_is_shown_what_it_is_and_asked(product: Product, keys: str, code: int) -> None:
    file = product.workspace / ".agent" / "settings.toml"
    file.write_text('model = "a\\u001b[2J\\u202eb"\n')
    with PseudoTerminal([*COMMAND, "trust"], product) as terminal:
        seen = terminal.wait_for("[y/N] ")
        assert 'model = "a\\u001b[2J\\u202eb"' in seen
        assert "\x1b[2J" not in seen
        terminal.type(keys)
        terminal.wait_for("rusted")
        assert terminal.ended() == code
    assert bool(list(product.home.rglob("trust.json"))) is (code == 0)


def test_a_project_that_only_tightens_needs_no_trust(product: Product) -> None:
    (product.workspace / ".agent" / "settings.toml").write_text('[sandbox]\nmode = "read-only"\n')
    done = product.run("trust", "--yes")
    assert (done.returncode, "nothing to trust" in done.stdout) == (0, True)
    assert not list(product.home.rglob("trust.json"))
