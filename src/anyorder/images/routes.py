"""Routes of a model of images."""

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from anyorder.errors import QueryError
from anyorder.images.model import ImageModel
from anyorder.serve.batching import (
    REFUSALS,
    VALUES_AT_ONCE,
    Dispatcher,
    Message,
    Seed,
    answer,
    or_error,
    part_seed,
)

Level = Annotated[int, Field(strict=True, ge=0, le=65_535)]
Codes = list[Level]

FLAT = (
    "Row by row, the channels of a pixel beside each other: height times width times channels "
    "whole numbers."
)


class InpaintRequest(Message):
    """An image with a hole."""

    image: Codes = Field(description=f"The codes of levels. {FLAT}", examples=[[0, 3, 1, 2]])
    hole: list[Annotated[bool, Field(strict=True)]] = Field(
        description="True for pixels to inpaint, row by row.", examples=[[False, True, True, False]]
    )
    n: int = Field(default=3, ge=1, strict=True, description="Number of completions.")
    temperature: float = Field(default=1.0, gt=0, le=100, strict=True, allow_inf_nan=False)
    seed: Seed = None


class ImageSampleRequest(Message):
    """Images to sample."""

    n: int = Field(default=3, ge=1, strict=True)
    seed: Seed = None


class ImageLogProbRequest(Message):
    """Images to score."""

    images: list[Codes] = Field(min_length=1, description=FLAT, examples=[[[0, 3, 1, 2]]])
    hole: list[Annotated[bool, Field(strict=True)]] | None = Field(
        default=None, description="True for pixels to query, given all others; all by default."
    )


class ImagesAnswer(BaseModel):
    """Images as flat lists of codes."""

    images: list[list[int]] = Field(description=FLAT)


class ImageLogProbAnswer(BaseModel):
    """Log-likelihoods in nats."""

    log_prob: list[float]


class ImageAnswer(BaseModel):
    """The model that is served."""

    domain: Literal["image"]
    name: str
    run: str = Field(description="Run folder of the model.")
    height: int
    width: int
    channels: int
    levels: int
    parameters: int
    limits: dict[str, float]


class Hole(NamedTuple):
    """Images, their hole, and options of inpainting."""

    images: Sequence[Sequence[int]]
    hole: Sequence[bool] | None
    options: dict[str, Any]


class ImageAnswering:
    """Answers queries of a model of images."""

    def __init__(self, model: ImageModel) -> None:
        self.model, self.shape = model, model.fitted_shape()

    def inpaint(self, questions: Sequence[Hole]) -> list[Any]:
        """Inpaints; each query has a seed of its own, and so passes of its own."""
        return [or_error(self._inpainted, question) for question in questions]

    def sample(self, questions: Sequence[tuple[int, int | None]]) -> list[Any]:
        """Samples images."""
        return [
            self.model.sample(n, random_state=seed).reshape(n, -1).tolist() for n, seed in questions
        ]

    def log_prob(self, questions: Sequence[Hole]) -> list[Any]:
        """Returns the log-likelihoods of images, or of their holes."""
        return [or_error(self._likelihood, question) for question in questions]

    def _inpainted(self, question: Hole) -> list[list[int]]:
        image = self._pixels(question.images)[0]
        hole = self._hole(question.hole or ())
        if not hole.any():
            raise QueryError("`hole` must have a pixel or more; it has none.")
        found = self.model.inpaint(image, hole, **question.options)
        return found.reshape(len(found), -1).tolist()

    def _likelihood(self, question: Hole) -> list[float]:
        images = self._pixels(question.images)
        if question.hole is None:
            return np.asarray(self.model.log_prob(images)).tolist()
        hole = self._hole(question.hole)
        return np.asarray(self.model.log_prob(images, query=hole, given=~hole)).tolist()

    def _pixels(self, images: Sequence[Sequence[int]]) -> np.ndarray[Any, Any]:
        height, width, channels = self.shape
        for image in images:
            if len(image) != height * width * channels:
                raise QueryError(
                    f"An image must have {height} x {width} x {channels} = "
                    f"{height * width * channels:,} numbers; got {len(image):,}."
                )
            if max(image) >= self.model.levels_:
                raise QueryError(
                    f"An image must hold codes of levels, 0 to {self.model.levels_ - 1}; "
                    f"got {max(image)}."
                )
        return np.array(images, dtype=np.int64).reshape(len(images), height, width, channels)

    def _hole(self, hole: Sequence[bool]) -> np.ndarray[Any, Any]:
        height, width, _ = self.shape
        if len(hole) != height * width:
            raise QueryError(
                f"`hole` must have {height} x {width} = {height * width:,} booleans; "
                f"got {len(hole):,}."
            )
        return np.array(hole, dtype=bool).reshape(height, width)


def image_routes(model: ImageModel, dispatcher: Dispatcher, *, name: str, run: str) -> APIRouter:
    """Returns the routes of one model, under the name and the run folder that the page shows."""
    answering, limits = ImageAnswering(model), dispatcher.limits
    router = APIRouter(prefix="/v1", responses=REFUSALS)
    height, width, channels = answering.shape
    about = {
        "domain": "image",
        "name": name,
        "run": run,
        "height": height,
        "width": width,
        "channels": channels,
        "levels": model.levels_,
        "parameters": model.fitted().num_parameters,
        "limits": limits.public,
    }

    def portions(pixels: int, n: int, seed: int | None) -> list[tuple[int, int | None]]:
        """Returns the number of images in each part of a request, and the seed of the part."""
        limits.check_values(pixels * channels * n, "values of pixels")
        size = max(1, VALUES_AT_ONCE // max(1, pixels * channels))
        return [
            (min(size, n - start), part_seed(seed, number))
            for number, start in enumerate(range(0, n, size))
        ]

    @router.get("/model", response_model=ImageAnswer)
    async def read_model() -> Response:
        """Returns the shape of the images, and the number of levels of a pixel."""
        return answer(about)

    @router.post("/inpaint", response_model=ImagesAnswer)
    async def ask_inpaint(request: InpaintRequest) -> Response:
        """Inpaints the hole of an image."""
        limits.check_size(draws=request.n)
        questions = [
            Hole(
                [request.image],
                request.hole,
                {"n": n, "temperature": request.temperature, "random_state": seed},
            )
            for n, seed in portions(sum(request.hole), request.n, request.seed)
        ]
        found = await dispatcher.ask_in_turn(answering.inpaint, questions)
        return answer({"images": list(itertools.chain(*found))})

    @router.post("/sample", response_model=ImagesAnswer)
    async def ask_sample(request: ImageSampleRequest) -> Response:
        """Samples images."""
        limits.check_size(draws=request.n)
        questions = portions(height * width, request.n, request.seed)
        found = await dispatcher.ask_in_turn(answering.sample, questions)
        return answer({"images": list(itertools.chain(*found))})

    @router.post("/log_prob", response_model=ImageLogProbAnswer)
    async def ask_log_prob(request: ImageLogProbRequest) -> Response:
        """Returns the log-likelihoods of images, or of their holes."""
        limits.check_size(rows=len(request.images))
        question = Hole(request.images, request.hole, {})
        found = await dispatcher.ask(answering.log_prob, question)
        return answer({"log_prob": found})

    return router
