"""How a turn ends early, decided by what exists (pure).

If anything of a reply had arrived it stays, and the pair is closed; if nothing had arrived (or thinking
only), nothing has happened, and the pair is withdrawn.
"""

from protocol.conversation import MODEL, PROGRAM, Answer, Text
from protocol.turn import OpenTurn


def closing(turn: OpenTurn, partial: str, call_began: bool, why: str) -> Answer | None:
    """The answer that closes the turn now, or None where it is to be withdrawn.

    `partial` is the text of a reply that did not end, `call_began` whether a call of it had begun (half a
    call is dropped), `why` what happened, in a few words.
    """
    if partial.strip():
        return Answer((Text(partial, MODEL), Text(f"[{why}]", PROGRAM)))
    if turn.untouched and not call_began:
        return None
    return Answer.by(PROGRAM, f"[{why}]")
