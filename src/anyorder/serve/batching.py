"""Requests that arrive together are answered together: one pass of the network for all of them.

One thread computes, and the event loop goes on reading requests meanwhile. What arrives while it
computes waits, and all that wait for the same kind of answer are its next batch: a lone request is
answered at once, and the more there are, the larger the batches. A batch for which nobody waits any
more is given up between two passes of the network.

How a route asks the model: with its limits, in its time, and the answer as JSON.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from torch import nn

from anyorder.errors import AnyOrderError, QueryError
from anyorder.serve.guard import Metrics
from anyorder.serve.limits import Limits, RefusalError

Seed = Annotated[int | None, Field(strict=True, ge=0, le=2**63 - 1)]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Work = Callable[[Sequence[Item]], Sequence[Answer | Exception]]
"""Answers several questions of a kind; a question that is wrong has an error for an answer."""

GATHERING = 0.001
"""Seconds that a batch waits for company: what was sent at the same time arrives within it."""

TOGETHER = 128
"""Questions of a batch: more no longer pay, and those behind them would wait."""


DIGITS = 6
"""Significant digits of the numbers in an answer."""


class Message(BaseModel):
    """A request; a field that is not known is refused, because it was meant to do something."""

    model_config = ConfigDict(extra="forbid")


def short(value: float) -> float:
    """Returns a number with few digits."""
    return float(f"{value:.{DIGITS}g}")


class GoneError(Exception):
    """All who asked have gone, or their time is over: the batch is given up."""


@dataclass
class _Question:
    work: Work[Any, Any]
    item: Any
    answer: asyncio.Future[Any]


class Batcher:
    """The thread that computes, and the line in front of it.

    Args:
        waiting: How many questions may wait.
        metrics: Where batches are counted.
        step: What every pass calls in the end; before each call, someone must still be waiting.
    """

    def __init__(self, *, waiting: int, metrics: Metrics, step: nn.Module | None = None) -> None:
        self.waiting, self.metrics = waiting, metrics
        self._computed = threading.local()  # a model may be served twice, by two threads
        if step is not None:
            step.register_forward_pre_hook(lambda *_: self._check_wanted())
        self._line: list[_Question] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="anyorder")
        self._loop: asyncio.Task[None] | None = None
        self._closing = False

    async def ask(self, work: Work[Item, Answer], item: Item) -> Answer:
        """The answer to one question, computed with others of its kind.

        Args:
            work: What answers this kind of question; the same object for the same kind.
            item: The question.
        """
        if len(self._line) >= self.waiting:
            raise RefusalError(
                429, f"{self.waiting:,} questions are waiting already: try again in a moment."
            )
        if self._loop is None:
            self._loop = asyncio.create_task(self._answer_all())
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._line.append(_Question(work, item, answer))
        self._arrived.set()
        return await answer

    async def close(self) -> None:
        """Answers all that wait, then ends."""
        self._closing = True
        self._arrived.set()
        if self._loop is not None:
            await self._loop
        self._thread.shutdown()

    async def _answer_all(self) -> None:
        while self._line or not self._closing:
            if not self._line:
                self._arrived.clear()
                await self._arrived.wait()
                await asyncio.sleep(GATHERING)
                continue
            await self._answer_batch(self._next_batch())

    def _next_batch(self) -> list[_Question]:
        """The oldest question and others of its kind; those whose asker has gone are dropped."""
        self._line = [question for question in self._line if not question.answer.done()]
        work = self._line[0].work if self._line else None
        alike = [question for question in self._line if question.work == work][:TOGETHER]
        chosen = {id(question) for question in alike}
        self._line = [question for question in self._line if id(question) not in chosen]
        return alike

    async def _answer_batch(self, batch: list[_Question]) -> None:
        if not batch:
            return
        self.metrics.count_batch(len(batch))
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._thread, self._compute, batch)
        for question, answer in zip(batch, answers, strict=True):
            if question.answer.done():
                continue
            if isinstance(answer, Exception):
                question.answer.set_exception(answer)
            else:
                question.answer.set_result(answer)

    def _compute(self, batch: list[_Question]) -> Sequence[Any]:
        self._computed.batch = batch
        return _answered(batch[0].work, [question.item for question in batch])

    def _check_wanted(self) -> None:
        batch = getattr(self._computed, "batch", ())  # another thread's use is not ours to end
        if batch and all(question.answer.done() for question in batch):
            raise GoneError


def _answered(work: Work[Any, Any], items: Sequence[Any]) -> Sequence[Any]:
    """The answers, or an error for each; one bad question does not spoil the others of a batch."""
    try:
        return work(items)
    except GoneError as gone:
        return [gone] * len(items)
    except Exception as error:
        if len(items) == 1:
            return [error]
        return [_answered(work, [item])[0] for item in items]


SEEDS = 2**63

VALUES_AT_ONCE = 8_192
"""Characters or values of pixels that are drawn in one go; between two, others have their turn."""


class Refused(BaseModel):
    """Why a request was not answered."""

    detail: str = Field(examples=['`given` must name columns of the model; got "agee".'])


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refused, "description": "The request is no JSON, or came under another name."},
    401: {"model": Refused, "description": "The token is missing or wrong."},
    408: {"model": Refused, "description": "It took too long."},
    413: {"model": Refused, "description": "It is larger than one request may be."},
    422: {"model": Refused, "description": "The question is not one that the model can answer."},
    429: {"model": Refused, "description": "Too many questions are waiting."},
}
"""What every route may answer besides its answer."""


class Desk:
    """Where routes put their questions.

    Args:
        batcher: Whose thread computes.
        limits: Of a request.
    """

    def __init__(self, batcher: Batcher, limits: Limits) -> None:
        self.batcher, self.limits = batcher, limits

    async def ask(self, work: Work[Item, Any], item: Item) -> Any:
        """The answer to a question, computed with those of other requests."""
        (found,) = await self.ask_all(work, [item])
        return found

    async def ask_all(
        self, work: Work[Item, Any], items: Sequence[Item], *, noun: str | None = None
    ) -> list[Any]:
        """The answers to the questions of one request.

        Args:
            work: What answers them.
            items: The questions.
            noun: What one is called where a mistake says in which it is; left out by default.
        """
        asked = (self.batcher.ask(work, item) for item in items)
        async with self._in_time():
            found = await asyncio.gather(*asked, return_exceptions=True)
        for number, one in enumerate(found):
            if isinstance(one, AnyOrderError) and noun is not None:
                raise QueryError(f"{noun} {number}: {one}")
            if isinstance(one, BaseException):
                raise one
        return found

    async def ask_in_turn(self, work: Work[Item, Any], items: Sequence[Item]) -> list[Any]:
        """The answers to the parts of a long request; other requests are answered in between."""
        async with self._in_time():
            return [await self.batcher.ask(work, item) for item in items]

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.limits.seconds):
                yield
        except TimeoutError:
            raise RefusalError(
                408,
                f"The answer took longer than {self.limits.seconds:g} seconds: ask for fewer rows "
                "or draws, or when the server has less to do.",
            ) from None


def part_seed(seed: int | None, number: int) -> int | None:
    """The seed of a part of a request: the first has that of the request."""
    return None if seed is None else (seed + number) % SEEDS


def answer(found: Any) -> Response:
    """An answer as JSON, without another look at its values: they are many."""
    return Response(to_json(found, inf_nan_mode="null"), media_type="application/json")
