"""The tables of settings: sandbox, limits, rules; their words, their errors, and what flags say over them."""

from pathlib import Path

import pytest

from protocol.permission import parse
from protocol.policy import Limits, Mode, Network, Rung
from supervisor.settings import Flags
from tests.supervisor.test_settings import fails, loaded, place, user_says

__all__ = ["place"]


def test_without_a_table_the_workspace_may_be_written_and_no_host_be_reached(place: Path) -> None:
    settings = loaded(place).settings
    assert settings.sandbox.mode is Mode.WORKSPACE_WRITE
    assert (settings.sandbox.network, settings.sandbox.require) == (Network.OFF, Rung.OFF)
    assert settings.sandbox.hide_env_files
    assert settings.limits == Limits()
    assert (settings.rules.allow, settings.granted) == ((), ())


def test_each_key_of_the_tables_is_read_in_its_plain_form(place: Path) -> None:
    user_says(
        place,
        '[sandbox]\nmode = "read-only"\nrequire = "full"\nnetwork = "listed"\n'
        'hosts = ["Example.ORG", "*.example.net:8443", "[::1]", "[::1]:80"]\n'
        'read = ["~/data", "/srv"]\nwrite = ["~"]\nenvironment = ["EDITOR"]\n'
        'environment_secret = ["NPM_TOKEN"]\nhide_env_files = false\n'
        '[limits]\nmemory = "4G"\nprocesses = 99\ncpu_seconds = 7\nopen_files = 300\n'
        'file_size = "2 MiB"\noutput = 5000\ndisk = "1t"\n'
        '[rules]\nallow = ["run_command  git status "]\nask = ["write_file"]\ndeny = ["edit_file src/**"]\n',
    )
    settings = loaded(place, HOME="/home/u").settings
    sandbox = settings.sandbox
    assert (sandbox.mode, sandbox.require, sandbox.network) == (Mode.READ_ONLY, Rung.FULL, Network.LISTED)
    assert sandbox.hosts == ("example.org:443", "*.example.net:8443", "[::1]:443", "[::1]:80")
    assert (sandbox.read, sandbox.write) == (("/home/u/data", "/srv"), ("/home/u",))
    assert (sandbox.environment, sandbox.environment_secret) == (("EDITOR",), ("NPM_TOKEN",))
    assert not sandbox.hide_env_files
    assert settings.limits == Limits(
        memory_bytes=4 << 30,
        processes=99,
        cpu_seconds=7,
        open_files=300,
        file_bytes=2 << 20,
        output_bytes=5000,
        disk_bytes=1 << 40,
    )
    assert settings.rules.allow == ("run_command git status",)
    assert (settings.rules.ask, settings.rules.deny) == (("write_file",), ("edit_file src/**",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '\n[sandbox]\nmode = "off"\n',
            'line 3: sandbox.mode: Invalid enum value \'off\'; allowed: "read-only", "workspace-write"',
        ),
        ('sandbox.mode = "off"\n', "line 1: sandbox.mode: Invalid enum value 'off'"),
        ('sandbox = { mode = "off" }\n', "line 1: sandbox.mode: Invalid enum value 'off'"),
        ("[sandbox]\nmodus = 1\n", "line 2: there is no setting sandbox.modus; there are: mode, require"),
        ("[limits]\nram = 1\n", "line 2: there is no setting limits.ram; there are: memory, processes"),
        ("sandbox = 3\n", "line 1: sandbox: Expected `object`, got `int`; allowed: a table"),
        ("rules = []\n", "line 1: rules: Expected `object`, got `array`; allowed: a table"),
        ('[sandbox]\nhosts = "a.b"\n', "line 2: sandbox.hosts: Expected `array`, got `str`; allowed: a list"),
        ("[sandbox]\nhosts = [1]\n", "line 2: sandbox.hosts: Expected `str`, got `int`; allowed: a list of"),
        ('[sandbox]\nhosts = ["a b"]\n', "line 2: sandbox.hosts: 'a b' is no host and no host with a port"),
        ('[sandbox]\nhosts = ["h:99999"]\n', "'h:99999' is no host and no host with a port; allowed: a list"),
        ('[sandbox]\nread = ["data"]\n', "line 2: sandbox.read: 'data' is no absolute path; allowed: a list"),
        ('[sandbox]\nread = ["~other"]\n', "'~other' is no absolute path"),
        ('[sandbox]\nenvironment = ["A-B"]\n', "line 2: sandbox.environment: 'A-B' is no name of a variable"),
        (
            '[sandbox]\nenvironment = ["GH_HOST"]\n',
            "'GH_HOST' looks like a secret; to pass it on, name it in",
        ),
        ('[sandbox]\nenvironment = ["my_token"]\n', "'my_token' looks like a secret"),
        ('[sandbox]\nenvironment_secret = ["DEEPSEEK_API_KEY"]\n', "commands never get it"),
        ('[limits]\nmemory = "much"\n', "line 2: limits.memory: 'much' is no size; allowed: bytes as a"),
        (
            '[limits]\nmemory = "1K"\n',
            "line 2: limits.memory: Expected `int` >= 67108864; allowed: bytes as a number, or as "
            '"512M", "4G"; at least 64M',
        ),
        ('[limits]\nmemory = "9999T"\n', "limits.memory: Expected `int` <= 1125899906842624"),
        ("[limits]\nmemory = 1.5\n", "limits.memory: Expected `int | null`, got `float`"),
        ("[limits]\nprocesses = 1\n", "allowed: a whole number of processes, 16 to 1000000"),
        (
            '[rules]\nallow = [\n "run_commnd ls",\n]\n',
            "line 2: rules.allow: 'run_commnd ls' begins with no tool; there are: read_file",
        ),
        ('[rules]\ndeny = ["run_command a\\u001b"]\n', "has characters that can't be shown"),
        ('["a - at `$.sandbox"]\n', ": there is no setting a - at `$.sandbox; there are: model"),
    ],
)
def test_a_wrong_table_is_refused_with_line_key_and_what_is_allowed(
    place: Path, text: str, words: str
) -> None:
    user_says(place, text)
    message = fails(place)
    assert message.startswith(f"{place}/config/polier/settings.toml") or "commands never" in words
    assert words in message


def test_the_mode_comes_from_the_flag_then_the_variable_then_the_file(place: Path) -> None:
    user_says(place, '[sandbox]\nmode = "read-only"\nnetwork = "on"\n')
    assert loaded(place, AGENT_SANDBOX="").settings.sandbox.mode is Mode.READ_ONLY
    assert loaded(place, AGENT_SANDBOX="workspace-write").settings.sandbox.mode is Mode.WORKSPACE_WRITE
    flags = Flags(sandbox="unconfined")
    found = loaded(place, flags, AGENT_SANDBOX="workspace-write").settings.sandbox
    assert (found.mode, found.network) == (Mode.UNCONFINED, Network.ON)
    assert fails(place, AGENT_SANDBOX="no").startswith("AGENT_SANDBOX: sandbox.mode: Invalid enum value")
    assert fails(place, Flags(sandbox="no")).startswith("--sandbox: sandbox.mode: Invalid enum value")


def test_what_is_allowed_by_flag_is_a_permission_or_a_rule(place: Path) -> None:
    user_says(place, '[rules]\nallow = ["search"]\n')
    words = ("read:~/x", "network:A.b:80", "run_command git push*", "git-write")
    settings = loaded(place, Flags(allow=words), HOME="/home/u").settings
    assert settings.granted == (parse("read:/home/u/x"), parse("network:a.b:80"), parse("git-write"))
    assert settings.rules.allow == ("search", "run_command git push*")


@pytest.mark.parametrize("given", ["", "run_commands ls", "write", "write:", "network:h", "git-write:x"])
def test_what_is_neither_a_permission_nor_a_rule_is_refused(place: Path, given: str) -> None:
    message = fails(place, Flags(allow=(given,)))
    assert message.startswith(f"--allow: {given!r}")
    assert message.endswith("or a rule: a tool, or a tool and a pattern")
