"""Nothing gets out: every attempt on every stage, what it shows unconfined, and that ordinary work goes on.

A stage is a user and a rung; its tests stay in one process (`--dist loadgroup`), since it is played once.
"""

import re
import shutil
from collections.abc import Callable, Iterable

import pytest
from _pytest.mark import ParameterSet

from tests.escapes.attack import Attack, Rung, Who, Work
from tests.escapes.links import NAMES
from tests.escapes.list import ATTACKS, BOMBED, WORKS
from tests.escapes.play import Story
from tests.escapes.stages import STAGES, UNCONFINED, Stage

StoryOf = Callable[[Stage], Story]


def at(stage: Stage) -> pytest.MarkDecorator:
    """All tests of a stage in one process."""
    return pytest.mark.xdist_group(str(stage))


def played(stages: Iterable[Stage]) -> list[ParameterSet]:
    return [
        pytest.param(stage, attack, id=f"{stage}, {attack.name}", marks=at(stage))
        for stage in stages
        for attack in ATTACKS
        if stage.who in attack.who and (stage.rung in attack.rungs or stage.rung is Rung.NONE)
    ]


def on(stages: Iterable[Stage]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "stage", [pytest.param(stage, id=str(stage), marks=at(stage)) for stage in stages]
    )


def said(story: Story, part: str) -> bool:
    return any(part in note for note in story.notes)


@pytest.mark.parametrize(("stage", "attack"), played(STAGES))
def test_what_tries_to_get_out_does_not(stage: Stage, attack: Attack, story_of: StoryOf) -> None:
    story = story_of(stage)
    outcome = story.attacks[attack.name]
    if outcome.through and (note := attack.note(stage.rung)):
        assert said(story, note), f"{outcome.through}; no note says so: {story.notes}"
    else:
        assert not outcome.through, f"{outcome.through}: {outcome.text}"


@pytest.mark.parametrize(("stage", "attack"), played(UNCONFINED))
def test_without_a_sandbox_it_does(stage: Stage, attack: Attack, story_of: StoryOf) -> None:
    outcome = story_of(stage).attacks[attack.name]
    assert outcome.through or outcome.uncontrolled, f"it does nothing, so it proves nothing: {outcome.text}"


@on(STAGES)
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_ordinary_work_goes_on(stage: Stage, work: Work, story_of: StoryOf) -> None:
    if work.needs and not shutil.which(work.needs):
        pytest.skip(f"not played: {work.name}: {work.needs} is not installed")
    story = story_of(stage)
    outcome = story.works[work.name]
    if outcome.through and (note := work.note(stage.rung)):
        assert said(story, note), f"it fails; no note says so: {story.notes}"
    else:
        assert not outcome.through, outcome.text


@on(stage for stage in STAGES if stage.rung is not Rung.BARE)  # limits don't rest on Landlock
@pytest.mark.parametrize("name", BOMBED)
def test_what_would_use_the_machine_up_is_ended(stage: Stage, name: str, story_of: StoryOf) -> None:
    assert story_of(stage).bombs[name] == ""


@on(STAGES)
@pytest.mark.parametrize("name", NAMES)
def test_links_lead_nobody_out(stage: Stage, name: str, story_of: StoryOf) -> None:
    assert story_of(stage).links[name] == ""


# Of root some of a note may be untrue: what has more capabilities is closed to it.
@on(stage for stage in STAGES if stage.who is Who.USER)
def test_a_note_says_no_more_than_is_true(stage: Stage, story_of: StoryOf) -> None:
    story = story_of(stage)
    untrue = []
    for part in {attack.note(stage.rung) for attack in ATTACKS} - {""}:
        here = [
            story.attacks[attack.name]
            for attack in ATTACKS
            if attack.note(stage.rung) == part and stage.who in attack.who
        ]
        if said(story, part) and not any(outcome.through for outcome in here):
            untrue.append(part)
    assert untrue == []


def test_every_attempt_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in ATTACKS] + [work.name for work in WORKS]
    assert len(names) == len(set(names))
    assert not [name for name in names if re.search(r"\b[A-Z]\d\d\b", name)]
