"""What all models of a comparison are asked: the same rows, evidence and holes, and one measure.

The measure of a column is fixed here, before any model is fitted: numbers that are multiples of a
power of ten are cells of that width, other numbers have densities, and the rest are categories.
Where some value comes back again and again there is no density, so such a column is measured by
cells too, though not all its values are multiples of their width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from anyorder.tables.numbers import Measurement
from benchmarks.rivals.task import Array, Column, Task
from benchmarks.table_sets import TableSet

HOLES = 0.3
"""The share of cells that imputation has to fill, at random."""

EVIDENCE = 0.5
"""The probability with which a cell is known when conditionals are asked."""

RECURRING, SEVERAL = 0.01, 3
"""A value with more than this share of the rows, and so many, has a probability, not a density."""

MOSTLY = 0.95
"""The share of values that have to be multiples of a power of ten for it to be the width of all."""

NARROW = 1e-3
"""The width of cells, in interquartile ranges, where values are multiples of nothing."""


@dataclass(frozen=True)
class TableTask:
    """A task, as arrays for rivals and as frames for us.

    Args:
        task: The arrays; categories are the numbers of their levels.
        levels: The levels of each category, by column.
        train: The rows to fit.
        test: The rows to score.
        dropped: Test rows left out because a level of theirs is in no row to fit.
    """

    task: Task
    levels: dict[str, list[object]]
    train: pd.DataFrame
    test: pd.DataFrame
    dropped: int

    @property
    def steps(self) -> list[float | None]:
        """What each column is rounded to."""
        return [column.step for column in self.task.columns]

    @property
    def have(self) -> NDArray[np.bool_]:
        """Which cells of the test rows there are."""
        return ~np.isnan(self.task.test)

    @property
    def holes(self) -> NDArray[np.bool_]:
        """Which of them are to be filled."""
        return self.have & np.isnan(self.task.gaps)

    @property
    def gappy(self) -> pd.DataFrame:
        """The test rows with their holes, as a frame."""
        return self.test.mask(pd.DataFrame(self.holes, self.test.index, self.test.columns))

    def codes(self, frame: pd.DataFrame) -> Array:
        """Any rows as arrays."""
        return _codes(frame, self.levels)


def table_task(
    table: TableSet, *, rows: int, train_rows: int, draws: int, seed: int = 0
) -> TableTask:
    """The task of a set.

    Args:
        table: The set.
        rows: At most so many test rows, the first ones.
        train_rows: At most so many rows to fit, chosen at random.
        draws: How often each hole is drawn.
        seed: Of the choice of rows, evidence and holes.
    """
    train = table.train
    if len(train) > train_rows:
        train = train.sample(train_rows, random_state=seed)
    train = train.reset_index(drop=True)
    levels = {name: _levels(train[name]) for name in train if _is_category(train[name])}
    seen = np.ones(len(table.test), dtype=bool)
    for name, known in levels.items():
        seen &= (table.test[name].isin(known) | table.test[name].isna()).to_numpy()
    test = table.test[seen].iloc[:rows].reset_index(drop=True)
    columns = [_column(name, train[name], test[name], levels) for name in train]
    x, y = _codes(train, levels), _codes(test, levels)
    rng = np.random.default_rng(seed)
    have = ~np.isnan(y)
    given = have & (rng.random(y.shape) < EVIDENCE)
    gaps = np.where(rng.random(y.shape) < HOLES, np.nan, y)
    task = Task(columns, x, y, gaps, given, draws, seed)
    return TableTask(task, levels, train, test, int((~seen).sum()))


def _column(
    name: str, train: pd.Series, test: pd.Series, levels: dict[str, list[object]]
) -> Column:
    if name in levels:
        return Column(name, "category", levels=len(levels[name]))
    return Column(name, "number", cell_width(pd.concat([train, test]), name))


def cell_width(series: pd.Series, name: str) -> float | None:
    """How wide the cells of a column of numbers are; None if it has densities.

    Example:
        >>> cell_width(pd.Series([0.1, 0.2, 0.25]), "all are multiples of a hundredth")
        0.01
        >>> thirds = [1 / 3, 2 / 3]
        >>> cell_width(pd.Series([*thirds, *[9.4, 9.5, 9.6] * 20]), "most are multiples of a tenth")
        0.1
    """
    resolution = Measurement.of(series, name).resolution
    if resolution is not None:
        return resolution
    values = series.dropna()
    if values.value_counts().iloc[0] <= max(SEVERAL, RECURRING * len(values)):
        return None
    others = values[values != values.mode().iloc[0]]  # what comes back says nothing of a width
    spread = float(others.quantile(0.75) - others.quantile(0.25)) or float(others.std())
    if not 0 < spread < math.inf:
        return None
    narrow = math.floor(math.log10(NARROW * spread))
    for power in range(math.ceil(math.log10(spread)), narrow, -1):
        units = others / 10.0**power
        if np.isclose(units, units.round(), rtol=0, atol=1e-6).mean() >= MOSTLY:
            return 10.0**power
    return 10.0**narrow


def _is_category(series: pd.Series) -> bool:
    return types.is_bool_dtype(series.dtype) or not types.is_numeric_dtype(series.dtype)


def _levels(series: pd.Series) -> list[object]:
    found: Sequence[object] = series.dropna().unique().tolist()
    return sorted(found, key=str)


def _codes(frame: pd.DataFrame, levels: dict[str, list[object]]) -> Array:
    parts = []
    for name in frame:
        if name in levels:
            codes = pd.Categorical(frame[name], categories=levels[name]).codes
            parts.append(np.where(codes < 0, np.nan, codes))
        else:
            parts.append(frame[name].to_numpy(dtype=np.float64, na_value=np.nan))
    return np.stack(parts, axis=1)
