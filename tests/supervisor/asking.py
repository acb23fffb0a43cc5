"""Whoever answers questions in a test: by a script, or when the test says so."""

from collections.abc import Callable

import trio

from supervisor.permits.asking import Answer, Question

Replies = Answer | Callable[[Question], Answer]


class ScriptedAsker:
    """Gives these answers in their order, then waits for `answer`."""

    def __init__(self, *answers: Replies) -> None:
        self._answers = list(answers)
        self.asked: list[Question] = []
        self.shown: list[Question] = []
        """Those that wait for an answer now."""
        self.gone: list[str] = []
        """Calls whose question disappeared."""
        self._came = trio.Event()
        self._answered = trio.Event()

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        self.shown.append(question)
        self._came.set()
        try:
            if not self._answers:
                self._answered = trio.Event()
                await self._answered.wait()
            answer = self._answers.pop(0)
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self.gone.append(question.call_id)
            raise
        finally:
            self.shown.remove(question)
        return answer if isinstance(answer, Answer) else answer(question)

    def answer(self, answer: Answer) -> None:
        """To the question that waits."""
        self._answers.append(answer)
        self._answered.set()

    async def question(self) -> Question:
        """The one that is shown, once there is one."""
        while not self.shown:
            self._came = trio.Event()
            await self._came.wait()
        return self.shown[0]
