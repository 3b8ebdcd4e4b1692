"""What a model of a table answers, for several requests at once.

Every method takes the questions of a batch and gives an answer to each, or the error that the asker
made. They run in the one thread that computes.

What requests say is known, as codes: all requests of a batch together.

`read_evidence` of the library reads anything and takes a millisecond a request. What most requests
hold, numbers within the range of training and levels that are there, is read here column by column
for all requests of a batch at once; all else is left to the library, with its sentences.
"""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from anyorder.cli.console import plain, records
from anyorder.errors import AnyOrderError, QueryError
from anyorder.inference.soft_evidence import SoftEvidence, soft_evidence
from anyorder.lattice.random_sets import seeded
from anyorder.tables.categories import CategoryColumn
from anyorder.tables.columns import Column, NumberColumn
from anyorder.tables.curves import Ask, distributions, information_gains
from anyorder.tables.engine import draw_rows, log_prob_in_units, row_log_prob
from anyorder.tables.model import TableModel
from anyorder.tables.questions import (
    Evidence,
    column_set,
    column_sets,
    doubt_question,
    named_sets,
    read_evidence,
)
from anyorder.tables.schema import TableSchema
from anyorder.tables.summaries import short, summaries

Given = Mapping[str, Any]

Read = tuple[Evidence, list[str]]
"""What is known, and reasons to doubt the answer."""


def read_many(table: TableSchema, records: Sequence[Given]) -> list[Read | AnyOrderError]:
    """The evidence of each record, or what is wrong with it."""
    plain = [place for place, record in enumerate(records) if _is_plain(table, record)]
    found: list[Read | AnyOrderError | None] = [None] * len(records)
    for place, evidence in zip(plain, _read_plain(table, [records[i] for i in plain]), strict=True):
        found[place] = evidence, []
    return [
        read_one(table, record) if read is None else read
        for record, read in zip(records, found, strict=True)
    ]


def read_one(table: TableSchema, record: Given) -> Read | AnyOrderError:
    """The evidence of one record, by the library's own reader."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            evidence = read_evidence(table, record)
        except AnyOrderError as error:
            return error
    return evidence, [str(warning.message) for warning in caught]


def _is_plain(table: TableSchema, record: Given) -> bool:
    if table.context or table.missing_values:
        return False
    columns = {column.name: column for column in table.query}
    return all(
        name in columns and (value is None or _is_plain_value(columns[name], value))
        for name, value in record.items()
    )


def _is_plain_value(column: Column, value: Any) -> bool:
    """Whether nothing has to be converted, and nothing is to be said about it."""
    if isinstance(column, CategoryColumn):
        return any(level == value and type(level) is type(value) for level in column.levels)
    if not isinstance(column, NumberColumn) or column.kind != "number":
        return False
    if type(value) not in (int, float) or column.measurement.origin:
        return False
    low, high = column.seen
    return low <= value <= high and (not column.is_whole or value == int(value))


def _read_plain(table: TableSchema, records: Sequence[Given]) -> list[Evidence]:
    x = torch.zeros(len(records), len(table.schema))
    known = torch.zeros(len(records), len(table.query), dtype=torch.bool)
    for place, column in enumerate(table.query):
        rows = [row for row, record in enumerate(records) if record.get(column.name) is not None]
        if not rows:
            continue
        values = [records[row][column.name] for row in rows]
        x[rows, place] = torch.from_numpy(_codes(column, values)).float()
        known[rows, place] = True
    return [Evidence(x[row : row + 1], known[row], {}) for row in range(len(records))]


def _codes(column: Column, values: Sequence[Any]) -> np.ndarray[Any, Any]:
    if isinstance(column, CategoryColumn):
        return np.array([column.levels.index(value) for value in values], dtype=np.float64)
    return column.encode(pd.Series(values, dtype=np.float64, name=column.name))[0]


SOFT_DRAWS = 64
"""Draws that stand for intervals and sets; fewer than `TableModel` takes, so that a page can keep
up with a slider."""

REFERENCE_ROWS = 200
"""Records drawn from the model, against which the surprise of another is ranked."""

KEPT_SETS = 64
"""Sets of columns whose reference is kept."""


class Conditionals(NamedTuple):
    """A question about columns; None for all that are not given."""

    given: Given
    columns: Sequence[str] | None = None


class Likelihood(NamedTuple):
    """A question about the likelihood of rows."""

    rows: Sequence[Given]
    query: Sequence[str] | None = None
    given: Sequence[str] | None = None


class Draws(NamedTuple):
    """Rows to be drawn."""

    given: Given
    n: int
    seed: int | None


class Gaps(NamedTuple):
    """Rows to be completed."""

    rows: Sequence[Given]
    draws: int
    how: Any
    seed: int | None
    start: int = 0  # the number of the first row in its request, for messages


@dataclass(frozen=True)
class _Read:
    """Evidence that was read, its draws, and reasons to doubt what follows from it."""

    evidence: Evidence
    soft: SoftEvidence
    doubts: list[str]


class TableAnswering:
    """The answers of one fitted model.

    Args:
        model: Fitted.
    """

    def __init__(self, model: TableModel) -> None:
        self.model, self.table = model, model.table_
        model.model_.eval()  # once, where the library does it for every question
        self._references: OrderedDict[tuple[bool, ...], Tensor] = OrderedDict()

    def conditionals(self, questions: Sequence[Conditionals]) -> list[Any]:
        """The distributions of columns: one pass for the columns of all questions."""
        read = self._read([question.given for question in questions])
        asks = [
            found if isinstance(found, AnyOrderError) else _or_error(self._ask, question, found)
            for question, found in zip(questions, read, strict=True)
        ]
        good = [ask for ask in asks if isinstance(ask, Ask) and ask.columns]
        found = distributions(self.model.model_, good) if good else []
        told = iter(summaries(self.table, good, found))
        return [
            ask
            if isinstance(ask, Exception) or isinstance(source, AnyOrderError)
            else {
                "columns": next(told) if ask.columns else {},
                "effective_sample_size": _size(source.soft),
                "warnings": source.doubts,
            }
            for ask, source in zip(asks, read, strict=True)
        ]

    def surprise(self, records: Sequence[Given]) -> list[Any]:
        """How unusual records are: one pass for all of them."""
        read = self._read(records)
        good = [one for one in read if isinstance(one, _Read)]
        if not good:
            return list(read)
        sets = [one.evidence.given for one in good]
        new = self._unranked(good)
        x = torch.cat([one.evidence.x for one in good] + [self._drawn] * len(new))
        query = torch.stack(sets + [known for known in new for _ in range(REFERENCE_ROWS)])
        found = row_log_prob(self.model.model_, x, query=query, given=torch.zeros_like(query))
        for known, part in zip(new, found[len(good) :].split(REFERENCE_ROWS), strict=False):
            self._keep(known, part)
        own = iter(zip(good, found[: len(good)].tolist(), strict=True))
        return [one if isinstance(one, AnyOrderError) else self._ranked(*next(own)) for one in read]

    def log_prob(self, questions: Sequence[Likelihood]) -> list[Any]:
        """The log-likelihoods of rows: one pass for the rows of all questions."""
        read = [_or_error(self._rows_and_sets, question) for question in questions]
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

    def sample(self, questions: Sequence[Draws]) -> list[Any]:
        """Rows; each question has a seed of its own, and so a walk of its own."""
        return [_or_error(self._sampled, question) for question in questions]

    def impute(self, questions: Sequence[Gaps]) -> list[Any]:
        """Completed rows, as lists of rows by draw."""
        return [_or_error(self._imputed, question) for question in questions]

    def gains(self, questions: Sequence[tuple[str, Given]]) -> list[Any]:
        """What each column is expected to tell about a target."""
        return [_or_error(self._gains, *question) for question in questions]

    def outliers(self, questions: Sequence[Sequence[Given]]) -> list[Any]:
        """How surprising rows and their cells are."""
        return [_or_error(self._outliers, rows) for rows in questions]

    @cached_property
    def _drawn(self) -> Tensor:
        """Records to rank others against; none where they would need a context."""
        table, model = self.table, self.model.model_
        if table.context:
            return torch.zeros(0, len(table.schema))
        nothing = torch.zeros(1, len(table.schema))
        known = torch.zeros(len(table.names), dtype=torch.bool)
        return draw_rows(model, nothing, known, n=REFERENCE_ROWS, generator=seeded(0))

    def _read(self, records: Sequence[Given]) -> list[_Read | AnyOrderError]:
        found: list[_Read | AnyOrderError] = []
        for read in read_many(self.table, records):
            if isinstance(read, AnyOrderError):
                found.append(read)
                continue
            evidence, doubts = read
            soft = _or_error(self._soft, evidence)
            found.append(soft if isinstance(soft, AnyOrderError) else _Read(evidence, soft, doubts))
        return found

    def _soft(self, evidence: Evidence) -> SoftEvidence:
        if not evidence.regions:
            alone = torch.zeros(1, dtype=torch.float64)
            return SoftEvidence(evidence.x, evidence.given, alone, is_drawn=False)
        return soft_evidence(
            self.model.model_,
            evidence.x,
            given=evidence.given,
            regions=evidence.regions,
            n=SOFT_DRAWS,
            generator=seeded(0),
        )

    def _ask(self, question: Conditionals, read: _Read) -> Ask:
        known, names = read.soft.known.cpu(), question.columns
        asked = ~known if names is None else _asked(self.table, names, known)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for place in asked.nonzero().flatten().tolist():
                alone = torch.arange(len(known)) == place
                doubt_question(self.model.queries_, self.model.model_.protocol, alone, known)
        read.doubts.extend(dict.fromkeys(str(warning.message) for warning in caught))
        columns = asked.nonzero().flatten().tolist()
        return Ask(read.soft.x, known, read.soft.weights, columns)

    def _unranked(self, good: Sequence[_Read]) -> list[Tensor]:
        """The sets of columns that have no reference yet."""
        wanted = {
            tuple(one.evidence.given.tolist()): one for one in good if not one.evidence.regions
        }
        return [
            one.evidence.given
            for key, one in wanted.items()
            if key not in self._references and any(key) and len(self._drawn)
        ]

    def _keep(self, known: Tensor, log_prob: Tensor) -> None:
        self._references[tuple(known.tolist())] = log_prob
        while len(self._references) > KEPT_SETS:
            self._references.popitem(last=False)

    def _ranked(self, read: _Read, log_prob: float) -> dict[str, Any]:
        regions = read.soft.log_probability if read.soft.is_drawn else 0.0
        reference = self._references.get(tuple(read.evidence.given.tolist()))
        if reference is None or read.soft.is_drawn:
            rank = None
        else:
            rank = short(float((reference > log_prob).double().mean()))
        return {"nats": short(-log_prob - regions), "rank": rank, "warnings": read.doubts}

    def _rows_and_sets(self, question: Likelihood) -> tuple[pd.DataFrame, Tensor, Tensor, Tensor]:
        frame = self._framed(question.rows)
        named_sets(self.table, question.query, question.given)
        x, missing = self.table.encode(frame, needs=question.query)
        query, given = column_sets(self.table, missing, query=question.query, given=question.given)
        kept = [name for name in frame.columns if name in self.table.layout]
        return frame[kept], x, query, given

    def _framed(self, rows: Sequence[Given], start: int = 0) -> pd.DataFrame:
        """Rows as a frame; what a row does not have is a gap."""
        names = dict.fromkeys(name for row in rows for name in row)
        # A frame without columns is a mistake elsewhere; here it is rows of which nothing is known.
        listed = list(names) or [self.table.names[0]]
        columns = {name: pd.Series([row.get(name) for row in rows]) for name in listed}
        return pd.DataFrame(columns).set_axis(range(start, start + len(rows)))

    def _sampled(self, question: Draws) -> dict[str, Any]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame = self.model.sample(
                question.n, given=dict(question.given), random_state=question.seed
            )
        size = frame.attrs.get("effective_sample_size")
        return {
            "rows": records(frame),
            "effective_sample_size": None if size is None else short(size),
            "warnings": [str(warning.message) for warning in caught],
        }

    def _imputed(self, question: Gaps) -> list[list[dict[str, Any]]]:
        frame = self._framed(question.rows, question.start)
        options: dict[str, Any] = {"how": question.how, "random_state": question.seed}
        if question.draws == 1:
            return [records(self.model.impute(frame, **options))]
        filled = self.model.impute(frame, draws=question.draws, **options)
        return [records(filled.loc[draw]) for draw in range(question.draws)]

    def _gains(self, target: str, given: Given) -> dict[str, Any]:
        asked = column_set(self.table, target, argument="target", allow_context=False)
        (read,) = self._read([given])
        if isinstance(read, AnyOrderError):
            raise read
        if read.evidence.regions:
            raise QueryError("`given` must hold values here, no intervals or lists.")
        place = int(asked.nonzero()[0])
        if read.evidence.given[place]:
            raise QueryError(f'"{target}" is both asked and given: drop it from `given`.')
        found = information_gains(self.model.model_, read.evidence, place)
        best = sorted(found.items(), key=lambda pair: -pair[1])
        # Information is never negative: below zero are errors of the model and of quadrature.
        named = {
            self.table.names[place]: short(max(gain, 0.0))
            for place, gain in best
            if not self.table.query[place].is_constant
        }
        return {"gains": named}

    def _outliers(self, rows: Sequence[Given]) -> dict[str, Any]:
        found = self.model.outliers(self._framed(rows))
        whole = found.columns[0]
        return {
            "rows": [plain(value) for value in found[whole].tolist()],
            "cells": records(found.drop(columns=whole)),
        }


def _asked(table: Any, names: Sequence[str], known: Tensor) -> Tensor:
    asked = column_set(table, list(names), argument="columns", allow_context=False)
    both = (asked & known).nonzero()
    if len(both):
        name = table.names[int(both[0])]
        raise QueryError(f'"{name}" is both asked and given: drop it from one of them.')
    return asked


def _or_error(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or the mistake of the asker that it raises."""
    try:
        return function(*arguments)
    except AnyOrderError as error:
        return error


def _size(soft: SoftEvidence) -> float | None:
    size = soft.effective_sample_size
    return short(size) if np.isfinite(size) else None
