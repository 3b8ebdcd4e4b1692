"""What requests about a table may hold, and what answers do: the OpenAPI description.

The routes of a model of a table.
"""

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, StrictBool

import anyorder.tables.routes as messages
from anyorder.errors import QueryError
from anyorder.lattice.query_mixtures import describe_queries
from anyorder.serve.batching import REFUSALS, Dispatcher, Message, Seed, answer, part_seed
from anyorder.tables.answering import Conditionals, Draws, Gaps, Likelihood, TableAnswering
from anyorder.tables.categories import CategoryColumn
from anyorder.tables.columns import Column, NumberColumn
from anyorder.tables.model import TableModel
from anyorder.tables.summaries import positions, short

Whole = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True, max_length=100_000)]
Name = Annotated[str, Field(strict=True, max_length=1000)]
Value = StrictBool | Whole | Real | Text
EVIDENCE = {"age": {"low": 30, "high": 40}, "job": ["nurse", "clerk"], "income": 31500}


class Range(Message):
    """All values from `low` to `high`; null is an open end."""

    low: Value | None = None
    high: Value | None = None


Known = dict[Name, Value | Range | list[Value] | None]
Row = dict[Name, Value | None]


def as_given(known: Known) -> dict[str, Any]:
    """Evidence as `TableModel` takes it: an interval is a tuple."""
    return {
        name: (value.low, value.high) if isinstance(value, Range) else value
        for name, value in known.items()
    }


class ConditionalsRequest(Message):
    """Which columns are asked, given what."""

    given: Known = Field(
        default={},
        description="What is known, by column: a value; an interval; a list of levels.",
        examples=[EVIDENCE],
    )
    columns: list[Name] | None = Field(
        default=None,
        description="Which columns are asked; by default all that are not given.",
        examples=[["income"]],
    )


class ConditionalsBatchRequest(Message):
    """Several questions at once."""

    questions: list[ConditionalsRequest] = Field(
        min_length=1, examples=[[{"given": {"age": 41}}, {"given": {"job": "nurse"}}]]
    )


class SurpriseRequest(Message):
    """How unusual a record is."""

    given: Known = Field(description="The record so far.", examples=[EVIDENCE])


class LogProbRequest(Message):
    """The log-likelihood of rows."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": "nurse"}]])
    query: list[Name] | None = Field(
        default=None,
        description="Columns that are asked; by default all that a row has and is not given.",
        examples=[["job"]],
    )
    given: list[Name] | None = Field(
        default=None, description="Columns that are known.", examples=[["age"]]
    )


class SampleRequest(Message):
    """Rows drawn given what is known."""

    given: Known = Field(default={}, examples=[{"job": "nurse"}])
    n: int = Field(default=10, ge=1, strict=True, description="How many rows.")
    seed: Seed = Field(default=None, description="The same seed gives the same rows.")


class ImputeRequest(Message):
    """Rows with gaps to fill."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": None}]])
    draws: int = Field(default=1, ge=1, strict=True, description="How often each row is filled.")
    how: Literal["sample", "mean", "mode"] = Field(
        default="sample", description="Draws that belong together, or the best guess of each gap."
    )
    seed: Seed = None


class GainRequest(Message):
    """What to measure next."""

    target: Name = Field(description="What is to be known better.", examples=["income"])
    given: Known = Field(default={}, description="Values that are known.", examples=[{"age": 41}])


class OutliersRequest(Message):
    """Rows to be judged."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": "nurse"}]])


class Density(BaseModel):
    """A density between repeated values, in the unit of the column; times in seconds since 1970."""

    values: list[float]
    heights: list[float]
    share: float = Field(description="The probability of all but repeated values.")


class Repeated(BaseModel):
    """Values that have a probability of their own."""

    values: list[float]
    probabilities: list[float]


class NumberAnswer(BaseModel):
    """The distribution of a number or a time."""

    kind: Literal["number", "date and time", "date", "duration"]
    mean: float | str
    median: float | str
    interval: list[float | str] = Field(description="Holds the value with probability 0.9.")
    places: list[float] = Field(
        description="The low end, the median, the high end and the mean, as places on the axis of "
        "the density: times in seconds since 1970."
    )
    density: Density
    repeated: Repeated
    entropy: float = Field(description="In nats, of normal scores.")


class CategoryAnswer(BaseModel):
    """The distribution of a category."""

    kind: Literal["category", "boolean"]
    levels: list[bool | int | float | str]
    probabilities: list[float]
    mode: bool | int | float | str
    entropy: float


class ConditionalsAnswer(BaseModel):
    """What is known about each column."""

    columns: dict[str, NumberAnswer | CategoryAnswer]
    effective_sample_size: float | None = Field(
        description="Of the draws that stand for intervals and lists; null where there are none."
    )
    warnings: list[str] = Field(description="Reasons to doubt the answer.")


class ConditionalsBatchAnswer(BaseModel):
    """An answer to each question."""

    answers: list[ConditionalsAnswer]


class SurpriseAnswer(BaseModel):
    """How unusual a record is."""

    nats: float = Field(description="Minus its log-likelihood; numbers count in normal scores.")
    rank: float | None = Field(
        description="The share of records drawn from the model that are less surprising in these "
        "columns; null with intervals, lists or context."
    )
    warnings: list[str]


class LogProbAnswer(BaseModel):
    """The log-likelihood of each row, in nats and in the units of the columns."""

    log_prob: list[float]


class RowsAnswer(BaseModel):
    """Rows."""

    rows: list[dict[str, Any]]
    effective_sample_size: float | None
    warnings: list[str]


class ImputeAnswer(BaseModel):
    """Completed rows, once for each draw."""

    draws: list[list[dict[str, Any]]]


class GainAnswer(BaseModel):
    """How many nats each column is expected to tell about the target, most first."""

    gains: dict[str, float]


class OutliersAnswer(BaseModel):
    """How surprising each row is a cell, and each of its cells given the others, in nats."""

    rows: list[float | None]
    cells: list[dict[str, float | None]]


class ColumnAnswer(BaseModel):
    """What a column is to the model."""

    name: str
    kind: str
    details: str
    context: bool = Field(description="Whether it is always given and never asked.")
    levels: list[bool | int | float | str] | None = Field(description="Of a category.")
    low: float | None = Field(description="The least value in training; times in seconds.")
    high: float | None
    step: float | None = Field(description="What values are rounded to.")
    zoned: bool = Field(description="Whether its times have a time zone.")
    typical: list[float] | None = Field(description="Where 99 of 100 values of training lie.")


class TableAnswer(BaseModel):
    """The model that is served."""

    domain: Literal["table"]
    name: str
    run: str = Field(description="The folder to load it from, as the server was told it.")
    columns: list[ColumnAnswer]
    parameters: int
    trained_for: list[str]
    limits: dict[str, float]


ROWS_AT_ONCE = 256
"""Rows that are completed or drawn in one go; between two of them, others have their turn."""

TYPICAL = np.array([-2.6, 2.6])
"""The normal scores between which 99 of 100 values of training lie."""


def table_routes(model: TableModel, desk: Dispatcher, *, name: str, run: str) -> APIRouter:
    """The routes for one model, under the name that the page shows and the folder to load."""
    answering, limits = TableAnswering(model), desk.limits
    router = APIRouter(prefix="/v1", responses=REFUSALS)
    about = describe_table(model) | {"name": name, "run": run, "limits": limits.public}

    @router.get("/model", response_model=messages.TableAnswer)
    async def read_model() -> Response:
        """The columns of the model, and what it was trained for."""
        return answer(about)

    @router.post("/conditionals", response_model=messages.ConditionalsAnswer)
    async def ask_conditionals(request: messages.ConditionalsRequest) -> Response:
        """The distribution of each column that is asked, by itself, given what is known."""
        question = Conditionals(as_given(request.given), request.columns)
        found = await desk.ask(answering.conditionals, question)
        return answer(found)

    @router.post("/conditionals/batch", response_model=messages.ConditionalsBatchAnswer)
    async def ask_many_conditionals(request: messages.ConditionalsBatchRequest) -> Response:
        """The same for several questions at once."""
        limits.check_size(rows=len(request.questions))
        questions = [Conditionals(as_given(one.given), one.columns) for one in request.questions]
        found = await desk.ask_all(answering.conditionals, questions, noun="Question")
        return answer({"answers": found})

    @router.post("/surprise", response_model=messages.SurpriseAnswer)
    async def ask_surprise(request: messages.SurpriseRequest) -> Response:
        """How unusual a record is, and beside how many others."""
        found = await desk.ask(answering.surprise, as_given(request.given))
        return answer(found)

    @router.post("/log_prob", response_model=messages.LogProbAnswer)
    async def ask_log_prob(request: messages.LogProbRequest) -> Response:
        """The log-likelihood of columns of rows, given other columns."""
        limits.check_size(rows=len(request.rows))
        question = Likelihood(request.rows, request.query, request.given)
        found = await desk.ask(answering.log_prob, question)
        return answer(found)

    @router.post("/sample", response_model=messages.RowsAnswer)
    async def ask_sample(request: messages.SampleRequest) -> Response:
        """Rows drawn given what is known."""
        limits.check_size(draws=request.n)
        question = Draws(as_given(request.given), request.n, request.seed)
        found = await desk.ask(answering.sample, question)
        return answer(found)

    @router.post("/impute", response_model=messages.ImputeAnswer)
    async def ask_impute(request: messages.ImputeRequest) -> Response:
        """Rows with their gaps filled, given all that each row has."""
        if request.how != "sample" and request.draws > 1:
            raise QueryError(f"There is one {request.how} only: leave `draws` out, or `how`.")
        limits.check_size(rows=len(request.rows), draws=request.draws)
        size = max(1, ROWS_AT_ONCE // request.draws)
        questions = [
            Gaps(
                request.rows[start : start + size],
                request.draws,
                request.how,
                part_seed(request.seed, number),
                start,
            )
            for number, start in enumerate(range(0, len(request.rows), size))
        ]
        parts = await desk.ask_in_turn(answering.impute, questions)
        draws = [[row for part in parts for row in part[i]] for i in range(request.draws)]
        return answer({"draws": draws})

    @router.post("/information_gain", response_model=messages.GainAnswer)
    async def ask_information_gain(request: messages.GainRequest) -> Response:
        """What to measure next: how much each unknown column is expected to tell of a target."""
        question = (request.target, as_given(request.given))
        found = await desk.ask(answering.gains, question)
        return answer(found)

    @router.post("/outliers", response_model=messages.OutliersAnswer)
    async def ask_outliers(request: messages.OutliersRequest) -> Response:
        """How surprising rows are, and each of their cells given the others."""
        limits.check_size(rows=len(request.rows))
        found = await desk.ask(answering.outliers, request.rows)
        return answer(found)

    return router


def describe_table(model: TableModel) -> dict[str, Any]:
    """What a model of a table is, for people and pages."""
    table = model.table_
    details = {line.column: line.details for line in table.summary()}
    columns = sorted((*table.query, *table.context), key=lambda c: table.layout.index(c.name))
    return {
        "domain": "table",
        "columns": [_described(column, details[column.name]) for column in columns],
        "parameters": model.model_.num_parameters,
        "trained_for": describe_queries(model.queries_, table.names),
    }


def _described(column: Column, details: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": column.name,
        "kind": column.kind,
        "details": details,
        "context": column.context,
        "levels": list(column.levels) if isinstance(column, CategoryColumn) else None,
        "zoned": isinstance(column, NumberColumn) and column.measurement.zone is not None,
    }
    ends: dict[str, Any] = dict.fromkeys(("low", "high", "step", "typical"))
    if isinstance(column, NumberColumn):
        low, high = positions(column, np.array(column.seen)).tolist()
        middle = positions(column, column.gaussianizer.inverse(TYPICAL)).tolist()
        ends = {"low": low, "high": high, "step": column.resolution}
        ends["typical"] = [short(min(max(end, low), high)) for end in middle]
    return found | ends
