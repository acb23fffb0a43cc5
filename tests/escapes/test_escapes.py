"""Nothing gets out: every attempt on every stage, what it shows unconfined, and that ordinary work goes on.

A stage is a user and a rung; its tests stay in one process (`--dist loadgroup`), since it is played once.
"""

import re
import shutil
from collections.abc import Callable

import pytest

from tests.escapes.attack import Attack, Rung, Who, Work
from tests.escapes.links import NAMES
from tests.escapes.list import ATTACKS, BOMBED, WORKS
from tests.escapes.open import OPEN
from tests.escapes.play import Story
from tests.escapes.stages import STAGES, Stage

StoryOf = Callable[[Stage], Story]

on_each_stage = pytest.mark.parametrize(
    "stage",
    [pytest.param(stage, id=str(stage), marks=pytest.mark.xdist_group(str(stage))) for stage in STAGES],
)


def said(story: Story, part: str) -> bool:
    return any(part in note for note in story.notes)


PLAYED = [
    pytest.param(stage, attack, id=f"{stage}, {attack.name}", marks=pytest.mark.xdist_group(str(stage)))
    for stage in STAGES
    for attack in ATTACKS
    if stage.who in attack.who and stage.rung in attack.rungs
]


@pytest.mark.parametrize(("stage", "attack"), PLAYED)
def test_what_tries_to_get_out_does_not(stage: Stage, attack: Attack, story_of: StoryOf) -> None:
    story = story_of(stage)
    outcome = story.attacks[attack.name]
    assert outcome.control or outcome.uncontrolled, (
        f"unconfined it does nothing either: {outcome.control_text}"
    )
    if outcome.through and (why := OPEN.get((stage.rung, attack.name))):
        pytest.xfail(why)
    if outcome.through and stage.rung is Rung.LANDLOCK and attack.noted:
        assert said(story, attack.noted), f"{outcome.through}; no note says so: {story.notes}"
    else:
        assert not outcome.through, f"{outcome.through}: {outcome.text}"


@on_each_stage
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_ordinary_work_goes_on(stage: Stage, work: Work, story_of: StoryOf) -> None:
    if work.needs and not shutil.which(work.needs):
        pytest.skip(f"not played: {work.name}: {work.needs} is not installed")
    story = story_of(stage)
    outcome = story.works[work.name]
    if outcome.through and stage.rung is Rung.LANDLOCK and work.noted:
        assert said(story, work.noted), f"it fails; no note says so: {story.notes}"
    else:
        assert not outcome.through, outcome.text


@on_each_stage
@pytest.mark.parametrize("name", BOMBED)
def test_what_would_use_the_machine_up_is_ended(stage: Stage, name: str, story_of: StoryOf) -> None:
    wrong = story_of(stage).bombs[name]
    if wrong and (why := OPEN.get((stage.rung, name))):
        pytest.xfail(why)
    assert wrong == ""


@on_each_stage
@pytest.mark.parametrize("name", NAMES)
def test_links_lead_nobody_out(stage: Stage, name: str, story_of: StoryOf) -> None:
    assert story_of(stage).links[name] == ""


USERS = [
    pytest.param(stage, id=str(stage), marks=pytest.mark.xdist_group(str(stage)))
    for stage in STAGES
    if stage.who is Who.USER  # of root some of it is not true: what has more capabilities is closed to it
]


@pytest.mark.parametrize("stage", USERS)
def test_a_note_says_no_more_than_is_true(stage: Stage, story_of: StoryOf) -> None:
    story = story_of(stage)
    untrue = []
    for part in {attack.noted for attack in ATTACKS if attack.noted}:
        here = [
            story.attacks[attack.name]
            for attack in ATTACKS
            if attack.noted == part and stage.who in attack.who
        ]
        if said(story, part) and not any(outcome.through for outcome in here):
            untrue.append(part)
    assert untrue == []


def test_what_gets_through_by_now_is_on_the_list() -> None:
    names = {attack.name for attack in ATTACKS} | set(BOMBED)
    assert [name for _, name in OPEN if name not in names] == []


def test_every_attempt_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in ATTACKS] + [work.name for work in WORKS]
    assert len(names) == len(set(names))
    assert not [name for name in names if re.search(r"\b[A-Z]\d\d\b", name)]
