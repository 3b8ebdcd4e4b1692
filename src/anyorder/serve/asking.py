"""How a route asks the model: with its limits, in its time, and the answer as JSON."""

import asyncio
from typing import Any

from fastapi import Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from anyorder.serve.batching import Batcher, Item, Work
from anyorder.serve.limits import Limits, RefusalError


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

    async def ask(self, work: Work[Item, Any], *items: Item) -> list[Any]:
        """The answers to some questions of a kind, together with those of other requests."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return list(await asyncio.gather(*(self.batcher.ask(work, item) for item in items)))
        except TimeoutError:
            raise RefusalError(
                408,
                f"The answer took longer than {self.limits.seconds:g} seconds: ask for fewer rows "
                "or draws, or when the server has less to do.",
            ) from None


def answer(found: Any) -> Response:
    """An answer as JSON, without another look at its values: they are many."""
    return Response(to_json(found, inf_nan_mode="null"), media_type="application/json")
