"""The tools there are: names, schemas for the request, and the typed decoding of their arguments."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from protocol.tools import (
    edit_file,
    fetch,
    jobs,
    list_files,
    read_file,
    run_command,
    search,
    write_file,
)

Arguments = (
    read_file.ReadFile
    | write_file.WriteFile
    | edit_file.EditFile
    | list_files.ListFiles
    | search.Search
    | run_command.RunCommand
    | jobs.Jobs
    | fetch.Fetch
)


class Tool(Struct, frozen=True):
    """A tool as the model sees it.  `reads`: it changes nothing, so it may run beside others."""

    name: str
    arguments: type[Arguments]
    description: str
    reads: bool


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("read_file", read_file.ReadFile, read_file.DESCRIPTION, reads=True),
        Tool("write_file", write_file.WriteFile, write_file.DESCRIPTION, reads=False),
        Tool("edit_file", edit_file.EditFile, edit_file.DESCRIPTION, reads=False),
        Tool("list_files", list_files.ListFiles, list_files.DESCRIPTION, reads=True),
        Tool("search", search.Search, search.DESCRIPTION, reads=True),
        Tool("run_command", run_command.RunCommand, run_command.DESCRIPTION, reads=False),
        Tool("jobs", jobs.Jobs, jobs.DESCRIPTION, reads=False),
        Tool("fetch", fetch.Fetch, fetch.DESCRIPTION, reads=True),
    )
}
"""In the order in which they are offered; the order is part of the request's stable prefix."""


_QUOTED = 300
"""Characters."""


class ArgumentsError(ValueError):
    """These are no arguments of this tool; the message is for the model."""


def decode(name: str, arguments: str) -> Arguments:
    """The typed arguments.  An empty text counts as no arguments.  Raises ArgumentsError."""
    tool = TOOLS.get(name)
    if tool is None:
        raise ArgumentsError(f"there is no tool {_short(repr(name))}; there are: {', '.join(TOOLS)}")
    try:
        return msgspec.json.decode(arguments.strip() or "{}", type=tool.arguments)
    except msgspec.ValidationError as error:
        raise ArgumentsError(f"{name}: {_short(str(error))}; its arguments are: {_wanted(tool)}") from error
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ArgumentsError(f"{name}: the arguments are not JSON: {error}") from error


def _wanted(tool: Tool) -> str:
    """The names of its arguments, and of what stands in a list of them."""
    told = []
    for field in _fields(msgspec.inspect.type_info(tool.arguments)):
        kind = field.type
        inner = _fields(kind.item_type) if isinstance(kind, msgspec.inspect.VarTupleType) else ()
        names = ", ".join(one.name for one in inner)
        told.append(f"{field.name} (each has: {names})" if names else field.name)
    return ", ".join(told)


def _fields(kind: msgspec.inspect.Type) -> tuple[msgspec.inspect.Field, ...]:
    return kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()


def _short(text: str) -> str:
    """What the model wrote comes back in an error only as far as it helps."""
    return text if len(text) <= _QUOTED else text[:_QUOTED] + "…"


def schema(tool: Tool) -> dict[str, object]:
    """The tool's entry in a request's `tools`."""
    (described,), components = msgspec.json.schema_components((tool.arguments,), ref_template="#/{name}")
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": _inlined(described, components),
        },
    }


def _inlined(node: object, components: Mapping[str, object]) -> object:
    """The schema without references, titles and defaults: a third of the bytes, and any server reads it."""
    if isinstance(node, list):
        return [_inlined(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(components[node["$ref"].removeprefix("#/")], components)
    kept = {key: value for key, value in node.items() if key not in ("title", "default")}
    options = [option for option in kept.pop("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        kept |= options[0]
    elif options:
        kept["anyOf"] = options
    return {
        key: {name: _inlined(inner, components) for name, inner in value.items()}
        if key == "properties"
        else _inlined(value, components)
        for key, value in kept.items()
    }
