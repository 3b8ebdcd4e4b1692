"""Batching: queries that arrive together are answered by one pass of the network.

One thread computes, and the event loop goes on reading requests meanwhile. Queries that arrive
while it computes wait, and all of one kind are its next batch: a lone query is answered at once,
and the more there are, the larger the batches. A batch whose clients have all gone is cancelled
between two passes of the network. Routes hand their queries to a `Dispatcher`, which adds the time
limit of a request; `answer` turns results into JSON.
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
from anyorder.serve.limits import Limits, Metrics, RefusalError

Seed = Annotated[int | None, Field(strict=True, ge=0, le=2**63 - 1)]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Work = Callable[[Sequence[Item]], Sequence[Answer | Exception]]
"""Function that answers several queries of a kind; an invalid query is answered by its error."""

GATHERING = 0.001
"""Seconds that an idle batcher waits for queries that were sent at the same time."""

TOGETHER = 128
"""Greatest number of queries in a batch: more no longer pay, and those behind them would wait."""

DIGITS = 6
"""Significant digits of the numbers in an answer."""


class Message(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def short(value: float) -> float:
    """Returns a number with few digits."""
    return float(f"{value:.{DIGITS}g}")


class GoneError(Exception):
    """Raised to cancel a batch whose clients have all gone or timed out."""


@dataclass
class _Query:
    work: Work[Any, Any]
    item: Any
    answer: asyncio.Future[Any]


class Batcher:
    """Queue of queries, and the thread that answers them in batches.

    Args:
        waiting: Greatest number of queries in the queue.
        metrics: Counters of batches.
        step: Module that every pass calls at its end; a batch without clients is cancelled there.
    """

    def __init__(self, *, waiting: int, metrics: Metrics, step: nn.Module | None = None) -> None:
        self.waiting, self.metrics = waiting, metrics
        self._computed = threading.local()  # a model may be served twice, by two threads
        if step is not None:
            step.register_forward_pre_hook(lambda *_: self._check_wanted())
        self._queue: list[_Query] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="anyorder")
        self._loop: asyncio.Task[None] | None = None
        self._closing = False

    async def ask(self, work: Work[Item, Answer], item: Item) -> Answer:
        """Returns the answer to one query, computed with others of its kind.

        Queries with equal `work` share batches.
        """
        if len(self._queue) >= self.waiting:
            raise RefusalError(
                429, f"{self.waiting:,} queries are waiting already: try again in a moment."
            )
        if self._loop is None:
            self._loop = asyncio.create_task(self._answer_all())
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(_Query(work, item, answer))
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
        while self._queue or not self._closing:
            if not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
                await asyncio.sleep(GATHERING)
                continue
            await self._answer_batch(self._next_batch())

    def _next_batch(self) -> list[_Query]:
        """Takes the oldest query and others of its kind; those without a client are dropped."""
        self._queue = [query for query in self._queue if not query.answer.done()]
        work = self._queue[0].work if self._queue else None
        alike = [query for query in self._queue if query.work == work][:TOGETHER]
        chosen = {id(query) for query in alike}
        self._queue = [query for query in self._queue if id(query) not in chosen]
        return alike

    async def _answer_batch(self, batch: list[_Query]) -> None:
        if not batch:
            return
        self.metrics.batches.add(len(batch))
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._thread, self._compute, batch)
        for query, answer in zip(batch, answers, strict=True):
            if query.answer.done():
                continue
            if isinstance(answer, Exception):
                query.answer.set_exception(answer)
            else:
                query.answer.set_result(answer)

    def _compute(self, batch: list[_Query]) -> Sequence[Any]:
        self._computed.batch = batch
        return _answered(batch[0].work, [query.item for query in batch])

    def _check_wanted(self) -> None:
        batch = getattr(self._computed, "batch", ())  # another thread's use is not ours to end
        if batch and all(query.answer.done() for query in batch):
            raise GoneError


def _answered(work: Work[Any, Any], items: Sequence[Any]) -> Sequence[Any]:
    """Returns an answer or an error for each query; one error does not spoil the batch."""
    try:
        return work(items)
    except GoneError as gone:
        return [gone] * len(items)
    except Exception as error:
        if len(items) == 1:
            return [error]
        return [_answered(work, [item])[0] for item in items]


def or_error(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the value of a function, or the user error that it raises."""
    try:
        return function(*arguments)
    except AnyOrderError as error:
        return error


SEEDS = 2**63
"""Number of seeds."""

VALUES_AT_ONCE = 8_192
"""Characters or pixel values sampled at a time; other requests have their turn in between."""


class Refused(BaseModel):
    """Reason why a request was not answered."""

    detail: str = Field(examples=['`given` must name columns of the model; got "agee".'])


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refused, "description": "The request is no JSON, or came under another name."},
    401: {"model": Refused, "description": "The token is missing or wrong."},
    408: {"model": Refused, "description": "It took too long."},
    413: {"model": Refused, "description": "It is larger than one request may be."},
    422: {"model": Refused, "description": "The model cannot answer the query."},
    429: {"model": Refused, "description": "Too many queries are waiting."},
}
"""Error responses of every route."""


class Dispatcher:
    """Hands the queries of a request to the batcher, within the time limit of the request."""

    def __init__(self, batcher: Batcher, limits: Limits) -> None:
        self.batcher, self.limits = batcher, limits

    async def ask(self, work: Work[Item, Any], item: Item) -> Any:
        """Returns the answer to a query, computed with those of other requests."""
        (found,) = await self.ask_all(work, [item])
        return found

    async def ask_all(
        self, work: Work[Item, Any], items: Sequence[Item], *, noun: str | None = None
    ) -> list[Any]:
        """Returns the answers to the queries of one request.

        With `noun`, an error says which of them it is about.
        """
        answers = (self.batcher.ask(work, item) for item in items)
        async with self._in_time():
            found = await asyncio.gather(*answers, return_exceptions=True)
        for number, one in enumerate(found):
            if isinstance(one, AnyOrderError) and noun is not None:
                raise QueryError(f"{noun} {number}: {one}")
            if isinstance(one, BaseException):
                raise one
        return found

    async def ask_in_turn(self, work: Work[Item, Any], items: Sequence[Item]) -> list[Any]:
        """Returns the answers to the parts of a long request; others are answered in between."""
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
                "or samples, or try when the server is less busy.",
            ) from None


def part_seed(seed: int | None, number: int) -> int | None:
    """Returns the seed of a part of a request; the first part has that of the request."""
    return None if seed is None else (seed + number) % SEEDS


def answer(found: Any) -> Response:
    """Returns an answer as JSON, without validating its many values again."""
    return Response(to_json(found, inf_nan_mode="null"), media_type="application/json")
