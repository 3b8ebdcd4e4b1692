"""The routes of a model of text."""

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from anyorder.errors import AnyOrderError, QueryError
from anyorder.inference.queries import answering
from anyorder.serve.batching import REFUSALS, VALUES_AT_ONCE, Desk, answer, part_seed
from anyorder.tables.routes import Message, Seed, short
from anyorder.text.model import TextModel

LIKELY = 6
"""Characters that are listed for a hole, the most probable."""

Text = Annotated[str, Field(strict=True, min_length=1, max_length=100_000)]


class InfillRequest(Message):
    """A text with holes to fill."""

    text: Text = Field(examples=["th_ st_tement"])
    n: int = Field(default=5, ge=1, strict=True, description="How many fills.")
    greedy: bool = Field(default=False, strict=True, description="The most probable, step by step.")
    temperature: float = Field(default=1.0, gt=0, le=100, strict=True, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=1, le=100_000, strict=True)
    seed: Seed = None


class InfillBatchRequest(Message):
    """Several texts with holes."""

    texts: list[Text] = Field(min_length=1, examples=[["th_ st_tement", "an ex_epti_n"]])
    n: int = Field(default=1, ge=1, strict=True)
    seed: Seed = None


class PositionsRequest(Message):
    """A text whose characters are to be judged."""

    text: Text = Field(examples=["th_ st_tement"])


class TextLogProbRequest(Message):
    """Texts whose likelihood is asked; holes are marginalised."""

    texts: list[Text] = Field(min_length=1, examples=[["the statement"]])
    given: list[Text] | None = Field(
        default=None, description="Each text with holes where it is asked."
    )


class FillsAnswer(BaseModel):
    """The fills of a text."""

    fills: list[str]


class FillsBatchAnswer(BaseModel):
    """The fills of each text."""

    fills: list[list[str]]


class Position(BaseModel):
    """A hole and what may stand in it, or a character and how probable it was."""

    character: str
    hole: bool
    likely: dict[str, float] = Field(description="Of a hole, given all known characters.")
    probability: float | None = Field(
        description="Of a known character, given the known ones before it."
    )


class PositionsAnswer(BaseModel):
    """The positions of a text."""

    positions: list[Position]
    log_prob: float = Field(description="Of all known characters, in nats.")


class TextLogProbAnswer(BaseModel):
    """In nats."""

    log_prob: list[float]


class TextAnswer(BaseModel):
    """The model that is served."""

    domain: Literal["text"]
    name: str
    run: str = Field(description="The folder to load it from, as the server was told it.")
    length: int
    hole: str
    alphabet: str
    parameters: int
    limits: dict[str, float]


class Fills(NamedTuple):
    """Holes to be filled."""

    texts: Sequence[str]
    n: int
    options: dict[str, Any]
    start: int = 0  # the number of the first text in its request

    def parts(self, hole: str) -> list["Fills"]:
        """The same in portions that take the model a moment each."""
        if not all(hole in text for text in self.texts):
            return [self]  # refused before anything is drawn
        longest = max(text.count(hole) for text in self.texts)
        draws = min(self.n, max(1, VALUES_AT_ONCE // longest))
        rows = max(1, VALUES_AT_ONCE // (longest * self.n))
        places = itertools.product(range(0, len(self.texts), rows), range(0, self.n, draws))
        return [
            Fills(
                self.texts[row : row + rows],
                min(draws, self.n - draw),
                self.options | {"seed": part_seed(self.options["seed"], number)},
                row,
            )
            for number, (row, draw) in enumerate(places)
        ]


class TextAnswering:
    """What a model of text answers, for several requests at once.

    Args:
        model: Fitted.
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def infill(self, questions: Sequence[Fills]) -> list[Any]:
        """Fills; each question has a seed of its own, and so a walk of its own."""
        found: list[Any] = []
        for question in questions:
            texts = list(question.texts)
            try:
                found.append(self.model.infill(texts, n=question.n, **question.options))
            except AnyOrderError as error:
                found.append(error)
        return found

    def log_prob(self, questions: Sequence[tuple[list[str], list[str] | None]]) -> list[Any]:
        """The likelihoods of texts."""
        found: list[Any] = []
        for texts, given in questions:
            try:
                found.append(self.model.log_prob(texts, given=given).tolist())
            except AnyOrderError as error:
                found.append(error)
        return found

    def positions(self, texts: Sequence[str]) -> list[Any]:
        """What may stand in each hole, and how probable each character was: one pass for all."""
        read: list[Any] = []
        for text in texts:
            try:
                read.append(self.model.read([text]))
            except AnyOrderError as error:
                read.append(error)
        good = [pair for pair in read if not isinstance(pair, AnyOrderError)]
        if not good:
            return read
        x, known = (torch.cat(part) for part in zip(*good, strict=True))
        holes, before = _judged(self.model.fitted(), x, known)
        rows = iter(range(len(good)))
        return [
            pair
            if isinstance(pair, AnyOrderError)
            else _told(self.model, text, holes[row := next(rows)], before[row])
            for text, pair in zip(texts, read, strict=True)
        ]


def text_routes(model: TextModel, desk: Desk, *, name: str, run: str) -> APIRouter:
    """The routes for one model, under the name that the page shows and the folder to load."""
    answering, limits = TextAnswering(model), desk.limits
    router = APIRouter(prefix="/v1", responses=REFUSALS)
    about = {
        "domain": "text",
        "name": name,
        "run": run,
        "length": model.length,
        "hole": model.hole,
        "alphabet": model.alphabet_,
        "parameters": model.fitted().num_parameters,
        "limits": limits.told,
    }

    async def fills(question: Fills) -> list[list[str]]:
        holes = sum(text.count(model.hole) for text in question.texts)
        limits.check_values(holes * question.n, "characters")
        parts = question.parts(model.hole)
        found: list[list[str]] = [[] for _ in question.texts]
        for part, drawn in zip(parts, await desk.ask_in_turn(answering.infill, parts), strict=True):
            for row, one in enumerate(drawn, start=part.start):
                found[row] += one
        return found

    @router.get("/model", response_model=TextAnswer)
    async def read_model() -> Response:
        """The alphabet of the model, its length, and what stands for a hole."""
        return answer(about)

    @router.post("/infill", response_model=FillsAnswer)
    async def ask_infill(request: InfillRequest) -> Response:
        """Fills of the holes of a text."""
        limits.check_size(draws=request.n)
        if request.greedy and request.n > 1:
            raise QueryError("There is one greedy fill only: set `n` to 1.")
        options: dict[str, Any] = {"seed": request.seed, "top_k": request.top_k}
        if request.greedy:
            options["how"] = "greedy"
        else:
            options["temperature"] = request.temperature
        found = await fills(Fills([request.text], request.n, options))
        return answer({"fills": found[0]})

    @router.post("/infill/batch", response_model=FillsBatchAnswer)
    async def ask_many_infills(request: InfillBatchRequest) -> Response:
        """The same for several texts at once."""
        limits.check_size(rows=len(request.texts), draws=request.n)
        found = await fills(Fills(request.texts, request.n, {"seed": request.seed}))
        return answer({"fills": found})

    @router.post("/positions", response_model=PositionsAnswer)
    async def ask_positions(request: PositionsRequest) -> Response:
        """What may stand in each hole, and how probable each known character was."""
        found = await desk.ask(answering.positions, request.text)
        return answer(found)

    @router.post("/log_prob", response_model=TextLogProbAnswer)
    async def ask_log_prob(request: TextLogProbRequest) -> Response:
        """The log-likelihoods of texts."""
        limits.check_size(rows=len(request.texts))
        found = await desk.ask(answering.log_prob, (request.texts, request.given))
        return answer({"log_prob": found})

    return router


@answering
def _judged(model: Any, x: torch.Tensor, known: torch.Tensor) -> tuple[Any, Any]:
    """The log-probabilities of levels at every place, and of each known character on its path."""
    x, known = x.to(model.device), known.to(model.device)
    everywhere = torch.arange(model.num_variables, device=x.device).expand(len(x), -1)
    holes = model.predict(x, known, everywhere).log_probs
    nothing = torch.zeros_like(known)
    rank = model.protocol.rank(known).expand(known.shape)
    factors = model.factors(x, query=known, given=nothing, rank=rank)
    before = torch.full(x.shape, torch.nan)
    before[factors.row.cpu(), factors.target.cpu()] = factors.log_prob.float().cpu()
    return holes.cpu(), before


def _told(model: TextModel, text: str, holes: torch.Tensor, before: torch.Tensor) -> dict[str, Any]:
    positions, total = [], 0.0
    for place, character in enumerate(text):
        is_hole = character == model.hole
        likely: dict[str, float] = {}
        if is_hole:
            top = holes[place].exp().topk(min(LIKELY, len(model.alphabet_)))
            likely = {
                model.alphabet_[code]: short(share)
                for share, code in zip(top.values.tolist(), top.indices.tolist(), strict=True)
            }
        else:
            total += float(before[place])
        probability = None if is_hole else short(float(before[place].exp()))
        positions.append(
            {
                "character": character,
                "hole": is_hole,
                "likely": likely,
                "probability": probability,
            }
        )
    return {"positions": positions, "log_prob": short(total)}
