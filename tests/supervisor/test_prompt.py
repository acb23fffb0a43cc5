"""The prompt as a measuring instrument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.screen.prompt import AMBER, GREY, RED, Shown, prompt


def text(fragments: list[tuple[str, str]]) -> str:
    return "".join(piece for _, piece in fragments)


def test_the_prompt_shows_the_turn_and_the_share() -> None:
    assert text(prompt(3, 0.44)) == " You 3 ❯ 44% "


def test_before_a_conversation_is_open_neither_is_known() -> None:
    assert text(prompt(None, None)) == " You ❯ "
    assert text(Shown().drawn(coloured=True, glyph=">")) == " You > "


@pytest.mark.parametrize(
    ("share", "percent", "colour"),
    [
        (0.0, "0%", GREY),
        (0.8499, "84%", GREY),
        (0.85, "85%", AMBER),
        (0.9699, "96%", AMBER),
        (0.97, "97%", RED),
        (1.2, "120%", RED),
    ],
)
def test_the_digits_are_grey_amber_or_red(share: float, percent: str, colour: str) -> None:
    (_, shown) = prompt(1, share)
    assert shown == (f"fg:{colour}", f"{percent} ")


def test_without_colour_there_is_no_style() -> None:
    assert all(style == "" for style, _ in prompt(1, 0.99, coloured=False))


@given(st.integers(0, 200))
def test_the_digits_and_their_colour_change_at_the_same_share(percent: int) -> None:
    (_, (style, shown)) = prompt(1, percent / 100 + 1e-9)
    assert shown == f"{percent}% "
    assert style == f"fg:{RED if percent >= 97 else AMBER if percent >= 85 else GREY}"
