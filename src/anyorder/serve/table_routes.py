"""The routes of a model of a table."""

from typing import Any

import numpy as np
from fastapi import APIRouter, Response

import anyorder.serve.table_messages as messages
from anyorder.data.categories import CategoryColumn
from anyorder.data.columns import Column, NumberColumn
from anyorder.errors import QueryError
from anyorder.estimators.table import TableModel
from anyorder.query_words import question_words
from anyorder.serve.asking import REFUSALS, Desk, answer, part_seed
from anyorder.serve.summaries import positions, short
from anyorder.serve.table_answering import (
    Conditionals,
    Draws,
    Gaps,
    Likelihood,
    TableAnswering,
)
from anyorder.serve.table_messages import as_given

ROWS_AT_ONCE = 256
"""Rows that are completed or drawn in one go; between two of them, others have their turn."""

TYPICAL = np.array([-2.6, 2.6])
"""The normal scores between which 99 of 100 values of training lie."""


def table_routes(model: TableModel, desk: Desk, *, name: str, run: str) -> APIRouter:
    """The routes for one model, under the name that the page shows and the folder to load."""
    answering, limits = TableAnswering(model), desk.limits
    router = APIRouter(prefix="/v1", responses=REFUSALS)
    about = describe_table(model) | {"name": name, "run": run, "limits": limits.told}

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
        "trained_for": question_words(model.queries_, table.names),
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
