"""Columns of categories: text, booleans, pandas categories, or numbers that are mere labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from anyorder.errors import QueryError, SchemaError, nearest_or_all
from anyorder.tables.columns import Column, NumberColumn, number_column_from
from anyorder.tables.parsing import (
    BoolArray,
    FloatArray,
    as_dtype,
    distinct_values,
    dtype_of,
    row_of,
)
from anyorder.variables import Level, Variable

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

    Args:
        name: Name of the column.
        missing_share: Fraction of missing values in training.
        context: True if the column is always given; it then has a level for missing values.
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
        if isinstance(dtype, pd.CategoricalDtype):
            found, ordered = list(dtype.categories), bool(dtype.ordered)
        else:
            found, ordered = distinct_values(series, name)[1], False
        plain_levels = [plain_level(value) for value in found]
        as_text = any(not _is_plain(value) for value in found)
        if not isinstance(dtype, pd.CategoricalDtype):
            plain_levels.sort(key=_sorting)
        levels = tuple(dict.fromkeys(plain_levels))
        dtype_name, level_dtype = str(dtype), ""
        if isinstance(dtype, pd.CategoricalDtype):
            dtype_name = "category"
            level_dtype = _text_dtype() if as_text else str(dtype.categories.dtype)
        elif as_text:
            dtype_name = _text_dtype()
        note = _note(len(levels), series)
        return cls(name, missing_share, context, levels, dtype_name, level_dtype, ordered, note)

    @classmethod
    def boolean(
        cls, series: pd.Series, *, missing_share: float = 0.0, context: bool = False
    ) -> "CategoryColumn":
        """Returns a column with the levels False and True, even if only one occurs."""
        name = str(series.name)
        distinct = distinct_values(series, name)[1]
        for value in distinct:
            if not _as_boolean(value)[1]:
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


def _sorting(level: Level) -> tuple[bool, Any]:
    """Returns a sort key: numbers before text, each in its own order."""
    return isinstance(level, str), level


def _text_dtype() -> str:
    return str(pd.Series([""]).dtype)


def _note(count: int, series: pd.Series) -> str:
    if count > MANY_LEVELS and count > len(series) / 2:
        return "mostly distinct: if it names the row, ignore it"
    return ""


def _as_boolean(value: Any) -> tuple[bool, bool]:
    """Returns the boolean of a value, and False in second place if it has none."""
    if isinstance(value, str):
        word = value.strip().lower()
        return WORDS.get(word, False), word in WORDS
    return bool(value), isinstance(value, bool | np.bool_) or value in (0, 1)


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


def column_from(description: dict[str, Any]) -> Column:
    """Reads what `Column.describe` wrote."""
    try:
        if description["column"] == NumberColumn.__name__:
            return number_column_from(description)
        if description["column"] != CategoryColumn.__name__:
            raise KeyError(description["column"])
        entries = {key: value for key, value in description.items() if key != "column"}
        return CategoryColumn(**{**entries, "levels": tuple(entries["levels"])})
    except (KeyError, TypeError) as error:
        raise SchemaError(f"This is not a column written by anyorder ({error!r}).") from error
