"""How a route asks the model: with its limits, in its time, and the answer as JSON."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from anyorder.errors import AnyOrderError, QueryError
from anyorder.serve.batching import Batcher, Item, Work
from anyorder.serve.limits import Limits, RefusalError

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
