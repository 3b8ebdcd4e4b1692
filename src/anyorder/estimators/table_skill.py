"""How well each column is guessed from the rest of its row, beside one guess for all rows.

Likelihoods say which of two models is better; this says whether one is of use at all. A model that
was trained too short can be calibrated, and still know nothing of how columns hang together.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from anyorder.data.columns import NumberColumn
from anyorder.data.gaussianizer import FloatArray
from anyorder.data.table import TableSchema
from anyorder.estimators.table_batches import parts
from anyorder.model import AnyOrderModel

GUESSED_ROWS = 1000
"""Rows of which each cell is guessed: enough for a percent."""

SPANS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0}

Unit = Literal["distance", "seconds", "wrong"]
"""What errors are: mean distances, of times in seconds; or shares of wrong guesses."""


@dataclass(frozen=True)
class Skill:
    """How well one column is guessed.

    Args:
        column: Its name.
        unit: What its errors are.
        cells: How many were guessed.
        error: Of the median, or the most probable level, given all else that a row has.
        alone: Of the guess that suits these cells best if it is to be the same for all.
        se: The standard error of `gain`.
    """

    column: str
    unit: Unit
    cells: int
    error: float
    alone: float
    se: float | None

    @property
    def gain(self) -> float | None:
        """The share of the error that the rest of a row saves; None where there is none to save."""
        return 1 - self.error / self.alone if self.alone else None

    @property
    def words(self) -> tuple[str, str, str]:
        """The two errors and the gain, for people."""
        gain = "" if self.gain is None else f"{self.gain:.0%}"
        spread = "" if self.se is None else f" ± {self.se:.0%}"
        return self._told(self.error), self._told(self.alone), gain + spread

    def _told(self, error: float) -> str:
        if self.unit == "wrong":
            return f"{1 - error:.1%} right"
        if self.unit == "distance":
            return f"off by {float(f'{error:.3g}'):,.10g}"
        name, seconds = next((s for s in SPANS.items() if error >= s[1]), ("seconds", 1.0))
        return f"off by {error / seconds:.3g} {name}"

    def to_json(self) -> dict[str, float | int | str | None]:
        """Plain values."""
        numbers = {"error": self.error, "alone": self.alone, "gain": self.gain, "se": self.se}
        return {"unit": self.unit, "cells": self.cells, **numbers}


HEADINGS = ("column", "cells", "from the rest of its row", "one guess for all rows", "better by")
"""Of a table of `Skill.words`."""


@torch.no_grad()
def column_skill(
    model: AnyOrderModel, table: TableSchema, x: Tensor, missing: Tensor
) -> list[Skill]:
    """The skill in each column of which some rows have a value."""
    found = []
    for place, column in enumerate(table.query):
        rows = (~missing[:, place]).nonzero().squeeze(1)
        if not len(rows):
            continue
        known = ~missing[rows]
        known[:, place] = False
        guesses, truth = _guesses(model, x[rows], known, place), x[rows, place].double().numpy()
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
    return found


def _guesses(model: AnyOrderModel, x: Tensor, known: Tensor, place: int) -> FloatArray:
    """Medians of a number, most probable levels of a category, as codes."""
    is_number = model.schema.variables[place].kind == "continuous"
    found = []
    for rows in parts(len(x), x.shape[1]):
        targets = torch.full((len(x[rows]), 1), place)
        conditional = model.predict(x[rows], known[rows], targets)
        half = torch.full(targets.shape, 0.5, dtype=torch.float64, device=x.device)
        codes = conditional.icdf(half) if is_number else conditional.mode()
        found.append(codes[:, 0].double().cpu().numpy())
    return np.concatenate(found)


def _skill(name: str, unit: Unit, errors: FloatArray, alone: FloatArray) -> Skill:
    """The means, and the error of their ratio by its linear part."""
    # In units of the greatest, so that squares and sums of great numbers do not overflow.
    most = max(float(errors.max()), float(alone.max())) or 1.0
    errors, alone = errors / most, alone / most
    error, base, cells = float(errors.mean()), float(alone.mean()), len(errors)
    se = None
    if base and cells > 1:
        apart = errors - error / base * alone
        se = float(apart.std(ddof=1) / np.sqrt(cells) / base)
    return Skill(name, unit, cells, most * error, most * base, se)
