"""Evaluation of table models: skill, counts, reliability, copies of training rows.

- `column_skill` predicts each column from the rest of its row, against one constant prediction. A
  likelihood compares two models; skill shows whether a model is of use at all: one that was trained
  too short can be calibrated without any dependence between columns.
- `count_conditionals` puts every p(column | one category) beside the fraction of rows that anyone
  can count, and `reliability` the predictions of one column beside how often they came true.
- `nearest_records` compares the distances of samples to training rows and to held-out rows: a model
  that memorised its rows samples copies.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from anyorder.inference.model import AnyOrderModel
from anyorder.tables.columns import CategoryColumn, NumberColumn
from anyorder.tables.engine import central_codes, level_probabilities, medians
from anyorder.tables.parsing import FloatArray
from anyorder.tables.schema import TableSchema
from anyorder.variables import Schema

GUESSED_ROWS = 1000
"""Rows whose cells are predicted: enough for a precision of a percent."""

SPANS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0}

Unit = Literal["distance", "seconds", "wrong"]
"""Units of errors: mean distance, mean distance in seconds, or fraction of wrong levels."""

HEADINGS = ("column", "cells", "from the rest of its row", "one guess for all rows", "better by")
"""Headings of a table of `Skill.words`."""

FEWEST_MATCHES, MOST_EVIDENCE = 30, 500
"""Rows that must match the evidence of a counted conditional, and most evidence sets, by count."""

DECILES = 10
"""Groups of rows, by predicted probability, of a reliability table."""

ROWS_AT_ONCE = 256
"""Samples whose distances to all records are in memory together."""

FARTHEST = 4.0
"""Greatest difference of normal scores, so that no single column dominates a distance."""

GROUPS = 20
"""Groups of records, whose variance gives the standard error."""

Encoded = tuple[Tensor, Tensor]
"""Values ``(rows, columns)`` and missing values ``(rows, vars)``."""


@dataclass(frozen=True)
class Skill:
    """Accuracy of the predictions of one column.

    Args:
        column: Name of the column.
        unit: Unit of the errors.
        cells: Number of predicted cells.
        error: Error of the median, or the most probable level, given the rest of the row.
        alone: Error of the best constant prediction of these cells.
        se: Standard error of `gain`.
    """

    column: str
    unit: Unit
    cells: int
    error: float
    alone: float
    se: float | None

    @property
    def gain(self) -> float | None:
        """The fraction of the error that the rest of a row removes; None if there is no error."""
        return 1 - self.error / self.alone if self.alone else None

    @property
    def words(self) -> tuple[str, str, str]:
        """The two errors and the gain, for people."""
        gain = "" if self.gain is None else f"{self.gain:.0%}"
        spread = "" if self.se is None else f" ± {self.se:.0%}"
        return self._formatted(self.error), self._formatted(self.alone), gain + spread

    def _formatted(self, error: float) -> str:
        if self.unit == "wrong":
            return f"{1 - error:.1%} right"
        if self.unit == "distance":
            return f"off by {float(f'{error:.3g}'):,.10g}"
        name, seconds = next((s for s in SPANS.items() if error >= s[1]), ("seconds", 1.0))
        return f"off by {error / seconds:.3g} {name}"

    def to_json(self) -> dict[str, float | int | str | None]:
        """Returns plain values."""
        numbers = {"error": self.error, "alone": self.alone, "gain": self.gain, "se": self.se}
        return {"unit": self.unit, "cells": self.cells, **numbers}


def column_skill(
    model: AnyOrderModel, table: TableSchema, x: Tensor, missing: Tensor
) -> list[Skill]:
    """Returns the skill in each column with a value in some row, in the order of the frame."""
    found = []
    for place, column in enumerate(table.query):
        rows = (~missing[:, place]).nonzero().squeeze(1)
        if not len(rows):
            continue
        known = ~missing[rows]
        known[:, place] = False
        guesses = central_codes(model, x[rows], known, place)
        truth = x[rows, place].double().numpy()
        unit: Unit = "wrong"
        if isinstance(column, NumberColumn):
            unit = "distance" if column.kind == "number" else "seconds"
            truth = column.numbers(truth)
            errors = np.abs(column.numbers(guesses) - truth)
            alone = np.abs(np.median(truth) - truth)
        else:
            levels, counts = np.unique(truth, return_counts=True)
            errors = (guesses != truth).astype(float)
            alone = (levels[counts.argmax()] != truth).astype(float)
        found.append(_skill(column.name, unit, errors, alone))
    return sorted(found, key=lambda one: table.layout.index(one.column))


def _skill(name: str, unit: Unit, errors: FloatArray, alone: FloatArray) -> Skill:
    """Returns the mean errors, and the standard error of their ratio by linearisation."""
    # In units of the greatest, so that squares and sums of large numbers do not overflow.
    most = max(float(errors.max()), float(alone.max())) or 1.0
    errors, alone = errors / most, alone / most
    error, base, cells = float(errors.mean()), float(alone.mean()), len(errors)
    se = None
    if base and cells > 1:
        residuals = errors - error / base * alone
        se = float(residuals.std(ddof=1) / np.sqrt(cells) / base)
    return Skill(name, unit, cells, most * error, most * base, se)


@dataclass(frozen=True)
class Counted:
    """A conditional p(event | given) of a model, beside the fraction of rows that it should equal.

    Args:
        given: Evidence, such as "species=Chinstrap"; empty for none.
        event: Event of the probability, such as "sex=female".
        rows: Number of rows that match the evidence and have the column.
        share: Fraction of these rows in which the event happens.
        probability: Answer of the model.
        tie: Probability that a number equals the predicted median, by the model; half of it is in
            `probability`, and half of such rows are in `share`.
    """

    given: str
    event: str
    rows: int
    share: float
    probability: float
    tie: float = 0.0

    @property
    def se(self) -> float:
        """Standard error of the share if the probability is right."""
        return _share_error(self.probability, self.rows, self.tie)

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        return (self.probability - self.share) / self.se


def _share_error(probability: float, rows: int, tie: float = 0.0) -> float:
    """Returns the standard error of a share of rows, where ties count half; at least half a row."""
    variance = max(0.0, probability * (1 - probability) - tie / 4)
    return max((variance / rows) ** 0.5, 0.5 / rows)


def count_conditionals(
    model: AnyOrderModel, table: TableSchema, x: Tensor, missing: Tensor
) -> list[Counted]:
    """Compares p(column | nothing) and p(column | one category) with the shares of rows.

    Of a category every level is an event, of a number to lie below the predicted median, where ties
    count half. Evidence that fewer than `FEWEST_MATCHES` rows match is left out, and so are tables
    with context columns, which are part of every query.
    """
    if table.context:
        return []
    columns = table.query
    evidence = _single_levels(table, x, missing)
    rows, given = (
        torch.zeros(len(evidence), x.shape[1]),
        torch.zeros(len(evidence), missing.shape[1]),
    )
    for number, (place, code, _) in enumerate(evidence):
        if place is not None:
            rows[number, place], given[number, place] = code, 1
    known, found = given.bool(), []
    for place, column in enumerate(columns):
        is_category = isinstance(column, CategoryColumn)
        answers = level_probabilities(model, rows, known, place) if is_category else None
        middles = None if is_category else medians(model, rows, known, place)
        for number, (own, code, matches) in enumerate(evidence):
            cells = x[matches & ~missing[:, place], place]
            if own == place or len(cells) < FEWEST_MATCHES:
                continue
            words = "" if own is None else f"{columns[own].name}={_level(columns[own], code)}"
            if answers is not None:
                found += _counted_levels(words, column, cells, answers[number])  # type: ignore[arg-type]
            elif middles is not None:
                middle, *chances = middles[number].tolist()
                below = (cells < middle).double() + 0.5 * (cells == middle).double()
                event = f"{column.name} below the predicted median"
                found.append(Counted(words, event, len(cells), float(below.mean()), *chances))
    return found


def _single_levels(
    table: TableSchema, x: Tensor, missing: Tensor
) -> list[tuple[int | None, int, Tensor]]:
    """Returns no evidence, then the most frequent single levels: column, code, matching rows."""
    found: list[tuple[int, int, Tensor]] = []
    for place, column in enumerate(table.query):
        if isinstance(column, CategoryColumn):
            there = ~missing[:, place]
            for code in range(len(column.levels)):
                matches = there & (x[:, place] == code)
                if int(matches.sum()) >= FEWEST_MATCHES:
                    found.append((place, code, matches))
    found.sort(key=lambda one: -int(one[2].sum()))
    return [(None, 0, torch.ones(len(x), dtype=torch.bool)), *found[:MOST_EVIDENCE]]


def _counted_levels(
    given: str, column: CategoryColumn, cells: Tensor, answers: Tensor
) -> list[Counted]:
    """Returns each level of a category; of two levels the second, which implies the first."""
    shares = torch.bincount(cells.long(), minlength=len(column.levels)).double() / len(cells)
    first = 1 if len(column.levels) == 2 else 0
    return [
        Counted(
            given,
            f"{column.name}={column.levels[code]}",
            len(cells),
            float(shares[code]),
            float(answers[code]),
        )
        for code in range(first, len(column.levels))
    ]


def _level(column: object, code: int) -> object:
    assert isinstance(column, CategoryColumn)
    return column.levels[code]


@dataclass(frozen=True)
class ReliabilityDecile:
    """Rows with similar predictions of one event, and how often it happened."""

    rows: int
    predicted: float
    share: float

    @property
    def se(self) -> float:
        """Standard error of the share if the predictions are right."""
        return _share_error(self.predicted, self.rows)


def reliability(predicted: Tensor, happened: Tensor) -> list[ReliabilityDecile]:
    """Compares predictions with outcomes, in tenths of the rows by predicted probability."""
    order = predicted.argsort()
    parts = [part for part in order.tensor_split(min(DECILES, len(order))) if len(part)]
    return [
        ReliabilityDecile(
            len(part), float(predicted[part].double().mean()), float(happened[part].double().mean())
        )
        for part in parts
    ]


@dataclass(frozen=True)
class PrivacyCheck:
    """Distances of samples to training rows and held-out rows.

    Attributes:
        closer_to_train: Fraction of samples whose nearest record is a training row, not a held-out
            one, among equally many of both; ties count half. About 0.5 for a model that has learned
            the distribution, not the rows. It has little power if few training rows are compared.
        se: Standard error of that fraction, from groups of records.
        copies: Fraction of samples that equal a training row in all columns.
        held_out_copies: Fraction of samples that equal a held-out row: the fraction by chance, if
            there are as many held-out rows as training rows.
    """

    closer_to_train: float
    se: float
    copies: float
    held_out_copies: float


def nearest_records(
    schema: Schema,
    samples: Encoded,
    train: Encoded,
    held_out: Encoded,
    *,
    generator: torch.Generator | None = None,
) -> PrivacyCheck:
    """Compares the distances of samples to equally many training and held-out rows.

    The distance of two rows is the sum over columns of the difference of normal scores, and of 1
    for categories that differ; a missing value is like another level of a category.
    """
    count = min(len(train[0]), len(held_out[0]))
    ours, others = (_some(part, count, generator) for part in (train, held_out))
    groups = [_closer(schema, samples, _group(ours, k), _group(others, k)) for k in range(GROUPS)]
    shares = torch.stack(groups)[: min(GROUPS, count)]
    whole = _closer(schema, samples, ours, others)
    return PrivacyCheck(
        closer_to_train=float(whole),
        se=float(shares.std() / len(shares) ** 0.5) if len(shares) > 1 else float("nan"),
        copies=float((_nearest(schema, samples, train) == 0).double().mean()),
        held_out_copies=float((_nearest(schema, samples, held_out) == 0).double().mean()),
    )


def _some(records: Encoded, count: int, generator: torch.Generator | None) -> Encoded:
    chosen = torch.randperm(len(records[0]), generator=generator)[:count]
    return records[0][chosen], records[1][chosen]


def _group(records: Encoded, number: int) -> Encoded:
    """Returns every `GROUPS`-th record: samples share nearest records, so the groups vary."""
    return records[0][number::GROUPS], records[1][number::GROUPS]


def _closer(schema: Schema, samples: Encoded, train: Encoded, held_out: Encoded) -> Tensor:
    """Returns the fraction of samples that are nearer to the first records than to the second."""
    if not len(train[0]):
        return torch.tensor(torch.nan, dtype=torch.float64)
    to_train, to_others = (_nearest(schema, samples, part) for part in (train, held_out))
    nearer = (to_train < to_others).double() + 0.5 * (to_train == to_others).double()
    return nearer.mean()


def _nearest(schema: Schema, samples: Encoded, records: Encoded) -> Tensor:
    """Returns the distance of each sample to its nearest record. Shape ``(samples,)``."""
    found = []
    for x, missing in zip(*(part.split(ROWS_AT_ONCE) for part in samples), strict=True):
        total = torch.zeros(len(x), len(records[0]))
        for place in range(schema.num_variables):
            apart = (x[:, place, None] - records[0][None, :, place]).abs()
            if schema.variables[place].kind == "categorical":
                apart = (apart > 0).float()
            gap, other_gap = missing[:, place, None], records[1][None, :, place]
            apart = apart.clamp(max=FARTHEST).masked_fill(gap & other_gap, 0.0)
            total += apart.masked_fill(gap ^ other_gap, 1.0)
        found.append(total.amin(dim=1))
    return torch.cat(found)
