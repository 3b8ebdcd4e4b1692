"""Columns of a table as variables of a model.

A column knows three things: its variable, how to turn its values into codes, and how to turn codes
back into values of the dtype that they had. The code of a category is the index of its level; the
code of a number is its normal score (`Gaussianizer`), rounded to float32, in which models compute.

Values that repeat (zeros, 40 hours, whole years) are *atoms*: they have a probability, not a
density. An atom has one code of its own, and that code means exactly the atom's value.

Which codes of a column of numbers stand for the values from one to another.

Decoding rounds: every code within half a step of 500 is 500, and what is beyond a dtype's range is
at its end. So the codes of an interval are more than those between the codes of its two ends. They
are found by asking `decode`, which never falls, and dividing the numbers of float32. What is drawn
between them decodes into the interval, the atoms inside it are those that are asked for, and
intervals that touch, such as 1 to 3 and 4 to 6, leave nothing out between them.
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
"""So many distinct values, each about twice or more, and all of them are atoms."""

REPEATS = 20
MANY_VALUES = 1000
"""Up to MANY_VALUES distinct values that stand REPEATS times on average are atoms too."""

SPIKE_COUNT, SPIKE_SHARE, SPIKE_RATIO = 5, 0.01, 5
"""Otherwise an atom stands this often, in this share of rows, and this much above the median."""

SPIKE_WEIGHT = 0.03
"""What a spike weighs among the other values when the normal scores are fitted. Its whole weight
would tear a hole into the density of the others; none would leave a far one, such as -999, far."""

TIMES = {"datetime": "date and time", "date": "date", "timedelta": "duration"}
CALENDAR = (TIMES["datetime"], TIMES["date"])
"""Kinds of columns whose values are dates."""

STEPS = {86400: "days", 3600: "hours", 60: "minutes", 1: "seconds"}


@dataclass(frozen=True)
class Column(ABC):
    """One column of a table.

    Args:
        name: Of the column, and of its variable.
        missing_share: The share of gaps in training.
        context: True where the column is always given and never asked.
    """

    name: str
    missing_share: float
    context: bool

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The pandas dtype that decoded values have."""

    @property
    @abstractmethod
    def variable(self) -> Variable:
        """The variable of the model."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it is, in a word for people."""

    @property
    @abstractmethod
    def details(self) -> list[str]:
        """What else there is to know, in a few words each."""

    @property
    @abstractmethod
    def is_constant(self) -> bool:
        """Whether it had one value only in training, so that knowing it tells nothing."""

    @property
    def summary(self) -> str:
        """One line for people."""
        return ", ".join([self.kind, *self.details])

    @abstractmethod
    def encode(self, series: pd.Series) -> tuple[FloatArray, BoolArray]:
        """The codes, exact in float32, and which are missing; these carry a legal filler."""

    @abstractmethod
    def decode(self, codes: NDArray[Any], missing: BoolArray | None = None) -> pd.Series:
        """The values of codes, in the dtype of the column; a gap where `missing`."""

    @abstractmethod
    def log_density_factor(self, series: pd.Series) -> FloatArray:
        """What to add to a log density of codes to have one in the units of the column.

        It is zero for categories, atoms and gaps: a probability has no unit. Times are in seconds.
        """

    def describe(self) -> dict[str, Any]:
        """Plain values for JSON; `column_from` in this package reads them back."""
        return {"column": type(self).__name__, **asdict(self)}

    def _common_details(self) -> list[str]:
        gaps = [f"{self.missing_share:.0%} missing"] if self.missing_share >= 0.005 else []
        if 0 < self.missing_share < 0.005:
            gaps = ["under 1% missing"]
        return [*gaps, *(["always given"] if self.context else [])]


@dataclass(frozen=True)
class NumberColumn(Column):
    """A column of numbers, dates, times or durations.

    Args:
        name: Of the column.
        missing_share: The share of gaps in training.
        context: True where the column is always given.
        measurement: How its values are float64 numbers.
        gaussianizer: How these are codes.
        seen: The least and the greatest of the numbers in training.
        atom_values: The numbers that repeat, ascending.
        atom_codes: Their codes, ascending.
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
        """The column of a series of numbers or times, at least one of which is there.

        Args:
            series: Its name is that of the column.
            missing_share: The share of gaps.
            context: True where the column is always given.
            form: How dates are written as text, where it is not ISO 8601.
        """
        name = str(series.name)
        measurement = replace(Measurement.of(series, name), form=form)
        numbers = measurement.numbers(series, name, SchemaError)
        numbers = numbers[~np.isnan(numbers)]
        atoms = repeated_values(numbers)
        gaussianizer = Gaussianizer.fit(_sample(numbers, atoms))
        codes = _apart(gaussianizer.forward(atoms))
        seen = float(numbers.min()), float(numbers.max())
        found = tuple(atoms.tolist()), tuple(codes.tolist())
        return cls(name, missing_share, context, measurement, gaussianizer, seen, *found)

    def widened(self, codes: FloatArray) -> "NumberColumn":
        """The same, with more that was seen in training."""
        numbers = np.concatenate([self.numbers(codes), self.seen])
        return replace(self, seen=(float(numbers.min()), float(numbers.max())))

    @property
    def dtype(self) -> str:
        """The pandas dtype that decoded values have."""
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
        """What it is, in a word for people."""
        return TIMES.get(self.measurement.measure, "number")

    @property
    def details(self) -> list[str]:
        """What else there is to know, in a few words each."""
        count = len(self.atom_values)
        repeats = [f"{count} repeated value{'s' if count > 1 else ''}"] if count else []
        return [*self._steps(), *repeats, *self._common_details()]

    @property
    def is_constant(self) -> bool:
        """Whether it had one value only in training."""
        return self.seen[0] == self.seen[1]

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers."""
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
        """The normal scores in float32, an atom's own code for an atom, 0.0 for a gap."""
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
        """The values of codes, rounded to the resolution; always finite."""
        return self.restore(self.numbers(codes), missing)

    def numbers(self, codes: NDArray[Any]) -> FloatArray:
        """The numbers of codes, before they are rounded and become values of the dtype."""
        exact = _single(np.asarray(codes, dtype=np.float64))
        numbers = self.gaussianizer.inverse(exact)
        if not self.atom_codes:
            return numbers
        place, atom = _find(exact, self.atom_codes)
        return np.where(atom, np.array(self.atom_values)[place], numbers)

    def unrounded(self, numbers: FloatArray) -> pd.Series:
        """Numbers as float64 values of the column, not rounded; times as times."""
        if self.kind != "number":
            return self.restore(numbers)
        return pd.Series(numbers + self.measurement.origin, name=self.name)

    def restore(self, numbers: FloatArray, missing: BoolArray | None = None) -> pd.Series:
        """Numbers as values of the column, rounded to its resolution."""
        gone = np.zeros(len(numbers), dtype=bool) if missing is None else np.asarray(missing)
        return self.measurement.restore(numbers, gone, self.name)

    def rounded(self, numbers: FloatArray) -> FloatArray:
        """Numbers as those of the values that they become, in the resolution and the dtype."""
        return self.measurement.numbers(self.restore(numbers), self.name)

    def kept(self, series: pd.Series) -> pd.Series:
        """Values without gaps in the dtype of the column, or as floats where it would change them.

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
        """The log of the slope of the normal score; 0 at atoms and gaps."""
        numbers = self.measurement.numbers(series, self.name)
        missing = np.isnan(numbers)
        filled = np.where(missing, self.gaussianizer.median, numbers)
        _, atom = _find(filled, self.atom_values)
        return np.where(missing | atom, 0.0, self.gaussianizer.log_derivative(filled))

    def _beside_atoms(self, codes: FloatArray, values: FloatArray, atom: BoolArray) -> FloatArray:
        """Moves a value that is no atom, but has an atom's code in float32, to the next float."""
        place, taken = _find(codes, self.atom_codes)
        above = np.where(values > np.array(self.atom_values)[place], np.inf, -np.inf)
        while (taken & ~atom).any():
            beside = np.nextafter(codes.astype(np.float32), above.astype(np.float32))
            codes = np.where(taken & ~atom, beside.astype(np.float64), codes)
            _, taken = _find(codes, self.atom_codes)
        return codes


def repeated_values(numbers: FloatArray) -> FloatArray:
    """The values that have a probability of their own, ascending.

    All of them where there are few or each stands often; otherwise those that stand out.
    """
    values, counts = np.unique(numbers, return_counts=True)
    total, distinct = len(numbers), len(values)
    few = distinct == 1 or (distinct <= FEW_VALUES and total >= 2 * distinct)
    if few or (distinct <= MANY_VALUES and total >= REPEATS * distinct):
        return values
    often = counts >= max(SPIKE_COUNT, SPIKE_SHARE * total)
    return values[often & (counts >= SPIKE_RATIO * np.median(counts))]


def _sample(numbers: FloatArray, atoms: FloatArray) -> FloatArray:
    """What the normal scores are fitted to: the spikes among other values weigh a little."""
    others = numbers[~np.isin(numbers, atoms)]
    if not len(others):
        return numbers
    return np.concatenate([others, np.repeat(atoms, max(1, int(SPIKE_WEIGHT * len(others))))])


def _single(values: FloatArray) -> FloatArray:
    return values.astype(np.float32).astype(np.float64)


def _apart(codes: FloatArray) -> FloatArray:
    """Ascending codes in float32, each above the one before it."""
    single = codes.astype(np.float32)
    for place in range(1, len(single)):
        above = np.nextafter(single[place - 1], np.float32(np.inf))
        single[place] = max(single[place], above)
    return single.astype(np.float64)


def _find(values: FloatArray, among: tuple[float, ...]) -> tuple[NDArray[np.intp], BoolArray]:
    """The place of each value in a sorted list, and whether it is there at all."""
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
"""The place of a code beyond all others (see `Gaussianizer`) among the numbers of float32."""

AT_ONCE = 1024
"""Codes that are decoded together: hardly slower than one, and four times are enough for an end."""


def codes_up_to(column: NumberColumn, numbers: FloatArray) -> FloatArray:
    """The greatest code that decodes to each number or to less."""
    return _codes(_places(column, numbers, np.zeros(len(numbers), dtype=bool)))


def code_range(
    column: NumberColumn, low: float | None, high: float | None
) -> tuple[float, float] | None:
    """The least and the greatest code that decode to a number from `low` to `high`.

    None stands for no bound there, and as an answer for no value of the column in between.
    """
    ends = np.array([np.nan if end is None else end for end in (low, high)])
    before, last = _places(column, ends, np.array([True, False]))
    first, last = _codes(np.array([before + 1, last])).tolist()
    if low is not None and high is not None and first > last:
        return _between_codes(column, ends)
    return -np.inf if low is None else first, np.inf if high is None else last


def _between_codes(column: NumberColumn, ends: FloatArray) -> tuple[float, float] | None:
    """The codes of the ends, if they have some: steps of great numbers are finer than float32."""
    rounded = column.rounded(ends)
    inside = (rounded >= ends[0]) & (rounded <= ends[1])
    codes = column.encode(column.restore(ends))[0][inside]
    return (float(codes.min()), float(codes.max())) if len(codes) else None


def _places(column: NumberColumn, numbers: FloatArray, is_open: BoolArray) -> NDArray[np.int64]:
    """The place of the last code that decodes to less than each number, or to it if not open."""
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
    """The numbers of float32 by their places: 0 is at 0, the next ones at 1 and -1."""
    sizes = np.abs(places).astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(places < 0, -sizes, sizes)
