"""Columns: the columns of a table as variables of a model.

A column has a variable, encodes its values as codes, and decodes codes to values of its dtype. The
code of a category (text, booleans, pandas categories, or numbers that are mere labels) is the index
of its level; the code of a number is its normal score (`Gaussianizer`), rounded to float32, in
which models compute.

Values that repeat (zeros, 40 hours, whole years) are *atoms*: they have a probability, not a
density. An atom has one code of its own, and that code means exactly the atom's value.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from anyorder.errors import QueryError, SchemaError, nearest_or_all
from anyorder.tables.numbers import Gaussianizer, Measurement
from anyorder.tables.parsing import (
    BoolArray,
    FloatArray,
    as_dtype,
    distinct_values,
    dtype_of,
    row_of,
)
from anyorder.variables import Level, Variable

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
        share = "under 1%" if self.missing_share < 0.005 else f"{self.missing_share:.0%}"
        missing = [f"{share} missing"] if self.missing_share else []
        return [*missing, *(["always given"] if self.context else [])]


@dataclass(frozen=True)
class NumberColumn(Column):
    """A column of numbers, dates, times or durations.

    Args:
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
        """Fits a column to a series with a value or more; `form` is that of dates that are text."""
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


MISSING_LEVEL = "(missing)"
"""Level of a missing value in a context column: there it is evidence too."""

WORDS = {"true": True, "yes": True, "t": True, "y": True, "1": True} | {
    "false": False, "no": False, "f": False, "n": False, "0": False,
}  # fmt: skip
"""Words for booleans, in lower case."""

MANY_LEVELS = 1000
"""Above this number of levels, most of them seen once, the summary warns of an identifier."""


@dataclass(frozen=True)
class CategoryColumn(Column):
    """A column that takes one of a list of levels.

    A context column has one more level, for missing values.

    Args:
        levels: Levels in the order of their codes.
        dtype_name: The pandas dtype of decoded values.
        level_dtype: The dtype of the categories of pandas' "category".
        ordered: True for an ordered "category" of pandas.
        note: Note in the summary.

    Example:
        >>> CategoryColumn.fit(pd.Series(["nurse", "clerk"], name="job")).levels
        ('clerk', 'nurse')
    """

    levels: tuple[Level, ...]
    dtype_name: str
    level_dtype: str = ""
    ordered: bool = False
    note: str = ""

    @classmethod
    def fit(
        cls, series: pd.Series, *, missing_share: float = 0.0, context: bool = False
    ) -> "CategoryColumn":
        """Fits a column to a series: its pandas categories in their order, or its values sorted."""
        name, dtype = str(series.name), series.dtype
        given = dtype if isinstance(dtype, pd.CategoricalDtype) else None
        found = distinct_values(series, name)[1] if given is None else list(given.categories)
        plain_levels = [plain_level(value) for value in found]
        if given is None:
            plain_levels.sort(key=lambda level: (isinstance(level, str), level))  # numbers first
        levels = tuple(dict.fromkeys(plain_levels))
        own = str(dtype if given is None else given.categories.dtype)
        if not all(map(_is_plain, found)):  # they become text
            own = str(pd.Series([""]).dtype)
        dtype_name, level_dtype = (own, "") if given is None else ("category", own)
        ordered = given is not None and bool(given.ordered)
        is_distinct = len(levels) > max(MANY_LEVELS, len(series) / 2)
        note = "mostly distinct: if it names the row, ignore it" if is_distinct else ""
        return cls(name, missing_share, context, levels, dtype_name, level_dtype, ordered, note)

    @classmethod
    def boolean(
        cls, series: pd.Series, *, missing_share: float = 0.0, context: bool = False
    ) -> "CategoryColumn":
        """Returns a column with the levels False and True, even if only one occurs."""
        name = str(series.name)
        distinct = distinct_values(series, name)[1]
        for value in distinct:
            if not _is_boolean(value):
                raise SchemaError(
                    f'Column "{name}" must hold booleans (true/false, yes/no, 1/0); got {value!r}.'
                )
        keep = not any(isinstance(value, str) for value in distinct)
        dtype = str(series.dtype) if keep else "bool"
        return cls(name, missing_share, context, (False, True), dtype)

    @property
    def dtype(self) -> str:
        """The pandas dtype of decoded values."""
        return self.dtype_name

    @property
    def missing_level(self) -> str:
        """The level of a missing value in a context column, different from all others."""
        level = MISSING_LEVEL
        while level in self.levels:
            level = f"({level})"
        return level

    @property
    def variable(self) -> Variable:
        """A categorical variable; a context column has one more level, for missing values."""
        levels = (*self.levels, self.missing_level) if self.context else self.levels
        return Variable.categorical(self.name, levels, context=self.context)

    @property
    def is_constant(self) -> bool:
        """True if it had one value only in training."""
        return len(self.levels) == 1

    @property
    def kind(self) -> str:
        """The type of the column, in a word for people."""
        flags = all(isinstance(level, bool) for level in self.levels)
        return "boolean" if flags else "category"

    @property
    def details(self) -> list[str]:
        """Further properties, in a few words each."""
        count = len(self.levels)
        size = [] if self.kind == "boolean" else [f"{count:,} level{'s' if count > 1 else ''}"]
        order = ["ordered"] if self.ordered else []
        note = [self.note] if self.note else []
        return [*size, *order, *self._common_details(), *note]

    def encode(self, series: pd.Series) -> tuple[FloatArray, BoolArray]:
        """Returns the index of each level; 0 where missing, or the level for it in a context."""
        codes, distinct = distinct_values(series, self.name, QueryError)
        known = {level: code for code, level in enumerate(self.levels)}
        filler = len(self.levels) if self.context else 0
        table = [self._code(value, known, series) for value in distinct]
        return np.array([*table, filler], dtype=np.float64)[codes], codes < 0

    def decode(self, codes: NDArray[Any], missing: BoolArray | None = None) -> pd.Series:
        """Returns the levels of codes; the missing-value level of a context decodes to missing."""
        places = np.rint(np.asarray(codes, dtype=np.float64)).astype(np.int64)
        gone = places >= len(self.levels)
        gone = gone if missing is None else gone | np.asarray(missing)
        if self.dtype_name == "category":
            categories = pd.Index(self.levels, dtype=dtype_of(self.level_dtype))
            dtype = pd.CategoricalDtype(categories, ordered=self.ordered)
            return pd.Series(
                pd.Categorical.from_codes(np.where(gone, -1, places), dtype=dtype), name=self.name
            )
        return self._restored(np.where(gone, 0, places), gone)

    def log_density_factor(self, series: pd.Series) -> FloatArray:
        """Returns zeros: a probability has no unit."""
        return np.zeros(len(series))

    def _code(self, value: Any, known: dict[Level, int], series: pd.Series) -> int:
        level = plain_level(value)
        if level in known:
            return known[level]
        for reading in _readings(level):
            if reading in known:
                return known[reading]
        raise QueryError(
            f'Column "{self.name}" must hold levels seen in training; got {level!r}'
            f"{row_of(series, value)}."
            f"{nearest_or_all(level, self.levels)} Replace it by a known level, or leave it empty."
        )

    def _restored(self, places: NDArray[np.int64], gone: BoolArray) -> pd.Series:
        values = np.empty(len(self.levels), dtype=object)
        values[:] = self.levels
        dtype = dtype_of(self.dtype_name)
        if dtype == np.dtype(bool) and gone.any():
            dtype = pd.BooleanDtype()  # a plain bool cannot be missing
        picked = pd.Series(values[places], dtype=object, name=self.name)
        if dtype is None or types.is_string_dtype(dtype) or types.is_object_dtype(dtype):
            picked[gone] = None
            return picked if dtype is None else picked.astype(dtype)
        picked = picked.infer_objects()
        return as_dtype(picked, str(dtype), missing=gone)


def plain_level(value: Any) -> Level:
    """Converts a value to Python's text, boolean or number; anything else to its text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if _is_plain(value) else str(value)


def _is_plain(value: Any) -> bool:
    value = value.item() if isinstance(value, np.generic) else value
    return isinstance(value, str | int | float)


def _is_boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in WORDS
    return isinstance(value, bool | np.bool_) or value in (0, 1)


def _readings(level: Level) -> list[Level]:
    """Returns equivalents of a level: files turn numbers into text, and text into numbers."""
    if not isinstance(level, str):
        whole = isinstance(level, float) and level.is_integer()
        return [str(level), *([str(int(level))] if whole else [])]
    readings: list[Level] = []
    for read in (int, float):
        try:
            readings.append(read(level))
        except ValueError:
            continue
    word = level.strip().lower()
    return [*readings, *([WORDS[word]] if word in WORDS else [])]
