"""Routes of a model of text."""

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from anyorder.errors import AnyOrderError, QueryError
from anyorder.inference.queries import answering
from anyorder.serve.batching import (
    REFUSALS,
    VALUES_AT_ONCE,
    Dispatcher,
    Message,
    Seed,
    answer,
    or_error,
    part_seed,
    short,
)
from anyorder.text.model import TextModel

LIKELY = 6
"""Greatest number of characters that are listed for a hole, the most probable first."""

Text = Annotated[str, Field(strict=True, min_length=1, max_length=100_000)]


class InfillRequest(Message):
    """A text with holes to fill."""

    text: Text = Field(examples=["th_ st_tement"])
    n: int = Field(default=5, ge=1, strict=True, description="Number of fills.")
    greedy: bool = Field(
        default=False, strict=True, description="Most probable character at each step."
    )
    temperature: float = Field(default=1.0, gt=0, le=100, strict=True, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=1, le=100_000, strict=True)
    seed: Seed = None


class InfillBatchRequest(Message):
    """Several texts with holes."""

    texts: list[Text] = Field(min_length=1, examples=[["th_ st_tement", "an ex_epti_n"]])
    n: int = Field(default=1, ge=1, strict=True)
    seed: Seed = None


class PositionsRequest(Message):
    """A text whose characters are to be scored one by one."""

    text: Text = Field(examples=["th_ st_tement"])


class TextLogProbRequest(Message):
    """Texts to score; holes are marginalised."""

    texts: list[Text] = Field(min_length=1, examples=[["the statement"]])
    given: list[Text] | None = Field(
        default=None, description="Evidence: each text with holes where it is queried."
    )


class FillsAnswer(BaseModel):
    """Fills of a text."""

    fills: list[str]


class FillsBatchAnswer(BaseModel):
    """Fills of each text."""

    fills: list[list[str]]


class Position(BaseModel):
    """A hole and its most probable characters, or a known character and its probability."""

    character: str
    hole: bool
    likely: dict[str, float] = Field(
        description="Probabilities in a hole, given all that is known."
    )
    probability: float | None = Field(
        description="Probability of a known character, given the known ones before it."
    )


class PositionsAnswer(BaseModel):
    """Positions of a text."""

    positions: list[Position]
    log_prob: float = Field(description="Log-likelihood of all known characters, in nats.")


class TextLogProbAnswer(BaseModel):
    """Log-likelihoods in nats."""

    log_prob: list[float]


class TextAnswer(BaseModel):
    """The model that is served."""

    domain: Literal["text"]
    name: str
    run: str = Field(description="Run folder of the model.")
    length: int
    hole: str
    alphabet: str
    parameters: int
    limits: dict[str, float]


class Fills(NamedTuple):
    """Texts to infill."""

    texts: Sequence[str]
    n: int
    options: dict[str, Any]
    start: int = 0  # the number of the first text in its request

    def parts(self, hole: str) -> list["Fills"]:
        """Splits them into parts that take the model a moment each."""
        if not all(hole in text for text in self.texts):
            return [self]  # refused before anything is sampled
        longest = max(text.count(hole) for text in self.texts)
        draws = min(self.n, max(1, VALUES_AT_ONCE // longest))
        rows = max(1, VALUES_AT_ONCE // (longest * self.n))
        places = itertools.product(range(0, len(self.texts), rows), range(0, self.n, draws))
        return [
            Fills(
                self.texts[row : row + rows],
                min(draws, self.n - draw),
                self.options | {"random_state": part_seed(self.options["random_state"], number)},
                row,
            )
            for number, (row, draw) in enumerate(places)
        ]


class TextAnswering:
    """Answers queries of a model of text, for several requests at once."""

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def infill(self, questions: Sequence[Fills]) -> list[Any]:
        """Infills; each query has a seed of its own, and so passes of its own."""
        return [
            or_error(lambda one: self.model.infill([*one.texts], n=one.n, **one.options), question)
            for question in questions
        ]

    def log_prob(self, questions: Sequence[tuple[list[str], list[str] | None]]) -> list[Any]:
        """Returns the log-likelihoods of texts."""
        return [or_error(self._log_prob, *question) for question in questions]

    def _log_prob(self, texts: list[str], given: list[str] | None) -> list[float]:
        return self.model.log_prob(texts, given=given).tolist()

    def positions(self, texts: Sequence[str]) -> list[Any]:
        """Scores every position of the texts, in one pass for all."""
        read = [or_error(self.model.read, [text]) for text in texts]
        good = [pair for pair in read if not isinstance(pair, AnyOrderError)]
        if not good:
            return read
        x, known = (torch.cat(part) for part in zip(*good, strict=True))
        holes, before = _position_scores(self.model.fitted(), x, known)
        rows = iter(range(len(good)))
        return [
            pair
            if isinstance(pair, AnyOrderError)
            else _positions(self.model, text, holes[row := next(rows)], before[row])
            for text, pair in zip(texts, read, strict=True)
        ]


def text_routes(model: TextModel, dispatcher: Dispatcher, *, name: str, run: str) -> APIRouter:
    """Returns the routes of one model, under the name and the run folder that the page shows."""
    answering, limits = TextAnswering(model), dispatcher.limits
    router = APIRouter(prefix="/v1", responses=REFUSALS)
    about = {
        "domain": "text",
        "name": name,
        "run": run,
        "length": model.length,
        "hole": model.hole,
        "alphabet": model.alphabet_,
        "parameters": model.fitted().num_parameters,
        "limits": limits.public,
    }

    async def fills(question: Fills) -> list[list[str]]:
        holes = sum(text.count(model.hole) for text in question.texts)
        limits.check_values(holes * question.n, "characters")
        parts = question.parts(model.hole)
        found: list[list[str]] = [[] for _ in question.texts]
        for part, drawn in zip(
            parts, await dispatcher.ask_in_turn(answering.infill, parts), strict=True
        ):
            for row, one in enumerate(drawn, start=part.start):
                found[row] += one
        return found

    @router.get("/model", response_model=TextAnswer)
    async def read_model() -> Response:
        """Returns the alphabet of the model, its length, and its marker of a hole."""
        return answer(about)

    @router.post("/infill", response_model=FillsAnswer)
    async def ask_infill(request: InfillRequest) -> Response:
        """Infills a text."""
        limits.check_size(draws=request.n)
        if request.greedy and request.n > 1:
            raise QueryError("There is one greedy fill only: set `n` to 1.")
        options: dict[str, Any] = {"random_state": request.seed, "top_k": request.top_k}
        if request.greedy:
            options["how"] = "greedy"
        else:
            options["temperature"] = request.temperature
        found = await fills(Fills([request.text], request.n, options))
        return answer({"fills": found[0]})

    @router.post("/infill/batch", response_model=FillsBatchAnswer)
    async def ask_many_infills(request: InfillBatchRequest) -> Response:
        """Infills several texts."""
        limits.check_size(rows=len(request.texts), draws=request.n)
        found = await fills(Fills(request.texts, request.n, {"random_state": request.seed}))
        return answer({"fills": found})

    @router.post("/positions", response_model=PositionsAnswer)
    async def ask_positions(request: PositionsRequest) -> Response:
        """Returns probable characters for each hole, and the probability of each known one."""
        found = await dispatcher.ask(answering.positions, request.text)
        return answer(found)

    @router.post("/log_prob", response_model=TextLogProbAnswer)
    async def ask_log_prob(request: TextLogProbRequest) -> Response:
        """Returns the log-likelihoods of texts."""
        limits.check_size(rows=len(request.texts))
        found = await dispatcher.ask(answering.log_prob, (request.texts, request.given))
        return answer({"log_prob": found})

    return router


@answering
def _position_scores(model: Any, x: torch.Tensor, known: torch.Tensor) -> tuple[Any, Any]:
    """Returns log-probabilities of levels at every place, and of known characters on the path."""
    x, known = x.to(model.device), known.to(model.device)
    everywhere = torch.arange(model.num_variables, device=x.device).expand(len(x), -1)
    holes = model.predict(x, known, everywhere).log_probs
    nothing = torch.zeros_like(known)
    rank = model.protocol.rank(known).expand(known.shape)
    factors = model.factors(x, query=known, given=nothing, rank=rank)
    before = torch.full(x.shape, torch.nan)
    before[factors.row.cpu(), factors.target.cpu()] = factors.log_prob.float().cpu()
    return holes.cpu(), before


def _positions(
    model: TextModel, text: str, holes: torch.Tensor, before: torch.Tensor
) -> dict[str, Any]:
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
