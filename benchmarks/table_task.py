"""Task of a comparison: rows, evidence, removed cells and measure are the same for all models.

The measure of a column is fixed before any model is fitted. Numbers that are multiples of a power
of ten are cells of that width, other numbers have densities, and the rest are categories. A column
with recurring values has no density, so it is measured by cells too, though not all its values are
multiples of their width.
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
"""Share of random cells that are removed for imputation."""

EVIDENCE = 0.5
"""Probability that a cell is given in conditional queries."""

RECURRING, SEVERAL = 0.01, 3
"""Share and number of rows above which a value is recurring: a probability, not a density."""

MOSTLY = 0.95
"""Share of values that must be multiples of a power of ten for it to be the cell width."""

NARROW = 1e-3
"""Width of cells, in interquartile ranges, of values that are multiples of no power of ten."""


@dataclass(frozen=True)
class TableTask:
    """A task, as arrays for rivals and as frames for our model.

    Args:
        task: Arrays; categories are coded by their levels.
        levels: Levels of each category, by column.
        train: Training rows.
        test: Test rows.
        dropped: Number of test rows that are dropped because a level is in no training row.
    """

    task: Task
    levels: dict[str, list[object]]
    train: pd.DataFrame
    test: pd.DataFrame
    dropped: int

    @property
    def steps(self) -> list[float | None]:
        """Rounding step of each column."""
        return [column.step for column in self.task.columns]

    @property
    def have(self) -> NDArray[np.bool_]:
        """Mask of the cells of the test rows that are not missing."""
        return ~np.isnan(self.task.test)

    @property
    def holes(self) -> NDArray[np.bool_]:
        """Mask of the removed cells."""
        return self.have & np.isnan(self.task.gaps)

    @property
    def gappy(self) -> pd.DataFrame:
        """Test rows without the removed cells, as a frame."""
        return self.test.mask(pd.DataFrame(self.holes, self.test.index, self.test.columns))

    def codes(self, frame: pd.DataFrame) -> Array:
        """Returns rows as an array of codes."""
        return _codes(frame, self.levels)


def table_task(
    table: TableSet, *, rows: int, train_rows: int, draws: int, seed: int = 0
) -> TableTask:
    """Returns the task of a data set.

    Args:
        table: Data set.
        rows: Largest number of test rows, the first ones.
        train_rows: Largest number of training rows, a random sample.
        draws: Number of samples of each removed cell.
        seed: Seed of the rows, the evidence and the removed cells.
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
    """Returns the width of the cells of a column of numbers; None if it has densities.

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
    others = values[values != values.mode().iloc[0]]  # tells nothing about the width
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
