"""docs/events.md describes the events as they are: each type, each field, each type of a field."""

import re
from enum import Enum
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct

from protocol import events
from protocol.display import Display
from protocol.policy import Limit, Rung
from protocol.wire import Status
from supervisor.permits.asking import Decider, Scope
from tests.product import ROOT

TEXT = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S))
EVENTS: dict[str, type[Struct]] = {
    str(each.__struct_config__.tag): each for each in get_args(events.AnyEvent)
}
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def documented(title: str) -> dict[str, str]:
    """The fields of a section with their types."""
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", SECTIONS[title], re.M))


def named(annotation: object) -> str:
    """A type as the document words it."""
    if isinstance(annotation, UnionType):
        return " or ".join(named(part) for part in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"array of {named(get_args(annotation)[0])}s"
    assert isinstance(annotation, type)
    if annotation in PLAIN:
        return PLAIN[annotation]
    return "string" if issubclass(annotation, Enum) else annotation.__name__.lower()


def fields(struct: type[Struct]) -> dict[str, str]:
    return {name: named(kind) for name, kind in get_type_hints(struct).items() if not name.startswith("__")}


COMMON = fields(events.Event)


def test_the_document_has_a_section_for_each_event_in_their_order() -> None:
    titles = [title.strip("`") for title in SECTIONS if title.startswith("`")]
    assert titles == list(EVENTS)


@pytest.mark.parametrize("tag", EVENTS)
def test_an_event_has_the_fields_that_the_document_lists(tag: str) -> None:
    own = {name: kind for name, kind in fields(EVENTS[tag]).items() if name not in COMMON}
    assert documented(f"`{tag}`") == own


def test_what_all_events_share_and_what_they_are_made_of_is_listed() -> None:
    assert documented("In every event") == {"type": "string", **COMMON}
    assert documented("usage") == fields(events.Usage)
    assert documented("display") == fields(Display)
    assert documented("denial") == fields(events.Denial)
    assert f"version {events.SCHEMA} of the schema" in TEXT


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("sandbox", Rung),
        ("permission_asked", Scope),
        ("permission_answered", Decider),
        ("tool_finished", Status),
        ("tool_finished", Limit),
        ("turn_finished", events.StopReason),
    ],
)
def test_every_value_of_an_enumeration_is_named(section: str, values: type[Enum]) -> None:
    assert [each.value for each in values if f"`{each.value}`" not in SECTIONS[f"`{section}`"]] == []
