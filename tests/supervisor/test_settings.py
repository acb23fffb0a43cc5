"""Settings: which source beats which, what a project's file may say, and what is said of a wrong one."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import platformdirs
import pytest

from supervisor.exits import USAGE, StopError
from supervisor.places import home_of, project_of, user_file
from supervisor.settings import (
    Flags,
    Loaded,
    Settings,
    SettingsError,
    load,
    read_key,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a project `p` that has a git directory, and a configuration directory."""
    (tmp_path / "p" / ".git").mkdir(parents=True)
    (tmp_path / "p" / ".agent").mkdir()
    (tmp_path / "config" / "polier").mkdir(parents=True)
    return tmp_path.resolve()


def user_says(place: Path, text: str) -> None:
    (place / "config" / "polier" / "settings.toml").write_text(text, encoding="utf-8")


def project_says(place: Path, text: str) -> None:
    (place / "p" / ".agent" / "settings.toml").write_text(text, encoding="utf-8")


def loaded(place: Path, flags: Flags | None = None, **environ: str) -> Loaded:
    return load(flags or Flags(), environment(place, **environ), place / "p")


def environment(place: Path, **more: str) -> Mapping[str, str]:
    return {"XDG_CONFIG_HOME": str(place / "config"), "AGENT_HOME": str(place / "state"), **more}


def fails(place: Path, flags: Flags | None = None, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(place, flags, **environ)
    assert caught.value.exit_code == USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_any_source_the_defaults_hold(place: Path) -> None:
    settings = loaded(place).settings
    assert (settings.model, settings.base_url) == ("deepseek-flash", "https://api.deepseek.com")
    assert (settings.max_tool_rounds_per_turn, settings.max_turns_per_session) == (200, 500)
    assert (settings.window, settings.max_output_tokens, settings.budget) == (1_000_000, 32_000, 500_000)
    assert settings.limits.result_cap_bytes == 32_000
    assert not settings.configured
    assert (settings.home, settings.workspace, settings.root) == (place / "state", place / "p", place / "p")


def test_flags_beat_the_environment_that_beats_the_users_file(place: Path) -> None:
    user_says(place, 'model = "of-the-file"\n')
    assert loaded(place).settings.model == "of-the-file"
    assert loaded(place, AGENT_MODEL="of-the-environment").settings.model == "of-the-environment"
    flags = Flags(model="of-the-flag")
    assert loaded(place, flags, AGENT_MODEL="of-the-environment").settings.model == "of-the-flag"


def test_flags_beat_the_project_that_beats_the_users_file(place: Path) -> None:
    user_says(place, 'max_tool_rounds_per_turn = 50\nshow_tool_results = "off"\n')
    project_says(place, 'max_tool_rounds_per_turn = 20\nshow_tool_results = "full"\n')
    settings = loaded(place).settings
    assert (settings.max_tool_rounds_per_turn, settings.show_tool_results) == (20, "full")
    assert loaded(place, Flags(max_tool_rounds=70)).settings.max_tool_rounds_per_turn == 70


def test_an_empty_variable_counts_as_none(place: Path) -> None:
    settings = loaded(place, AGENT_MODEL="", AGENT_BASE_URL="").settings
    assert (settings.model, settings.configured) == ("deepseek-flash", False)


def test_a_server_is_configured_by_flag_environment_or_the_users_file(place: Path) -> None:
    url = "http://127.0.0.1:9/x"
    assert loaded(place, Flags(base_url=url)).settings.configured
    assert loaded(place, AGENT_BASE_URL=url).settings.configured
    user_says(place, f'base_url = "{url}"\n')
    settings = loaded(place).settings
    assert (settings.configured, settings.base_url) == (True, url)


def test_a_projects_server_and_key_command_are_named_and_not_used(place: Path) -> None:
    marker = place / "ran"
    project_says(
        place,
        'base_url = "http://127.0.0.1:1/v1"\n'
        f'key_command = "touch {marker}"\n'
        'key_env = "OTHER"\nmodel = "m"\nproxy = "http://127.0.0.1:1"\nshow_tool_results = "preview"\n'
        "[provider]\nheaders = { a = 1 }\n",
    )
    found = loaded(place)
    assert found.notices == (
        f"{place}/p/.agent/settings.toml: not read from a project's file: "
        "base_url, key_command, key_env, proxy, provider; not used before you trust it (agent trust): model",
    )
    assert not found.settings.configured
    assert (found.settings.base_url, found.settings.key_env) == (
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
    )
    assert found.settings.show_tool_results == "preview"
    assert not marker.exists()


def test_a_project_may_lower_a_cap_and_not_raise_it(place: Path) -> None:
    project_says(place, "tool_result_cap_bytes = 9000\nmax_tool_rounds_per_turn = 5000\n")
    found = loaded(place)
    assert found.settings.tool_result_cap_bytes == 9000
    assert found.settings.max_tool_rounds_per_turn == 200
    assert found.notices[0].endswith("not used before you trust it (agent trust): max_tool_rounds_per_turn")


def test_a_projects_odd_names_are_shown_harmless_and_few(place: Path) -> None:
    project_says(place, '"a\\u001b[2J" = 1\n' + "".join(f"k{number} = 1\n" for number in range(30)))
    (notice,) = loaded(place).notices
    assert "a^[[2J" in notice
    assert notice.endswith("k8 and 21 more")


def test_a_projects_file_is_found_from_a_directory_below(place: Path) -> None:
    (place / "p" / "src").mkdir()
    project_says(place, "command_timeout = 7\n")
    found = load(Flags(workspace="p/src"), environment(place), place)
    assert (found.settings.workspace, found.settings.root) == (place / "p" / "src", place / "p")
    assert found.settings.limits.command_seconds == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "\nwindow = 12\n",
            "line 2: window: Expected `int` >= 4000; allowed: a whole number of tokens, 4000",
        ),
        ('window = "big"\n', "line 1: window: Expected `int`, got `str`; allowed: a whole number of tokens"),
        ('show_tool_results = "all"\n', 'Invalid enum value \'all\'; allowed: "off", "summary", "preview"'),
        ("model = 1\n\n", "line 1: model: Expected `str`, got `int`; allowed: a text of 1 to 200"),
        ("# x\nmodle = 1\n", "line 2: there is no setting modle; there are: model, base_url, key_env"),
        ("[server]\nx = 1\n", "line 1: there is no setting server"),
        ("command_timeout = 0.5\n", "allowed: a number of seconds, 1 to 600"),
        ('base_url = "api.example.com"\n', "line 1: base_url is no http:// or https:// address: api.ex"),
        ('base_url = "http://[x"\n', "is no http:// or https:// address"),
        (
            'base_url = "https://a:b@example.com"\n',
            "must not hold a name, a password, a query or a fragment: https://example.com",
        ),
        ('base_url = "https://example.com/\\u001b[2J"\n', "address: https://example.com/^[[2J"),
        ("key_env = 'A-B'\n", "allowed: the name of an environment variable"),
        ("model = \n", "is not TOML: Invalid value (at line 1, column 9)"),
        ("a = " + "[" * 5000, "is not TOML"),
    ],
)
def test_a_wrong_users_file_is_refused_with_place_key_and_what_is_allowed(
    place: Path, text: str, words: str
) -> None:
    user_says(place, text)
    message = fails(place)
    assert message.startswith(f"{place}/config/polier/settings.toml")
    assert words in message


def test_a_wrong_value_in_a_projects_file_is_refused_with_its_path(place: Path) -> None:
    project_says(place, "tool_result_cap_bytes = 3\n")
    assert fails(place).startswith(f"{place}/p/.agent/settings.toml, line 1: tool_result_cap_bytes: Expected")
    project_says(place, 'tool_result_cap_bytes = "x"\n')
    assert "got `str`" in fails(place)


def test_a_file_that_is_not_utf8_is_refused_with_its_line(place: Path) -> None:
    (place / "config" / "polier" / "settings.toml").write_bytes(b'# a\nmodel = "caf\xe9"\n')
    assert fails(place).endswith("settings.toml, line 2: is not UTF-8")


def test_a_file_in_utf8_is_read_with_and_without_a_byte_order_mark(place: Path) -> None:
    (place / "config" / "polier" / "settings.toml").write_bytes(b'\xef\xbb\xbfmodel = "caf\xc3\xa9"\n')
    assert loaded(place).settings.model == "café"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_settings_file_that_is_no_file_is_refused_at_once(place: Path, make: object) -> None:
    assert callable(make)
    make(place / "p" / ".agent" / "settings.toml")
    assert fails(place).endswith(
        ("settings.toml: is not a file", "settings.toml: can't be read: Is a directory")
    )


def test_a_settings_file_that_links_to_itself_is_refused(place: Path) -> None:
    path = place / "config" / "polier" / "settings.toml"
    path.symlink_to(path)
    assert "can't be read" in fails(place)


def test_a_huge_settings_file_is_refused(place: Path) -> None:
    project_says(place, "#" * 300_000)
    assert fails(place).endswith("is larger than 262144 bytes")


def test_a_settings_directory_that_is_a_file_counts_as_none(place: Path) -> None:
    (place / "p" / ".agent").rmdir()
    (place / "p" / ".agent").write_text("")
    assert loaded(place).notices == ()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (Flags(model=""), "--model: model: Expected `str` of length >= 1"),
        (Flags(base_url="ftp://x"), "--base-url: base_url is no http:// or https:// address: ftp://x"),
        (Flags(max_tool_rounds=0), "--max-tool-rounds: max_tool_rounds_per_turn: Expected `int` >= 1"),
        (Flags(timeout=0), "--timeout: a number of seconds above 0"),
        (Flags(timeout=float("nan")), "--timeout: a number of seconds above 0"),
    ],
)
def test_a_wrong_flag_is_refused_by_its_name(place: Path, flags: Flags, words: str) -> None:
    assert words in fails(place, flags)


def test_a_wrong_variable_is_refused_by_its_name(place: Path) -> None:
    assert fails(place, AGENT_BASE_URL="nowhere").startswith("AGENT_BASE_URL: base_url is no http")


def test_a_small_window_leaves_a_quarter_for_the_reply(place: Path) -> None:
    user_says(place, "window = 64000\n")
    settings = loaded(place).settings
    assert (settings.max_output_tokens, settings.budget) == (16_000, 48_000)
    user_says(place, "window = 64000\nmax_output_tokens = 4000\nbudget_tokens = 20000\n")
    settings = loaded(place).settings
    assert (settings.max_output_tokens, settings.budget) == (4_000, 20_000)


def test_a_reply_as_large_as_the_window_is_refused(place: Path) -> None:
    user_says(place, "window = 8000\nmax_output_tokens = 8000\n")
    assert fails(place) == "max_output_tokens (8000) must be smaller than window (8000)"


@pytest.mark.parametrize("name", ["missing", "file", "loop", "bad\0name"])
def test_a_workspace_that_is_no_directory_ends_the_program_with_its_name(place: Path, name: str) -> None:
    (place / "p" / "file").write_text("")
    (place / "p" / "loop").symlink_to("loop")
    with pytest.raises(StopError, match=name.partition("\0")[0]) as caught:
        loaded(place, Flags(workspace=name))
    assert caught.value.exit_code == USAGE


def test_the_workspace_is_the_real_path(place: Path) -> None:
    (place / "link").symlink_to("p")
    assert loaded(place, Flags(workspace="../link")).settings.workspace == place / "p"


def test_a_project_is_the_directory_that_has_git_above_the_workspace(place: Path) -> None:
    deep = place / "p" / "a" / "b"
    deep.mkdir(parents=True)
    root, key = project_of(deep)
    assert root == place / "p"
    assert key == hashlib.sha256(os.fsencode(root)).hexdigest()
    (place / "q" / "r").mkdir(parents=True)
    assert project_of(place / "q" / "r")[0] == place / "q" / "r"
    (place / "q" / ".git").write_text("gitdir: elsewhere")
    assert project_of(place / "q" / "r")[0] == place / "q"


def key_of(place: Path, key: str, settings_text: str = "") -> str | None:
    user_says(place, settings_text)
    settings: Settings = loaded(place).settings
    return read_key(settings, {settings.key_env: key})


def test_the_key_comes_from_the_variable_that_the_user_names(place: Path) -> None:
    assert key_of(place, " sk-1 \n") == "sk-1"
    assert key_of(place, "sk-2", 'key_env = "MY_KEY"\n') == "sk-2"
    assert key_of(place, "") is None
    assert read_key(loaded(place).settings, {}) is None


@pytest.mark.parametrize("key", ["sk-\n1", "sk-é", "a\x00b"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(place: Path, key: str) -> None:
    with pytest.raises(SettingsError, match="the key in DEEPSEEK_API_KEY has characters") as caught:
        key_of(place, key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("environ", [{}, {"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"}])
def test_the_places_are_those_that_platformdirs_names(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    assert user_file(os.environ) == platformdirs.user_config_path("polier") / "settings.toml"
    assert home_of(os.environ, Path("/w")) == platformdirs.user_data_path("polier")


def test_the_state_directory_may_be_named_relative_to_where_the_program_starts() -> None:
    assert home_of({"AGENT_HOME": "state"}, Path("/w")) == Path("/w/state")


def test_settings_load_in_a_locale_without_utf8(place: Path) -> None:
    user_says(place, 'model = "漢字"\n')
    program = (
        "import os; from pathlib import Path; from supervisor.settings import Flags, load;"
        "print(ascii(load(Flags(), os.environ, Path.cwd()).settings.model))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment(place), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stdout == b"'\\u6f22\\u5b57'\n"
