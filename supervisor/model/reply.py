"""From a completion to a reply: ids made unique, arguments checked.  Pure but for the dice.

What is stored is sent again in every later request, and servers refuse a history that holds a repeated id,
a name with odd characters or arguments that don't parse. So nothing unusable gets in: the model's own text
is kept as data inside a legal object, and the call carries the problem in words, so that it is never run.
"""

import json
import re
import secrets
import string
from collections.abc import Collection

import msgspec

from protocol.conversation import MODEL, Answer, Calls, Reply, Text, ToolCall
from supervisor.model.assembly import Completion, RawCall
from supervisor.model.chunks import without_surrogates
from supervisor.model.errors import excerpt

ID_MAX = 64
"""Characters; longer ones come from servers that repeat the id in each fragment."""

NAME_MAX = 64
"""Characters of a tool's name that servers accept in a history."""

KEPT_MAX = 4_000
"""Characters of unusable arguments that are kept: enough to see the fault, and not a file a second time."""

AROUND = 30
"""Characters that are quoted on each side of a fault."""

_ALNUM = string.ascii_letters + string.digits
_ODD = re.compile(r"[^a-zA-Z0-9_-]")


def to_reply(completion: Completion, used_ids: Collection[str]) -> Reply | None:
    """The reply, or None where nothing was said.  `used_ids`: the call ids of the conversation."""
    if completion.calls:
        taken: set[str] = set()
        last = len(completion.calls) - 1
        cut = completion.finish_reason == "length"
        calls = tuple(
            _call(raw, used_ids, taken, cut=cut and at == last) for at, raw in enumerate(completion.calls)
        )
        return Calls(calls, completion.text, completion.reasoning)
    if not completion.text.strip():
        return None
    return Answer((Text(completion.text, MODEL),), completion.reasoning)


def _call(raw: RawCall, used_ids: Collection[str], taken: set[str], *, cut: bool) -> ToolCall:
    """The call, its id added to `taken`."""
    identity = raw.id if 0 < len(raw.id) <= ID_MAX and raw.id.isascii() and raw.id.isprintable() else ""
    while not identity or identity in taken or identity in used_ids:
        identity = "call_" + "".join(secrets.choice(_ALNUM) for _ in range(24))
    taken.add(identity)
    name = _ODD.sub("_", raw.name)[:NAME_MAX]
    problem = "" if name and name == raw.name else f"{_quoted(raw.name)} can't be the name of a tool"
    arguments = raw.arguments if raw.arguments.strip() not in ("", "null") else "{}"
    fault = _fault(arguments)
    if fault:
        arguments = _kept(raw.arguments)
        fault = f"cut off at the output limit: {fault}" if cut else fault
        advice = "the call was not run: send it again, whole and valid"
        problem = problem or f"the arguments were {fault}; {advice}"
    return ToolCall(identity, name or "unnamed", arguments, problem)


def _fault(arguments: str) -> str:
    """Why this is no JSON object, with the place; empty where it is one."""
    try:
        found: object = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return _place(arguments, str(error))
    return "" if isinstance(found, dict) else f"not a JSON object but {_quoted(arguments[:AROUND])}"


def _place(arguments: str, why: str) -> str:
    """In words.  The standard library counts characters; what it accepts (NaN, half a pair) msgspec names."""
    try:
        json.loads(arguments)
    except json.JSONDecodeError as error:
        around = arguments[max(0, error.pos - AROUND) : error.pos + AROUND]
        return f"not valid JSON at character {error.pos} ({error.msg}), near {_quoted(around)}"
    except RecursionError:
        return "nested too deeply"
    return f"not valid JSON: {why}"


def _kept(arguments: str) -> str:
    text = without_surrogates(arguments)
    if len(text) > KEPT_MAX:
        text = f"{text[:KEPT_MAX]}… ({len(text)} characters)"
    return msgspec.json.encode({"invalid_arguments": text}).decode()


def _quoted(text: str) -> str:
    return f"`{excerpt(without_surrogates(text))}`"
