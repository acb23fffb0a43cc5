"""The summariser of a compaction: the same model in another role, with its own prompt and no tools."""

from collections.abc import Callable, Sequence

from protocol.conversation import Pair, User
from supervisor.context import compaction
from supervisor.exits import StopError
from supervisor.model.request import Request
from supervisor.session.rounds import Rounds


class Summariser:
    """`new_request(system)` makes an empty request without tools."""

    def __init__(self, rounds: Rounds, new_request: Callable[[str], Request]) -> None:
        self._rounds = rounds
        self._new_request = new_request

    async def summarise(self, pairs: Sequence[Pair], focus: str) -> str:
        """The summary of these pairs.  Raises ModelError, or StopError where it is empty."""
        request = self._new_request(compaction.SUMMARISER)
        request.append([User.says(compaction.request_text(pairs, focus))])
        completion = await self._rounds.ask(request, "compaction", lambda _: None)
        summary = completion.text.strip()
        if not summary or completion.finish_reason == "length":
            raise StopError("the summary came back empty or cut; nothing was changed")
        return summary
