"""The HTTP routes of a table model: requests, their answers by the query engine, OpenAPI messages.

Every public method of `TableAnswering` takes the questions of a batch and returns an answer or a
user error for each. They run in the one thread that computes.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, StrictBool
from torch import Tensor

from anyorder.cli.console import plain, records
from anyorder.errors import AnyOrderError, QueryError, seeded
from anyorder.inference.queries import SoftEvidence
from anyorder.lattice.query_laws import describe_queries
from anyorder.serve.batching import (
    REFUSALS,
    Dispatcher,
    Message,
    Seed,
    answer,
    or_error,
    part_seed,
)
from anyorder.tables.answer_form import Answers
from anyorder.tables.answers import SOFT_DRAWS as LIBRARY_DRAWS
from anyorder.tables.columns import CategoryColumn, Column, NumberColumn
from anyorder.tables.conditional import answers, described, positions
from anyorder.tables.engine import Evidence, Question, log_prob_in_units, row_log_prob, sample_rows
from anyorder.tables.model import TableModel
from anyorder.tables.questions import column_set, column_sets, named_sets, read_many

Whole = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True, max_length=100_000)]
Name = Annotated[str, Field(strict=True, max_length=1000)]
Value = StrictBool | Whole | Real | Text
SOFT_DRAWS, MOST_SOFT_DRAWS = 64, LIBRARY_DRAWS
"""Samples that stand for intervals and sets, by default and at most: `TableModel` takes the most,
for which a page with a slider cannot wait."""

EVIDENCE = {"age": {"low": 30, "high": 40}, "job": ["nurse", "clerk"], "income": 31500}


class Range(Message):
    """All values from `low` to `high`; null is an open end."""

    low: Value | None = None
    high: Value | None = None


Given = Mapping[str, Any]
"""Evidence as `TableModel` takes it."""

Known = dict[Name, Value | Range | list[Value] | None]
Row = dict[Name, Value | None]


def as_given(known: Known) -> dict[str, Any]:
    """Returns evidence as `TableModel` takes it: an interval is a tuple."""
    return {
        name: (value.low, value.high) if isinstance(value, Range) else value
        for name, value in known.items()
    }


class ConditionalsRequest(Message):
    """Queried columns and evidence."""

    given: Known = Field(
        default={},
        description="Evidence by column: a value, an interval or a list of levels.",
        examples=[EVIDENCE],
    )
    columns: list[Name] | None = Field(
        default=None,
        description="Queried columns; by default all that are not given.",
        examples=[["income"]],
    )
    draws: int = Field(
        default=SOFT_DRAWS,
        ge=1,
        le=MOST_SOFT_DRAWS,
        strict=True,
        description="Number of samples that stand for intervals and lists; `TableModel` takes "
        f"{MOST_SOFT_DRAWS}.",
    )


class ConditionalsBatchRequest(Message):
    """Several questions at once."""

    questions: list[ConditionalsRequest] = Field(
        min_length=1, examples=[[{"given": {"age": 41}}, {"given": {"job": "nurse"}}]]
    )


class SurpriseRequest(Message):
    """A record to score."""

    given: Known = Field(description="The record so far.", examples=[EVIDENCE])


class OutliersRequest(Message):
    """Rows to score, cell by cell."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": "nurse"}]])


class LogProbRequest(OutliersRequest):
    """Rows to score."""

    query: list[Name] | None = Field(
        default=None,
        description="Queried columns; by default all that a row has and that are not given.",
        examples=[["job"]],
    )
    given: list[Name] | None = Field(
        default=None, description="Columns of the evidence.", examples=[["age"]]
    )


class SampleRequest(Message):
    """Number of rows to sample, and evidence."""

    given: Known = Field(default={}, examples=[{"job": "nurse"}])
    n: int = Field(default=10, ge=1, strict=True, description="Number of rows.")
    seed: Seed = Field(default=None, description="The same seed gives the same rows.")


class ImputeRequest(Message):
    """Rows with missing values to impute."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": None}]])
    draws: int = Field(default=1, ge=1, strict=True, description="Imputations of each row.")
    how: Literal["sample", "mean", "mode"] = Field(
        default="sample", description="Joint samples, or a prediction of each missing value."
    )
    seed: Seed = None


class GainRequest(Message):
    """Target of an information gain, and evidence."""

    target: Name = Field(description="Column to learn about.", examples=["income"])
    given: Known = Field(default={}, description="Values of the evidence.", examples=[{"age": 41}])


class BatchAnswers(BaseModel):
    """An answer to each question."""

    answers: list[Answers]


class SurpriseAnswer(BaseModel):
    """Negative log-likelihood of a record, and its rank."""

    nats: float = Field(description="Negative log-likelihood; numbers count in normal scores.")
    rank: float | None = Field(
        description="Share of records sampled from the model that are likelier in these columns; "
        "null with intervals, lists or context."
    )
    warnings: list[str]


class LogProbAnswer(BaseModel):
    """Log-likelihood of each row, in nats and in the units of the columns."""

    log_prob: list[float]


class RowsAnswer(BaseModel):
    """Sampled rows."""

    rows: list[dict[str, Any]]
    effective_sample_size: float | None
    warnings: list[str]


class ImputeAnswer(BaseModel):
    """Completed rows, once for each draw."""

    draws: list[list[dict[str, Any]]]


class GainAnswer(BaseModel):
    """Expected information gain of each column about the target in nats, greatest first."""

    gains: dict[str, float]


class OutliersAnswer(BaseModel):
    """Negative log-likelihood in nats: of each row per cell, of each cell given the others."""

    rows: list[float | None]
    cells: list[dict[str, float | None]]


class ColumnAnswer(BaseModel):
    """A column of the model."""

    name: str
    type: str
    details: str
    context: bool = Field(description="True if it is always given, never queried.")
    levels: list[bool | int | float | str] | None = Field(description="Levels of a category.")
    low: float | None = Field(description="Least value in training; times in seconds.")
    high: float | None
    step: float | None = Field(description="Step that values are rounded to.")
    zoned: bool = Field(description="True if its times have a time zone.")
    typical: list[float] | None = Field(description="Interval of 99% of the training values.")


class TableAnswer(BaseModel):
    """The model that is served."""

    domain: Literal["table"]
    name: str
    run: str = Field(description="Run folder of the model, as the server was given it.")
    columns: list[ColumnAnswer]
    parameters: int
    trained_for: list[str]
    limits: dict[str, float]


REFERENCE_ROWS = 200
"""Records sampled from the model, among which the likelihood of another is ranked."""

KEPT_SETS = 64
"""Sets of columns whose reference log-likelihoods are cached."""


class Incomplete(NamedTuple):
    """Rows with missing values to impute."""

    rows: Sequence[Given]
    draws: int
    how: Any
    seed: int | None
    start: int = 0  # the number of the first row in its request, for messages


class _Read(NamedTuple):
    """Evidence that was read, its samples, and warnings about it."""

    evidence: Evidence
    soft: SoftEvidence
    warnings: list[str]


class TableAnswering:
    """Answers of one fitted model to batches of questions."""

    def __init__(self, model: TableModel) -> None:
        self.model, self.table = model, model.table_
        model.model_.eval()  # once, where the library does it for every question
        self._reference = lru_cache(KEPT_SETS)(self._reference_of)

    def conditionals(self, questions: Sequence[ConditionalsRequest]) -> list[Any]:
        """Returns the distributions of columns: one batch of the engine for all questions."""
        given = [as_given(one.given) for one in questions]
        read = self._read(given, [one.draws for one in questions])
        valid = [
            found if isinstance(found, AnyOrderError) else or_error(self._query, question, found)
            for question, found in zip(questions, read, strict=True)
        ]
        found = self.model._answered([one for one in valid if isinstance(one, Question)])
        forms = iter(described([one for own in found for one in own]))
        own = iter(found)
        return [
            answers(mine := next(own), [next(forms) for _ in mine], source.warnings)
            if isinstance(one, Question) and isinstance(source, _Read)
            else one
            for one, source in zip(valid, read, strict=True)
        ]

    def surprise(self, records: Sequence[Given]) -> list[Any]:
        """Returns the negative log-likelihoods of records, by one pass for all, and their ranks."""
        read = self._read(records, [SOFT_DRAWS] * len(records))
        good = [one.evidence for one in read if isinstance(one, _Read)]
        if not good:
            return list(read)
        x, query = torch.cat([one.x for one in good]), torch.stack([one.given for one in good])
        found = iter(self._joint(x, query).tolist())
        return [
            one if isinstance(one, AnyOrderError) else self._ranked(one, next(found))
            for one in read
        ]

    def log_prob(self, questions: Sequence[LogProbRequest]) -> list[Any]:
        """Returns log-likelihoods of rows: one pass for the rows of all questions."""
        read = [or_error(self._rows_and_sets, question) for question in questions]
        good = [part for part in read if not isinstance(part, Exception)]
        if not good:
            return read
        frames, *tensors = zip(*good, strict=True)
        x, query, given = (torch.cat(part) for part in tensors)
        frame = pd.concat(frames, ignore_index=True)
        found = log_prob_in_units(self.model.model_, self.table, frame, x, query=query, given=given)
        split = iter(found.split([len(frame) for frame in frames]))
        return [
            part if isinstance(part, Exception) else {"log_prob": next(split).tolist()}
            for part in read
        ]

    def sample(self, questions: Sequence[SampleRequest]) -> list[Any]:
        """Samples rows; each question has its own seed, so its own pass."""
        return [or_error(self._sampled, question) for question in questions]

    def impute(self, questions: Sequence[Incomplete]) -> list[Any]:
        """Returns completed rows, as a list of rows for each draw."""
        return [or_error(self._imputed, question) for question in questions]

    def gains(self, questions: Sequence[tuple[str, Given]]) -> list[Any]:
        """Returns the expected information gain of each column about a target."""
        return [or_error(self._gains, *question) for question in questions]

    def outliers(self, questions: Sequence[Sequence[Given]]) -> list[Any]:
        """Returns the negative log-likelihoods of rows and their cells."""
        return [or_error(self._outliers, rows) for rows in questions]

    @cached_property
    def _reference_rows(self) -> Tensor:
        """Sampled records to rank others among."""
        nothing, none = torch.zeros(1, len(self.table.schema)), torch.zeros(len(self.table.names))
        return sample_rows(
            self.model.model_, nothing, none.bool(), n=REFERENCE_ROWS, generator=seeded(0)
        )

    def _read(self, records: Sequence[Given], draws: Sequence[int]) -> list[_Read | AnyOrderError]:
        def sampled(evidence: Evidence, warned: list[str], n: int) -> _Read:
            soft = evidence.sampled(self.model.model_, n, seeded(0))
            return _Read(evidence, soft, warned)

        return [
            read if isinstance(read, AnyOrderError) else or_error(sampled, *read, n)
            for read, n in zip(read_many(self.table, records), draws, strict=True)
        ]

    def _query(self, question: ConditionalsRequest, read: _Read) -> Question:
        names = question.columns
        column_set(self.table, names, argument="columns", allow_context=False)
        with warnings.catch_warnings(record=True, action="always") as caught:
            queried = self.model._queried(names, read.soft.known)
        read.warnings.extend(dict.fromkeys(str(warning.message) for warning in caught))
        places = [self.table.names.index(name) for name in queried]
        return Question(read.soft, places, read.evidence)

    def _joint(self, x: Tensor, query: Tensor) -> Tensor:
        return row_log_prob(self.model.model_, x, query=query, given=torch.zeros_like(query))

    def _reference_of(self, columns: tuple[bool, ...]) -> Tensor:
        """Returns the log-likelihoods of sampled records in some columns."""
        rows = self._reference_rows
        return self._joint(rows, torch.tensor(columns).expand(len(rows), -1))

    def _ranked(self, read: _Read, log_prob: float) -> dict[str, Any]:
        columns, rank = tuple(read.evidence.given.tolist()), None
        if any(columns) and not read.soft.is_drawn and not self.table.context:
            rank = float((self._reference(columns) > log_prob).double().mean())
        regions = read.soft.log_probability if read.soft.is_drawn else 0.0
        return {"nats": -log_prob - regions, "rank": rank, "warnings": read.warnings}

    def _rows_and_sets(
        self, question: LogProbRequest
    ) -> tuple[pd.DataFrame, Tensor, Tensor, Tensor]:
        frame = self._framed(question.rows)
        named_sets(self.table, question.query, question.given)
        x, missing = self.table.encode(frame, needs=question.query)
        query, given = column_sets(self.table, missing, query=question.query, given=question.given)
        kept = [name for name in frame.columns if name in self.table.layout]
        return frame[kept], x, query, given

    def _framed(self, rows: Sequence[Given], start: int = 0) -> pd.DataFrame:
        """Returns rows as a frame; what a row does not have is missing."""
        names = dict.fromkeys(name for row in rows for name in row)
        # A frame without columns is an error elsewhere; here it is rows without evidence.
        listed = list(names) or [self.table.names[0]]
        columns = {name: [row.get(name) for row in rows] for name in listed}
        return pd.DataFrame(columns, index=range(start, start + len(rows)))

    def _sampled(self, question: SampleRequest) -> dict[str, Any]:
        with warnings.catch_warnings(record=True, action="always") as caught:
            given = as_given(question.given)
            frame = self.model.sample(question.n, given=given, random_state=question.seed)
        return {
            "rows": records(frame),
            "effective_sample_size": frame.attrs.get("effective_sample_size"),
            "warnings": [str(warning.message) for warning in caught],
        }

    def _imputed(self, question: Incomplete) -> list[list[dict[str, Any]]]:
        frame = self._framed(question.rows, question.start)
        filled = self.model.impute(
            frame, draws=question.draws, how=question.how, random_state=question.seed
        )
        if question.draws == 1:
            return [records(filled)]
        return [records(filled.loc[draw]) for draw in range(question.draws)]

    def _gains(self, target: str, given: Given) -> dict[str, Any]:
        with warnings.catch_warnings(action="ignore"):
            found = self.model.information_gain(target, given=given)
        informative = {name: g for name, g in found.items() if not self.table[name].is_constant}
        # Information is never negative: below zero are errors of the model and of quadrature.
        return {"gains": {name: max(gain, 0.0) for name, gain in informative.items()}}

    def _outliers(self, rows: Sequence[Given]) -> dict[str, Any]:
        found = self.model.outliers(self._framed(rows))
        whole = found.columns[0]
        return {
            "rows": [plain(value) for value in found[whole].tolist()],
            "cells": records(found.drop(columns=whole)),
        }


ROWS_AT_ONCE = 256
"""Rows that are imputed at once; other requests are answered in between."""

TYPICAL = np.array([-2.6, 2.6])
"""Normal scores between which 99% of the training values lie."""


def table_routes(model: TableModel, dispatcher: Dispatcher, *, name: str, run: str) -> APIRouter:
    """Returns the routes of one model; the page shows its name and its run folder."""
    answering, limits = TableAnswering(model), dispatcher.limits
    router = APIRouter(prefix="/v1", responses=REFUSALS)
    about = describe_table(model) | {"name": name, "run": run, "limits": limits.public}

    @router.get("/model", response_model=TableAnswer)
    async def read_model() -> Response:
        """Returns the columns of the model and its training queries."""
        return answer(about)

    @router.post("/conditionals", response_model=Answers)
    async def ask_conditionals(request: ConditionalsRequest) -> Response:
        """Returns the distribution of each queried column, by itself, given the evidence."""
        return answer(await dispatcher.ask(answering.conditionals, request))

    @router.post("/conditionals/batch", response_model=BatchAnswers)
    async def ask_many_conditionals(request: ConditionalsBatchRequest) -> Response:
        """Returns the same for several questions at once."""
        limits.check_size(rows=len(request.questions))
        questions = request.questions
        found = await dispatcher.ask_all(answering.conditionals, questions, noun="Question")
        return answer({"answers": found})

    @router.post("/surprise", response_model=SurpriseAnswer)
    async def ask_surprise(request: SurpriseRequest) -> Response:
        """Returns the negative log-likelihood of a record, and its rank among sampled records."""
        return answer(await dispatcher.ask(answering.surprise, as_given(request.given)))

    @router.post("/log_prob", response_model=LogProbAnswer)
    async def ask_log_prob(request: LogProbRequest) -> Response:
        """Returns the log-likelihood of columns of rows, given other columns."""
        limits.check_size(rows=len(request.rows))
        return answer(await dispatcher.ask(answering.log_prob, request))

    @router.post("/sample", response_model=RowsAnswer)
    async def ask_sample(request: SampleRequest) -> Response:
        """Samples rows given the evidence."""
        limits.check_size(draws=request.n)
        return answer(await dispatcher.ask(answering.sample, request))

    @router.post("/impute", response_model=ImputeAnswer)
    async def ask_impute(request: ImputeRequest) -> Response:
        """Imputes missing values, given all values that each row has."""
        if request.how != "sample" and request.draws > 1:
            raise QueryError(f"There is one {request.how} only: leave `draws` out, or `how`.")
        limits.check_size(rows=len(request.rows), draws=request.draws)
        size = max(1, ROWS_AT_ONCE // request.draws)
        questions = [
            Incomplete(
                request.rows[start : start + size],
                request.draws,
                request.how,
                part_seed(request.seed, number),
                start,
            )
            for number, start in enumerate(range(0, len(request.rows), size))
        ]
        parts = await dispatcher.ask_in_turn(answering.impute, questions)
        draws = [[row for part in parts for row in part[i]] for i in range(request.draws)]
        return answer({"draws": draws})

    @router.post("/information_gain", response_model=GainAnswer)
    async def ask_information_gain(request: GainRequest) -> Response:
        """Returns the expected information gain of each other column about a target."""
        question = (request.target, as_given(request.given))
        return answer(await dispatcher.ask(answering.gains, question))

    @router.post("/outliers", response_model=OutliersAnswer)
    async def ask_outliers(request: OutliersRequest) -> Response:
        """Returns the negative log-likelihood of rows, and of each cell given the others."""
        limits.check_size(rows=len(request.rows))
        return answer(await dispatcher.ask(answering.outliers, request.rows))

    return router


def describe_table(model: TableModel) -> dict[str, Any]:
    """Describes a table model for `/v1/model`."""
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
        "type": column.kind,
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
        ends["typical"] = [min(max(end, low), high) for end in middle]
    return found | ends
