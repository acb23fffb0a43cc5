"""How a turn that a kill left open is closed.  Pure: decides what is to be appended, appends nothing."""

from protocol.conversation import MODEL, PROGRAM, Answer, Text
from protocol.turn import Event, OpenTurn

UNKNOWN_EFFECT = "interrupted; effect unknown, check before repeating"
"""What the model reads in place of the result that never came.  No call is run again by the program."""
NO_ANSWER = "[interrupted before an answer]"
CUT_ANSWER = "[interrupted: the program ended before the reply was complete]"


def close_interrupted(turn: OpenTurn, shown: str = "") -> list[Event]:
    """Close the turn; the new events.  `shown`: what the user had seen of a reply that never came whole."""
    if shown.strip() and not turn.pending:
        answer = Answer((Text(shown, MODEL), Text(CUT_ANSWER, PROGRAM)))
    else:
        answer = Answer.by(PROGRAM, NO_ANSWER)
    return turn.interrupt(UNKNOWN_EFFECT, answer)
