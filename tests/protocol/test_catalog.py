"""The tools' schemas as servers read them, and the typed decoding of arguments."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from protocol.tools import catalog
from protocol.tools.catalog import TOOLS, ArgumentsError, decode, schema
from protocol.tools.edit_file import Edit, EditFile
from protocol.tools.jobs import Jobs
from protocol.tools.list_files import ListFiles
from protocol.tools.read_file import ReadFile

NAMES = {
    "read_file": {"path", "offset", "limit", "byte_offset"},
    "write_file": {"path", "content"},
    "edit_file": {"path", "edits"},
    "list_files": {"path", "glob", "limit"},
    "search": {"pattern", "path", "glob", "limit"},
    "run_command": {"command", "timeout", "background", "dry_run", "needs", "why"},
    "fetch": {"url"},
    "jobs": {"action", "id", "since", "text", "timeout"},
}


def walk(node: object) -> list[object]:
    found = [node]
    if isinstance(node, dict):
        found += [inner for value in node.values() for inner in walk(value)]
    if isinstance(node, list):
        found += [inner for value in node for inner in walk(value)]
    return found


@pytest.mark.parametrize("name", TOOLS)
def test_a_schema_is_plain_json_that_any_server_reads(name: str) -> None:
    told = json.loads(msgspec.json.encode(schema(TOOLS[name])))
    assert told["type"] == "function"
    function = told["function"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"])
    assert function["name"] == name
    parameters = function["parameters"]
    assert parameters["type"] == "object"
    assert parameters["additionalProperties"] is False
    assert set(parameters["properties"]) == NAMES[name]
    assert set(parameters["required"]) <= NAMES[name]
    for node in walk(parameters):
        if isinstance(node, dict):
            assert not {"$ref", "anyOf", "title", "default"} & node.keys()
    assert all("type" in p or "enum" in p for p in parameters["properties"].values())


def test_a_choice_of_types_is_kept_but_null_is_not_offered() -> None:
    class Odd(Struct):
        title: int | str | None = None

    told = schema(msgspec.structs.replace(TOOLS["search"], arguments=Odd))
    assert told["function"] == {
        "name": "search",
        "description": TOOLS["search"].description,
        "parameters": {
            "type": "object",
            "properties": {"title": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
            "required": [],
        },
    }


def test_a_list_of_edits_is_described_in_place() -> None:
    told = json.loads(msgspec.json.encode(schema(TOOLS["edit_file"])))
    items = told["function"]["parameters"]["properties"]["edits"]["items"]
    assert set(items["properties"]) == {"old", "new", "replace_all"}
    assert set(items["required"]) == {"old", "new"}


def test_the_fixed_schemas_of_all_tools_stay_small() -> None:
    assert len(msgspec.json.encode([schema(tool) for tool in TOOLS.values()])) < 6_000


def test_arguments_become_typed() -> None:
    assert decode("read_file", '{"path": "a.py", "offset": 3}') == ReadFile("a.py", 3)
    assert decode("edit_file", '{"path":"a","edits":[{"old":"x","new":"y"}]}') == EditFile(
        "a", (Edit("x", "y"),)
    )
    assert decode("jobs", '{"action":"list"}') == Jobs("list")


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_text_counts_as_no_arguments(text: str) -> None:
    assert decode("list_files", text) == ListFiles()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nope", "{}", "there is no tool 'nope'; there are: read_file, write_file"),
        ("read_file", "{}", "missing required field `path`; its arguments are: path, offset"),
        ("read_file", '{"path": "a", "line": 3}', "unknown field `line`; its arguments are: path, offset"),
        ("read_file", '{"path": "a", "offset": 0}', ">= 1"),
        ("edit_file", '{"path": "a", "edits": []}', "length >= 1"),
        (
            "edit_file",
            '{"path": "a", "edits": [{"old_string": "x", "new": "y"}]}',
            "`$.edits[0]`; its arguments are: path, edits (each has: old, new, replace_all)",
        ),
        ("jobs", '{"action": "kill"}', "Invalid enum value 'kill'"),
        ("run_command", '{"command": "a", "timeout": 0}', "> 0"),
        ("read_file", '{"path": "a', "the arguments are not JSON"),
        ("read_file", '{"path": "\ud800"}', "the arguments are not JSON"),
        ("read_file", '{"path": "\\ud800"}', "the arguments are not JSON"),
    ],
)
def test_what_is_wrong_with_arguments_is_said_to_the_model(name: str, text: str, words: str) -> None:
    with pytest.raises(ArgumentsError, match=re.escape(words)):
        decode(name, text)


@given(st.sampled_from(sorted(TOOLS)), st.text(max_size=60))
def test_any_text_is_arguments_or_an_arguments_error(name: str, text: str) -> None:
    try:
        assert isinstance(decode(name, text), TOOLS[name].arguments)
    except ArgumentsError:
        return


def test_only_tools_that_read_may_run_beside_others() -> None:
    assert {name for name, tool in catalog.TOOLS.items() if tool.reads} == {
        "read_file",
        "list_files",
        "search",
        "fetch",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [("n" * 100_000, "{}"), ("read_file", f'{{"path": "a", "{"k" * 100_000}": 1}}')],
    ids=["name of a tool", "name of an argument"],
)
def test_what_the_model_wrote_comes_back_only_as_far_as_it_helps(name: str, text: str) -> None:
    with pytest.raises(ArgumentsError) as raised:
        decode(name, text)
    assert len(str(raised.value)) < 600
