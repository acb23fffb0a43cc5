"""The stages are played once per process of the tests; what could not be played is named at the end."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.escapes.play import Story
from tests.escapes.stages import NotHereError, Stage, theatre

_LEFT_OUT = "not played: "


@pytest.fixture(scope="session")
def story_of() -> Iterator[Callable[[Stage], Story]]:
    """What happened on a stage.  Skips where it can't be had here."""
    stories: dict[Stage, Story | NotHereError] = {}
    with theatre() as place:

        def story(stage: Stage) -> Story:
            if stage not in stories:
                try:
                    stories[stage] = place.play(stage)
                except NotHereError as error:
                    stories[stage] = error
            found = stories[stage]
            if isinstance(found, NotHereError):
                pytest.skip(f"{_LEFT_OUT}{stage}: {found}")
            assert not found.lacks, f"this machine can have it, and yet {found.lacks}"
            return found

        yield story


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report.longrepr, tuple) and _LEFT_OUT in report.longrepr[2]:
            left_out[report.longrepr[2].partition(_LEFT_OUT)[2]] += 1
    for what, times in sorted(left_out.items()):
        terminalreporter.write_line(f"escapes not played: {what} ({times} tests)")
