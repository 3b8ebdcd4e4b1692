"""Columns: the columns of a table as variables of a model.

A column has a variable, encodes its values as codes, and decodes codes to values of its dtype. The
code of a category is the index of its level; the code of a number is its normal score
(`Gaussianizer`), rounded to float32, in which models compute.

Values that repeat (zeros, 40 hours, whole years) are *atoms*: they have a probability, not a
density. An atom has one code of its own, and that code means exactly the atom's value.

`code_range` returns the codes that decode into an interval of values. Decoding rounds: every code
within half a step of 500 is 500, and what is beyond a dtype's range is at its end. So the codes of
an interval are more than those between the codes of its ends. They are found by bisection over the
float32 numbers, because `decode` is monotone. A sample between them decodes into the interval, the
atoms between them are those of the interval, and adjacent intervals, such as 1 to 3 and 4 to 6,
leave nothing out.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anyorder.errors import SchemaError
from anyorder.tables.numbers import Gaussianizer, Measurement
from anyorder.tables.parsing import BoolArray, FloatArray
from anyorder.variables import Variable

FEW_VALUES = 32
"""Up to this many distinct values, each about twice or more on average, all are atoms."""

REPEATS = 20
MANY_VALUES = 1000
"""Up to MANY_VALUES distinct values with REPEATS occurrences on average are all atoms too."""

SPIKE_COUNT, SPIKE_SHARE, SPIKE_RATIO = 5, 0.01, 5
"""Otherwise an atom has at least this count, this fraction of rows, and this multiple of the median
count."""

SPIKE_WEIGHT = 0.03
"""Weight of an atom among the other values when the normal scores are fitted. Its full weight would
leave a gap in the density of the others; no weight would leave an outlier, such as -999, far."""

TIMES = {"datetime": "date and time", "date": "date", "timedelta": "duration"}
CALENDAR = (TIMES["datetime"], TIMES["date"])
"""Kinds of columns whose values are dates."""

STEPS = {86400: "days", 3600: "hours", 60: "minutes", 1: "seconds"}


@dataclass(frozen=True)
class Column(ABC):
    """One column of a table.

    Args:
        name: Name of the column and of its variable.
        missing_share: Fraction of missing values in training.
        context: True if the column is always given and never queried.
    """

    name: str
    missing_share: float
    context: bool

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The pandas dtype of decoded values."""

    @property
    @abstractmethod
    def variable(self) -> Variable:
        """The variable of the model."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The type of the column, in a word for people."""

    @property
    @abstractmethod
    def details(self) -> list[str]:
        """Further properties, in a few words each."""

    @property
    @abstractmethod
    def is_constant(self) -> bool:
        """True if it had one value only in training, so that it carries no information."""

    @property
    def summary(self) -> str:
        """One line for people."""
        return ", ".join([self.kind, *self.details])

    @abstractmethod
    def encode(self, series: pd.Series) -> tuple[FloatArray, BoolArray]:
        """Returns codes, exact in float32, and `missing`; a missing value has a legal filler."""

    @abstractmethod
    def decode(self, codes: NDArray[Any], missing: BoolArray | None = None) -> pd.Series:
        """Returns the values of codes, in the dtype of the column; none where `missing`."""

    @abstractmethod
    def log_density_factor(self, series: pd.Series) -> FloatArray:
        """Returns the log Jacobian: added to a log density of codes, it gives one in the units.

        It is zero for categories, atoms and missing values: a probability has no unit. Times are in
        seconds.
        """

    def describe(self) -> dict[str, Any]:
        """Returns plain values for JSON; `column_from` reads them back."""
        return {"column": type(self).__name__, **asdict(self)}

    def _common_details(self) -> list[str]:
        missing = [f"{self.missing_share:.0%} missing"] if self.missing_share >= 0.005 else []
        if 0 < self.missing_share < 0.005:
            missing = ["under 1% missing"]
        return [*missing, *(["always given"] if self.context else [])]


@dataclass(frozen=True)
class NumberColumn(Column):
    """A column of numbers, dates, times or durations.

    Args:
        name: Name of the column.
        missing_share: Fraction of missing values in training.
        context: True if the column is always given.
        measurement: Conversion of its values to float64 numbers.
        gaussianizer: Conversion of these numbers to codes.
        seen: Least and greatest number in training.
        atom_values: Numbers that are atoms, ascending.
        atom_codes: Codes of the atoms, ascending.
    """

    measurement: Measurement
    gaussianizer: Gaussianizer
    seen: tuple[float, float]
    atom_values: tuple[float, ...] = ()
    atom_codes: tuple[float, ...] = ()

    @classmethod
    def fit(
        cls,
        series: pd.Series,
        *,
        missing_share: float = 0.0,
        context: bool = False,
        form: str = "",
    ) -> "NumberColumn":
        """Fits a column to a series of numbers or times with at least one value.

        Args:
            series: Values; its name is that of the column.
            missing_share: Fraction of missing values.
            context: True if the column is always given.
            form: Form of dates that are text, if it is not ISO 8601.
        """
        name = str(series.name)
        measurement = replace(Measurement.of(series, name), form=form)
        numbers = measurement.numbers(series, name, SchemaError)
        numbers = numbers[~np.isnan(numbers)]
        atoms = repeated_values(numbers)
        gaussianizer = Gaussianizer.fit(_sample(numbers, atoms))
        codes = _distinct_codes(gaussianizer.forward(atoms))
        seen = float(numbers.min()), float(numbers.max())
        found = tuple(atoms.tolist()), tuple(codes.tolist())
        return cls(name, missing_share, context, measurement, gaussianizer, seen, *found)

    def widened(self, codes: FloatArray) -> "NumberColumn":
        """Returns the column with the range of values in training extended to those of codes."""
        numbers = np.concatenate([self.numbers(codes), self.seen])
        return replace(self, seen=(float(numbers.min()), float(numbers.max())))

    @property
    def dtype(self) -> str:
        """The pandas dtype of decoded values."""
        return self.measurement.dtype

    @property
    def resolution(self) -> float | None:
        """The step to which decoded values are rounded (times: seconds), or None."""
        return self.measurement.resolution

    @property
    def variable(self) -> Variable:
        """A continuous variable; its atoms are codes."""
        return Variable.continuous(self.name, atoms=self.atom_codes, context=self.context)

    @property
    def kind(self) -> str:
        """The type of the column, in a word for people."""
        return TIMES.get(self.measurement.measure, "number")

    @property
    def details(self) -> list[str]:
        """Further properties, in a few words each."""
        count = len(self.atom_values)
        repeats = [f"{count} repeated value{'s' if count > 1 else ''}"] if count else []
        return [*self._steps(), *repeats, *self._common_details()]

    @property
    def is_constant(self) -> bool:
        """True if it had one value only in training."""
        return self.seen[0] == self.seen[1]

    @property
    def is_whole(self) -> bool:
        """True if all values are whole numbers."""
        return self.kind == "number" and self.resolution == 1

    def _steps(self) -> list[str]:
        step = self.resolution
        if step is None:
            return []
        if self.kind != "number":
            steps = [f"in {STEPS[int(step)]}"] if step >= 1 and self.kind != "date" else []
            return [*steps, *filter(None, [self.measurement.form])]
        return ["whole"] if self.is_whole else [f"in steps of {step:g}"]

    def encode(self, series: pd.Series) -> tuple[FloatArray, BoolArray]:
        """Returns normal scores in float32, an atom's own code for an atom, 0.0 where missing."""
        numbers = self.measurement.numbers(series, self.name)
        missing = np.isnan(numbers)
        filled = np.where(missing, self.gaussianizer.median, numbers)
        codes = _single(self.gaussianizer.forward(filled))
        place, atom = _find(filled, self.atom_values)
        if self.atom_codes:
            codes = np.where(atom, np.array(self.atom_codes)[place], codes)
            codes = self._beside_atoms(codes, filled, atom)
        return np.where(missing, 0.0, codes), missing

    def decode(self, codes: NDArray[Any], missing: BoolArray | None = None) -> pd.Series:
        """Returns the values of codes, rounded to the resolution; always finite."""
        return self.restore(self.numbers(codes), missing)

    def numbers(self, codes: NDArray[Any]) -> FloatArray:
        """Returns the numbers of codes, before they are rounded to values of the dtype."""
        exact = _single(np.asarray(codes, dtype=np.float64))
        numbers = self.gaussianizer.inverse(exact)
        if not self.atom_codes:
            return numbers
        place, atom = _find(exact, self.atom_codes)
        return np.where(atom, np.array(self.atom_values)[place], numbers)

    def unrounded(self, numbers: FloatArray) -> pd.Series:
        """Returns numbers as float64 values of the column, not rounded; times as times."""
        if self.kind != "number":
            return self.restore(numbers)
        return pd.Series(numbers + self.measurement.origin, name=self.name)

    def restore(self, numbers: FloatArray, missing: BoolArray | None = None) -> pd.Series:
        """Returns numbers as values of the column, rounded to its resolution."""
        gone = np.zeros(len(numbers), dtype=bool) if missing is None else np.asarray(missing)
        return self.measurement.restore(numbers, gone, self.name)

    def rounded(self, numbers: FloatArray) -> FloatArray:
        """Rounds numbers to the resolution and the dtype of the column."""
        return self.measurement.numbers(self.restore(numbers), self.name)

    def kept(self, series: pd.Series) -> pd.Series:
        """Converts values, none missing, to the dtype, or to floats if that would change them.

        A column that was whole in training may have to hold 2.6, and one of days an hour.
        """
        numbers = self.measurement.numbers(series, self.name)
        same = self.rounded(numbers) == numbers
        if same.all():
            return self.restore(numbers)
        if self.kind == "number":
            return self.unrounded(numbers)
        nowhere = np.zeros(len(numbers), dtype=bool)
        return replace(self.measurement, resolution=None).restore(numbers, nowhere, self.name)

    @property
    def span(self) -> tuple[Any, Any]:
        """The least and the greatest value in training."""
        ends = self.restore(np.array(self.seen))
        return ends.iloc[0], ends.iloc[1]

    def log_density_factor(self, series: pd.Series) -> FloatArray:
        """Returns the log derivative of the normal score; 0 at atoms and missing values."""
        numbers = self.measurement.numbers(series, self.name)
        missing = np.isnan(numbers)
        filled = np.where(missing, self.gaussianizer.median, numbers)
        _, atom = _find(filled, self.atom_values)
        return np.where(missing | atom, 0.0, self.gaussianizer.log_derivative(filled))

    def _beside_atoms(self, codes: FloatArray, values: FloatArray, atom: BoolArray) -> FloatArray:
        """Moves a value that is not an atom but has an atom's code to the next float32."""
        place, taken = _find(codes, self.atom_codes)
        above = np.where(values > np.array(self.atom_values)[place], np.inf, -np.inf)
        while (taken & ~atom).any():
            beside = np.nextafter(codes.astype(np.float32), above.astype(np.float32))
            codes = np.where(taken & ~atom, beside.astype(np.float64), codes)
            _, taken = _find(codes, self.atom_codes)
        return codes


def repeated_values(numbers: FloatArray) -> FloatArray:
    """Returns the atoms of a column, ascending.

    All values are atoms if they are few or each is frequent; otherwise the most frequent are.
    """
    values, counts = np.unique(numbers, return_counts=True)
    total, distinct = len(numbers), len(values)
    few = distinct == 1 or (distinct <= FEW_VALUES and total >= 2 * distinct)
    if few or (distinct <= MANY_VALUES and total >= REPEATS * distinct):
        return values
    often = counts >= max(SPIKE_COUNT, SPIKE_SHARE * total)
    return values[often & (counts >= SPIKE_RATIO * np.median(counts))]


def _sample(numbers: FloatArray, atoms: FloatArray) -> FloatArray:
    """Returns the sample that normal scores are fitted to: atoms have `SPIKE_WEIGHT`."""
    others = numbers[~np.isin(numbers, atoms)]
    if not len(others):
        return numbers
    return np.concatenate([others, np.repeat(atoms, max(1, int(SPIKE_WEIGHT * len(others))))])


def _single(values: FloatArray) -> FloatArray:
    return values.astype(np.float32).astype(np.float64)


def _distinct_codes(codes: FloatArray) -> FloatArray:
    """Rounds ascending codes to float32, each strictly above the one before it."""
    single = codes.astype(np.float32)
    for place in range(1, len(single)):
        above = np.nextafter(single[place - 1], np.float32(np.inf))
        single[place] = max(single[place], above)
    return single.astype(np.float64)


def _find(values: FloatArray, among: tuple[float, ...]) -> tuple[NDArray[np.intp], BoolArray]:
    """Returns the index of each value in a sorted list, and True where it is in the list."""
    if not among:
        return np.zeros(len(values), dtype=np.intp), np.zeros(len(values), dtype=bool)
    listed = np.array(among)
    place = np.searchsorted(listed, values).clip(0, len(listed) - 1)
    return place, listed[place] == values


def number_column_from(description: dict[str, Any]) -> NumberColumn:
    """Reads what `NumberColumn.describe` wrote."""
    entries = {key: value for key, value in description.items() if key != "column"}
    spline = entries["gaussianizer"]
    spline = {key: tuple(v) if isinstance(v, list) else v for key, v in spline.items()}
    entries["gaussianizer"] = Gaussianizer(**spline)
    entries["measurement"] = Measurement(**entries["measurement"])
    entries["seen"] = tuple(entries["seen"])
    entries["atom_values"] = tuple(entries["atom_values"])
    entries["atom_codes"] = tuple(entries["atom_codes"])
    return NumberColumn(**entries)


OUTERMOST = int(np.float32(1e5).view(np.int32))
"""Index of a code beyond all others (see `Gaussianizer`) among the float32 numbers."""

AT_ONCE = 1024
"""Codes that are decoded together: hardly slower than one, and four rounds find an end."""


def codes_up_to(column: NumberColumn, numbers: FloatArray) -> FloatArray:
    """Returns the greatest code that decodes to each number or to less."""
    return _codes(_places(column, numbers, np.zeros(len(numbers), dtype=bool)))


def code_range(
    column: NumberColumn, low: float | None, high: float | None
) -> tuple[float, float] | None:
    """Returns the least and the greatest code that decode to a number from `low` to `high`.

    None is no bound; the result is None if the column has no value in between.
    """
    ends = np.array([np.nan if end is None else end for end in (low, high)])
    before, last = _places(column, ends, np.array([True, False]))
    first, last = _codes(np.array([before + 1, last])).tolist()
    if low is not None and high is not None and first > last:
        return _between_codes(column, ends)
    return -np.inf if low is None else first, np.inf if high is None else last


def _between_codes(column: NumberColumn, ends: FloatArray) -> tuple[float, float] | None:
    """Returns the codes of the ends, if any: steps of large numbers are finer than float32."""
    rounded = column.rounded(ends)
    inside = (rounded >= ends[0]) & (rounded <= ends[1])
    codes = column.encode(column.restore(ends))[0][inside]
    return (float(codes.min()), float(codes.max())) if len(codes) else None


def _places(column: NumberColumn, numbers: FloatArray, is_open: BoolArray) -> NDArray[np.int64]:
    """Returns the index of the last code that decodes below each number, or to it if not open."""
    wanted = column.measurement.held(numbers)[:, None]
    low, high = np.full(len(numbers), -OUTERMOST), np.full(len(numbers), OUTERMOST)
    parts = max(2, AT_ONCE // max(1, len(numbers)))
    while (high - low > 1).any():
        edges = low[:, None] + (high - low)[:, None] * np.arange(parts + 1) // parts
        inner = edges[:, 1:-1]  # (numbers, parts - 1)
        decoded = column.rounded(column.numbers(_codes(inner.flatten()))).reshape(inner.shape)
        fits = np.where(is_open[:, None], decoded < wanted, decoded <= wanted)
        last = fits.sum(axis=1, keepdims=True)
        low, high = (np.take_along_axis(edges, last + i, axis=1)[:, 0] for i in (0, 1))
    return low


def _codes(places: NDArray[np.int64]) -> FloatArray:
    """Returns float32 numbers by index: 0 has index 0, the next ones 1 and -1."""
    sizes = np.abs(places).astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(places < 0, -sizes, sizes)
