"""The house keeps its shape: sizes, docstrings, and the map in ARCHITECTURE.md.

Directions of imports are checked by import-linter (contracts in pyproject.toml), not here.
"""

import ast
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.tools.catalog import TOOLS

ROOT = Path(__file__).parents[1]
HOUSES = ("protocol", "supervisor", "worker")
FILE_LINES = 300
FUNCTION_LINES = 50
SLACK = 1.1
"""The ceilings are "about": a tenth above them a file says that it has two subjects."""

FILES = sorted(path for house in HOUSES for path in (ROOT / house).rglob("*.py"))
BENCH_FILES = sorted((ROOT / "bench").rglob("*.py"))
PACKAGE_FILES = sorted(
    path for house in (*HOUSES, "tests", "bench") for path in (ROOT / house).rglob("__init__.py")
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_has_one_subject_and_so_stays_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES * SLACK, f"{name(path)} has {lines} lines; the ceiling is {FILE_LINES}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_function_stays_short(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    long = [
        f"{node.name} ({(node.end_lineno or 0) - node.lineno + 1} lines)"
        for node in functions(tree)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES * SLACK
    ]
    assert long == []


@pytest.mark.parametrize("path", [*FILES, *BENCH_FILES], ids=name)
def test_a_file_says_what_lives_in_it(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name)
def test_a_package_file_holds_a_docstring_only(path: Path) -> None:
    assert len(ast.parse(path.read_text(encoding="utf-8")).body) == 1


def the_map() -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text[text.index("## Rooms") : text.index("## The journey")]


def test_every_room_stands_in_the_map() -> None:
    listed = the_map()
    rooms = [
        f"{path.name}/" if path.is_dir() else path.name
        for house in ("supervisor", "worker")
        for path in sorted((ROOT / house).iterdir())
        if (path.is_dir() and (path / "__init__.py").exists())
        or (path.suffix == ".py" and path.name != "__init__.py")
    ]
    assert [room for room in rooms if room not in listed] == []


def test_every_file_stands_in_the_map() -> None:
    listed = set(re.findall(r"\w+", the_map()))
    inner = [path for path in FILES if path.stem != "__init__" and path.stem not in TOOLS]
    assert [name(path) for path in inner if path.stem not in listed] == []


def test_what_is_declared_is_imported_and_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[^\w-]", wanted)[0].replace("-", "_") for wanted in project["dependencies"]}
    imported: set[str] = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    program = {"ripgrep"}  # it is run, not imported
    assert declared == imported - sys.stdlib_module_names - set(HOUSES) | program


def test_no_name_says_nothing() -> None:
    empty = ("manager", "handler", "helper", "utils", "base", "misc")
    found = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        found += [each for each in [path.stem, *names] if each.lower().endswith(empty)]
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_open_end_is_left_in_the_code(path: Path) -> None:
    with tokenize.open(path) as file:
        comments = [
            token.string
            for token in tokenize.generate_tokens(file.readline)
            if token.type == tokenize.COMMENT
        ]
    assert [
        comment for comment in comments if any(word in comment for word in ("TODO", "FIXME", "XXX"))
    ] == []
