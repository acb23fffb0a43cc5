"""Rules and `--allow` in the whole program: from a settings file to what the model is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.thread import ServerThread
from tests.product import Product


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    """The model asks for two commands and to write a file, then tells what came of it."""
    steps = (
        Step(calls=(ScriptedCall("run_command", {"command": "touch made; rm keep"}),)),
        Step(calls=(ScriptedCall("write_file", {"path": "src/../src/a", "content": "x"}),)),
        Step(calls=(ScriptedCall("run_command", {"command": "touch later"}),)),
        Step(text="Done."),
    )
    with ServerThread({"main": Script(steps=steps)}) as server:
        made = Product(tmp_path, server.url())
        (made.workspace / "keep").touch()
        (made.workspace / "src").mkdir()
        yield made


def settings(product: Product, text: str) -> None:
    place = Path(product.environ["XDG_CONFIG_HOME"]) / "polier"
    place.mkdir(parents=True)
    (place / "settings.toml").write_text(text)


def files(product: Product) -> set[str]:
    return {
        str(path.relative_to(product.workspace)) for path in product.workspace.rglob("*") if path.is_file()
    }


def test_without_rules_the_sandbox_alone_decides(product: Product) -> None:
    done = product.run("run", "Go")
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert files(product) == {"made", "src/a", "later"}


def test_what_a_rule_denies_does_not_run_at_all_and_the_model_is_told_which(product: Product) -> None:
    settings(product, '[rules]\ndeny = ["run_command rm", "write_file src/**"]\n')
    done = product.run("run", "Go")
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert files(product) == {"keep", "later"}
    told = str(product.messages())
    assert "run_command rm" in told
    assert "write_file src/**" in told


def test_what_a_rule_asks_about_is_not_run_where_nobody_is_there(product: Product) -> None:
    settings(product, '[rules]\nask = ["run_command touch"]\n')
    assert product.run("run", "Go").returncode == 0
    assert files(product) == {"keep", "src/a"}


def test_a_rule_that_asks_beats_one_that_allows_on_the_command_line(product: Product) -> None:
    settings(product, '[rules]\nask = ["run_command rm"]\n')
    done = product.run("run", "--allow", "run_command", "Go")
    assert done.returncode == 0
    assert files(product) == {"keep", "src/a", "later"}


def test_a_read_only_run_writes_nothing(product: Product) -> None:
    done = product.run("run", "--sandbox", "read-only", "Go")
    assert done.returncode == 0
    assert files(product) == {"keep"}


@pytest.mark.parametrize("flags", [("--allow", "run_comand x"), ("--sandbox", "off"), ("--allow", "read:")])
def test_a_wrong_flag_ends_the_run_before_it_begins(product: Product, flags: tuple[str, str]) -> None:
    for arguments in (("run", *flags, "Go"), flags):
        done = product.run(*arguments)
        assert done.returncode == 2
        assert flags[0] in done.stderr
        assert done.stderr.count("\n") == 1
    assert files(product) == {"keep"}
