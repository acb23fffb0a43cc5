"""Bad input: one clear line, the documented exit code, no traceback, and nothing half-written."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.rehearsal.script import Html, Script, Step
from supervisor.rehearsal.thread import ServerThread
from tests.product import COMMAND, Product, one_line
from tests.pseudo_terminal import PseudoTerminal

NOWHERE = ["--base-url", "http://127.0.0.1:9"]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread({"main": Script(steps=(Step(text="Yes."),), repeat_last=True)}) as running:
        yield running


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def refused(product: Product, arguments: list[str], code: int, words: list[str]) -> None:
    """In all three ways in, as far as they take these options: `run`, `run --json`, bare without a terminal;
    and bare at a terminal, where the line stands alone as well."""
    done = product.run("run", *arguments, "Hello")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    one_line(done.stderr, words)
    done = product.run("run", "--json", *arguments, "Hello")
    assert done.returncode == code
    one_line(done.stderr, words)
    with PseudoTerminal([*COMMAND, *arguments], product) as terminal:
        assert terminal.ended() == code
    last = terminal.text.replace("\x1b[?2004l", "").rpartition("\x1b[K")[2]
    one_line("agent: " + last.partition("agent: ")[2], words)
    assert "Traceback" not in terminal.text


def write_settings(product: Product, text: bytes) -> Path:
    place = Path(product.environ["XDG_CONFIG_HOME"]) / "polier" / "settings.toml"
    place.parent.mkdir(parents=True)
    place.write_bytes(text)
    return place


@pytest.mark.parametrize("arguments", [["--nope"], ["--modell", "x"], ["run", "--nope", "Hello"]])
def test_an_unknown_flag(product: Product, arguments: list[str]) -> None:
    done = product.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    one_line(done.stderr, [arguments[-2] if "Hello" in arguments else arguments[0], "agent --help"])
    assert not product.home.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'model = "m"\nshow_tool_results = "loud"\n', ["line 2", "show_tool_results", '"summary"']),
        (b"\n\ntool_result_cap_bytes = 1\n", ["line 3", "tool_result_cap_bytes", ">="]),
        (b'modell = "m"\n', ["line 1", "modell", "model"]),
        (b"model = \n", ["line 1"]),
        (b"\xff\xfe", ["line 1", "UTF-8"]),
    ],
)
def test_an_invalid_settings_file_is_named_with_path_line_key_and_what_is_allowed(
    product: Product, text: bytes, words: list[str]
) -> None:
    place = write_settings(product, text)
    refused(product, [], 2, [str(place), *words])
    assert product.run("sessions").returncode == 2
    assert not product.home.exists()


def test_a_settings_file_that_can_not_be_read(product: Product) -> None:
    place = write_settings(product, b"")
    place.unlink()
    place.mkdir()
    refused(product, NOWHERE, 2, [str(place), "can't be read"])
    assert not product.home.exists()


@pytest.mark.parametrize("arguments", [(), ("sessions",), ("run", "Hello")])
def test_a_current_directory_that_was_removed(product: Product, arguments: tuple[str, ...]) -> None:
    product.workspace.rmdir()
    command = ["sh", "-c", 'mkdir "$0"; cd "$0"; rmdir "$0"; exec "$@"', str(product.workspace), *COMMAND]
    done = subprocess.run(
        [*command, *arguments], env=product.environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    one_line(done.stderr, ["the workspace", "No such file or directory"])


def test_a_missing_workspace(product: Product) -> None:
    missing = str(product.workspace / "missing")
    refused(product, ["--workspace", missing, *NOWHERE], 2, [missing, "No such file or directory"])
    assert not product.home.exists()


def test_a_state_directory_that_nobody_can_write(product: Product) -> None:
    product.environ["AGENT_HOME"] = "/proc/polier"
    refused(product, NOWHERE, 1, ["/proc/polier", "AGENT_HOME"])


@pytest.mark.parametrize("id_", ["nosuchid", "../../etc", "", "a/b", "x" * 200])
def test_an_unknown_conversation(product: Product, id_: str) -> None:
    for flag in ("--resume", "--fork"):
        refused(product, [f"{flag}={id_}", *NOWHERE], 2, [id_[:40] or flag])
    assert not list(product.home.glob("sessions/*/*.jsonl"))


@pytest.mark.parametrize("status", [200, 404])
def test_a_server_that_answers_with_a_web_page(server: ServerThread, product: Product, status: int) -> None:
    url = server.add(f"html{status}", Script(steps=(Step(fault=Html(status=status)),), repeat_last=True))
    done = product.run("run", "--base-url", url, "Hello")
    assert (done.returncode, done.stdout) == (3, "")
    one_line(done.stderr, [url, "web page", "base URL", "withdrawn: Hello"])
    assert product.transcript()[-1]["kind"] == "withdrawn"


def test_a_model_name_that_the_server_refuses(server: ServerThread, product: Product) -> None:
    done = product.run("run", "--base-url", server.url(), "--model", "grand-master", "Hello")
    assert (done.returncode, done.stdout) == (3, "")
    one_line(done.stderr, ["grand-master", "--model", "withdrawn: Hello"])
    assert product.transcript()[-1]["kind"] == "withdrawn"
    (said,) = product.home.glob("sessions/*")
    again = product.run("run", "--base-url", server.url(), "--resume", said.name, "Hello")
    assert (again.returncode, again.stdout) == (0, "Yes.\n"), again.stderr
    assert [line["role"] for line in product.messages()] == ["user", "user", "assistant"]
