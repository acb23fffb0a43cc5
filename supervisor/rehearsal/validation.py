"""Whether the real API would take a request: its order of checks, its words.  Pure.

    key -> JSON -> shape, of the messages too -> model -> max_tokens -> stream_options -> tools -> tool_choice
        -> grammar -> reasoning_content -> the word json -> the window

`Prefix` keeps the messages that the conversation's last request was found legal with: a request that begins
with the same bytes is checked from there.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from supervisor.rehearsal import grammar
from supervisor.rehearsal.cache import Mark, beginning, tokens_of
from supervisor.rehearsal.grammar import Checked, decoded, follow
from supervisor.rehearsal.refusal import Refusal, RefusedError, misshapen, refuse, unparsable
from supervisor.rehearsal.script import Script

MAX_OUTPUT = 393_216
"""Tokens: 384 K, thinking included."""

MAX_TOOLS = 128

EFFORTS = ("high", "low", "medium", "max", "xhigh")

REASONING = "The `reasoning_content` in the thinking mode must be passed back to the API."
TOOL_CHOICE = "Thinking mode does not support this tool_choice"
EMPTY_TOOLS = (
    "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."
)
NO_JSON_WORD = (
    "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."
)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Thinking(Struct, frozen=True):
    type: str


class Options(Struct, frozen=True):
    """A request without its messages; the rest of its fields is not looked at."""

    model: str
    messages: list[msgspec.Raw]
    stream: bool = False
    stream_options: dict[str, object] | None = None
    thinking: Thinking | None = None
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: str | dict[str, object] | None = None
    response_format: dict[str, object] | None = None
    user_id: str = ""

    @property
    def thinks(self) -> bool:
        return self.thinking is None or self.thinking.type == "enabled"


class Accepted(Struct, frozen=True):
    """A request that may be played."""

    options: Options
    marks: tuple[Mark, ...]
    """One per message."""
    last_role: str
    last_text: str


_decoder = msgspec.json.Decoder(Options)


class Prefix:
    """The messages of one conversation's last legal request, and what was known after each."""

    def __init__(self) -> None:
        self._raws: Sequence[msgspec.Raw] = ()
        self._states: list[Checked] = []
        self._ids: list[set[str]] = []
        self._scope: Mark | None = None

    def shaped(self, raws: Sequence[msgspec.Raw], scope: Mark) -> list[dict[str, object]]:
        """The messages that are new, their shape checked.  Raises RefusedError."""
        known = self._known(raws, scope)
        return [decoded(bytes(raw), known + at) for at, raw in enumerate(raws[known:])]

    def check(
        self, raws: Sequence[msgspec.Raw], fresh: Sequence[dict[str, object]], scope: Mark
    ) -> list[Checked]:
        """The state after each message.  Raises RefusedError, and then keeps what it had."""
        known = len(raws) - len(fresh)
        states = self._states[:known]
        added = self._ids[:known]
        ids: set[str] = set().union(*added)
        state = states[-1] if states else Checked(scope)
        for at, message in enumerate(fresh):
            before = set(ids) if message.get("tool_calls") else ids
            state = follow(state, message, known + at, ids)
            states.append(state)
            added.append(ids - before)
        if state.open:
            raise refuse(grammar.UNANSWERED)
        self._raws, self._states, self._ids, self._scope = raws, states, added, scope
        return states

    def _known(self, raws: Sequence[msgspec.Raw], scope: Mark) -> int:
        """How many messages are the same bytes as in the last request."""
        if self._scope != scope:
            return 0
        count = 0
        for mine, theirs in zip(self._raws, raws, strict=False):
            if mine != theirs:
                break
            count += 1
        return count


def check(body: bytes, authorization: str, script: Script, prefix: Prefix) -> Accepted:
    """The request, if it is legal.  Raises RefusedError with the real API's words."""
    _check_key(authorization, script.key)
    options = _options(body)
    scope = _scope(options)
    if not script.validate:
        return _unchecked(options, scope)
    fresh = prefix.shaped(options.messages, scope)
    _check_options(options, script)
    states = prefix.check(options.messages, fresh, scope)
    last = states[-1]
    if options.tools and options.thinks and last.silent is not None:
        raise refuse(REASONING)
    if (options.response_format or {}).get("type") == "json_object" and not last.says_json:
        raise refuse(NO_JSON_WORD)
    prompt, reply = last.mark.tokens, options.max_tokens or 0
    if prompt + reply > script.window:
        raise refuse(
            f"This model's maximum context length is {script.window} tokens. However, you requested "
            f"{prompt + reply} tokens ({prompt} in the messages, {reply} in the completion). Please reduce "
            "the length of the messages or completion."
        )
    return Accepted(options, tuple(state.mark for state in states), last.last_role, last.last_text)


def _check_key(authorization: str, key: str) -> None:
    if not key:
        return
    scheme, _, given = authorization.partition(" ")
    if scheme != "Bearer" or not given:
        words = "Authentication Fails (auth header format should be Bearer sk-...)"
    elif given != key:
        words = f"Authentication Fails, Your api key: ****{given[-4:]} is invalid"
    else:
        return
    raise RefusedError(Refusal(words, 401, "authentication_error"))


def _options(body: bytes) -> Options:
    try:
        options = _decoder.decode(body)
    except msgspec.ValidationError as error:
        _require_json(body)
        raise misshapen(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unparsable(error, body) from error
    if not options.messages:
        raise misshapen("messages: invalid length 0, expected at least one message")
    if options.thinking is not None and options.thinking.type not in ("enabled", "disabled"):
        raise misshapen(
            f"thinking.type: unknown variant `{options.thinking.type}`, expected `enabled` or `disabled`"
        )
    if options.reasoning_effort not in (None, *EFFORTS):
        known = ", ".join(f"`{name}`" for name in EFFORTS)
        raise misshapen(
            f"reasoning_effort: unknown variant `{options.reasoning_effort}`, expected one of {known}"
        )
    return options


def _require_json(body: bytes) -> None:
    """A wrong type was met; what comes after it may be no JSON, and that is said first."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unparsable(error, body) from error


def _check_options(options: Options, script: Script) -> None:
    for at, tool in enumerate(options.tools or []):
        if tool.get("type") != "function":
            raise misshapen(f"tools[{at}].type: unknown variant `{tool.get('type')}`, expected `function`")
    if script.models and options.model not in script.models:
        raise refuse(
            f"The supported API model names are {', '.join(script.models)}, but you passed {options.model}."
        )
    if options.max_tokens is not None and not 1 <= options.max_tokens <= MAX_OUTPUT:
        raise refuse(f"Invalid max_tokens value, the valid range of max_tokens is [1, {MAX_OUTPUT}]")
    if options.stream_options is not None and not options.stream:
        raise refuse("stream_options should be set along with stream = true")
    if options.tools is not None:
        _check_tools(options.tools)
    if options.thinks and options.tool_choice not in (None, "auto", "none"):
        raise refuse(TOOL_CHOICE)


def _check_tools(tools: list[dict[str, object]]) -> None:
    if not tools:
        raise refuse(EMPTY_TOOLS)
    if len(tools) > MAX_TOOLS:
        raise refuse(
            f"Invalid 'tools': array too long. Expected an array with maximum length {MAX_TOOLS}, but got an "
            f"array with length {len(tools)} instead."
        )
    for at, tool in enumerate(tools):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise refuse(
                f"Invalid 'tools[{at}].function.name': string does not match pattern. Expected a string that "
                "matches the pattern '^[a-zA-Z0-9_-]+$'."
            )


def _scope(options: Options) -> Mark:
    """What must be the same for one prefix to be part of another: caches are kept apart by it."""
    tools = msgspec.json.encode(options.tools) if options.tools and options.tool_choice != "none" else b""
    return beginning(options.model.encode(), options.user_id.encode(), str(options.thinks).encode(), tools)


def _unchecked(options: Options, scope: Mark) -> Accepted:
    raws = options.messages
    last = decoded(bytes(raws[-1]), len(raws) - 1)
    mark = Mark(scope.digest, tokens_of(sum(len(bytes(raw)) for raw in raws)))
    return Accepted(options, (mark,), str(last["role"]), str(last.get("content")))
