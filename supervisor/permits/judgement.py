"""What the user's rules say of a call."""

from enum import Enum

from msgspec import Struct


class Verdict(Enum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    NONE = "none"
    """No rule names it: the sandbox alone decides."""


class Judgement(Struct, frozen=True):
    """`rule`: the pattern that decided; `why`: in words, what of the call it met."""

    verdict: Verdict = Verdict.NONE
    rule: str = ""
    why: str = ""
    doubt: bool = False
    """It asks since nobody can tell whether a rule names the call: a yes is for this very call."""
