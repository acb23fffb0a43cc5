"""Which prefixes the scripted server counts as cached."""

import json

import httpx

from supervisor.rehearsal.cache import Mark, PromptCache, beginning, extended
from supervisor.rehearsal.script import Script, Step
from supervisor.rehearsal.server import serve

LONG = "x" * 4_000
"""A thousand tokens of each of its letters."""


def prompt(letters: str, scope: bytes = b"") -> list[Mark]:
    """The marks of a prompt with a message of a thousand tokens per letter."""
    mark = beginning(scope, b"")
    marks = []
    for letter in letters:
        mark = extended(mark, (letter * 4_000).encode())
        marks.append(mark)
    return marks


def hits(*prompts: str) -> list[int]:
    """The thousands of tokens that each prompt in turn finds cached."""
    cache = PromptCache()
    return [round(cache.request(prompt(letters)) / 1_000) for letters in prompts]


def test_a_stored_prompt_is_hit_by_what_contains_the_whole_of_it() -> None:
    assert hits("AB", "ABC", "ABCD") == [0, 2, 3]


def test_a_partial_overlap_is_no_hit_until_it_was_seen_twice() -> None:
    assert hits("AB", "AC", "AD") == [0, 0, 1]


def test_another_beginning_is_no_hit() -> None:
    assert hits("AB", "BAB", "AB") == [0, 0, 2]


def test_hits_are_multiples_of_128() -> None:
    cache = PromptCache()
    cache.request(prompt("AB"))
    assert cache.request(prompt("ABC")) == 1_920


def test_another_scope_has_another_cache() -> None:
    cache = PromptCache()
    cache.request(prompt("AB", b"one"))
    assert cache.request(prompt("ABC", b"two")) == 0


async def test_the_next_round_hits_the_prompt_and_the_reply_before() -> None:
    script = Script(steps=(Step(thinking="Hm." * 1_000, text="y" * 4_000), Step(text="end")))
    first = [{"role": "user", "content": LONG}]
    reply = {"role": "assistant", "content": "y" * 4_000, "reasoning_content": "Hm." * 1_000}
    second = [*first, reply, {"role": "user", "content": "go on"}]
    async with serve({"main": script}) as server, httpx.AsyncClient() as http:
        usages = []
        for messages in (first, second):
            body = json.dumps({"model": "deepseek-flash", "messages": messages})
            response = await http.post(server.url() + "/v1/chat/completions", content=body)
            usages.append(response.json()["usage"])
    one, two = usages
    assert one["prompt_cache_hit_tokens"] == 0
    assert two["prompt_cache_hit_tokens"] > one["prompt_tokens"] + 1_600
    assert two["prompt_cache_hit_tokens"] % 128 == 0
    assert two["prompt_tokens"] == two["prompt_cache_hit_tokens"] + two["prompt_cache_miss_tokens"]
    assert two["prompt_tokens_details"]["cached_tokens"] == two["prompt_cache_hit_tokens"]
