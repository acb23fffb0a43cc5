"""What is told to the process that plays, and what it tells: one file each, as JSON."""

import msgspec
from msgspec import Struct

from tests.escapes.attack import Rung, Who


class Part(Struct, frozen=True):
    """`root`: a directory of the player's own.  `run`: another one below /run, or empty."""

    who: Who
    rung: Rung
    root: str
    run: str
    only: str = ""
    """Only what has this in its name; empty for all."""


class Outcome(Struct, frozen=True):
    """`through`: what shows that it got through (of work: that it failed), or empty.  `uncontrolled`: why it
    was not tried without a sandbox."""

    through: str
    text: str
    uncontrolled: str = ""


class Story(Struct, frozen=True):
    """`lacks`: why the rung could not be had, or empty."""

    lacks: str
    rung: str = ""
    means: str = ""
    notes: tuple[str, ...] = ()
    attacks: dict[str, Outcome] = {}
    works: dict[str, Outcome] = {}
    bombs: dict[str, str] = {}
    """What went wrong, by the name of the attempt; empty where nothing did."""
    links: dict[str, str] = {}
    """What the file tools said, by the name of the link test; empty where all was right."""


PART = msgspec.json.Decoder(Part)
STORY = msgspec.json.Decoder(Story)
