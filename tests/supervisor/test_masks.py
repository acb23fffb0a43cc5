"""Secrets: our own key never enters a conversation, known shapes leave no other way than masked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.masks import MASKED_OWN, Masks, mask_shapes

# Put together here so that no scanner takes them for leaked keys.
OWN = "sk-" + "0123456789abcdef" * 2
SHAPES = [
    ("sk-" + "0" * 32, "an API key"),
    ("AKIA" + "A" * 16, "an AWS key"),
    ("ghp_" + "x" * 36, "a GitHub token"),
    ("github_pat_" + "A1" * 20, "a GitHub token"),
    ("xoxb-" + "123456789012-abcdef", "a Slack token"),
    ("AIza" + "b" * 35, "a Google key"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
        "a private key",
    ),
]


def test_our_own_key_is_masked_where_a_result_enters_the_conversation() -> None:
    masks = Masks(OWN)
    assert masks.mask(f"DEEPSEEK_API_KEY={OWN}\nPLAIN=hello\n") == (
        f"DEEPSEEK_API_KEY={MASKED_OWN}\nPLAIN=hello\n"
    )


def test_our_own_key_is_masked_in_its_quoted_form_too() -> None:
    masks = Masks("secret/key+with=signs")
    assert masks.mask("a?k=secret%2Fkey%2Bwith%3Dsigns") == f"a?k={MASKED_OWN}"


@pytest.mark.parametrize("key", [None, "", "   ", "none", "ollama"])
def test_what_is_no_secret_masks_nothing(key: str | None) -> None:
    assert Masks(key).mask("none of this is secret, says ollama") == "none of this is secret, says ollama"
    assert Masks(key).stream().feed("none") == "none"


@pytest.mark.parametrize(("secret", "name"), SHAPES)
def test_known_shapes_are_masked_on_the_way_out(secret: str, name: str) -> None:
    assert Masks(OWN).mask_all(f"before {secret} after") == f"before [masked: {name}] after"


@pytest.mark.parametrize(("secret", "name"), SHAPES)
def test_known_shapes_enter_the_conversation_unless_the_settings_say_no(secret: str, name: str) -> None:
    assert Masks(OWN).mask(f"K={secret}\n") == f"K={secret}\n"
    assert Masks(OWN, known_shapes=True).mask(f"K={secret}\n") == f"K=[masked: {name}]\n"


@pytest.mark.parametrize("word", ["Bearer", "bearer", "BEARER"])
def test_the_word_before_a_bearer_token_stays(word: str) -> None:
    assert mask_shapes(f"Authorization: {word} abcdefghijklmnop.123==") == (
        f"Authorization: {word} [masked: a bearer token]"
    )


def test_a_private_key_without_an_end_is_masked_to_the_end() -> None:
    assert mask_shapes("x\n-----BEGIN PRIVATE KEY-----\nMIIE") == "x\n[masked: a private key]"


def test_words_that_only_look_a_little_like_keys_stay() -> None:
    text = "task-force sk-learn AKIA ghp_short xoxb- AIza Bearer of news, a bearer token"
    assert mask_shapes(text) == text


@given(st.text(max_size=30), st.text(max_size=30))
def test_our_own_key_is_never_left_in_any_text(before: str, after: str) -> None:
    masked = Masks(OWN).mask(f"{before}{OWN}{after}")
    assert OWN not in masked
    assert masked == f"{before}{MASKED_OWN}{after}"


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.text("sk-0123", max_size=20))
def test_a_key_that_is_split_over_pieces_is_masked(sizes: list[int], around: str) -> None:
    text = f"{around} {OWN}{OWN[:9]} {around}"
    stream, shown, at, turn = Masks(OWN).stream(), "", 0, 0
    while at < len(text):
        step = sizes[turn % len(sizes)]
        shown += stream.feed(text[at : at + step])
        at, turn = at + step, turn + 1
    shown += stream.flush()
    assert shown == Masks(OWN).mask(text)
    assert stream.flush() == ""


def test_what_cannot_begin_a_key_is_not_held_back() -> None:
    stream = Masks(OWN).stream()
    assert stream.feed("hello\nsk-0") == "hello\n"
    assert stream.feed("9") == "sk-09"
