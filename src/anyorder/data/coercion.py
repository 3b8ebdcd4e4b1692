"""The values of a pandas column read as floats, times or durations, whatever they are stored as.

The same column comes as int64 from one file, as text from another and as Arrow from a third.
Reading is strict: what is no number or no time is an error that names the column and the value,
never a silent gap.
"""

import datetime
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from anyorder.data.date_forms import as_iso, example
from anyorder.data.gaussianizer import FloatArray
from anyorder.data.number_forms import group_in, is_foreign
from anyorder.errors import AnyOrderError, SchemaError

EXAMPLE = datetime.datetime(2024, 5, 31, 18)
"""A date whose day is no month."""

BoolArray: TypeAlias = NDArray[np.bool_]


def dtype_of(text: str) -> Any:
    """The pandas dtype that a string names, or None where pandas cannot read its own name."""
    try:
        return types.pandas_dtype(text)
    except (TypeError, NotImplementedError, ImportError):
        return None


def plain_dtype(dtype: Any) -> Any:
    """The numpy dtype under a nullable or Arrow one."""
    return getattr(dtype, "numpy_dtype", dtype)


def as_dtype(values: pd.Series, text: str, *, missing: BoolArray | None = None) -> pd.Series:
    """Values in the dtype that `text` names; a dtype without gaps gives way to float64."""
    dtype = dtype_of(text)
    gone = missing is not None and bool(missing.any())
    if dtype is None or isinstance(dtype, pd.SparseDtype):
        dtype = values.dtype
    if gone and isinstance(dtype, np.dtype) and dtype.kind in "iu":
        dtype = np.dtype(np.float64)
    if values.dtype != dtype:
        values = values.astype(dtype)
    return values.mask(pd.Series(missing)) if gone else values


def plain(series: pd.Series) -> pd.Series:
    """A series of numpy's or pandas' own dtypes: no categories, Arrow or sparse ones."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        under = dtype.categories.dtype if len(dtype.categories) else object
        if isinstance(under, np.dtype) and under.kind in "iub" and series.isna().any():
            under = "boolean" if under.kind == "b" else "Int64"  # numpy's have no gaps
        return plain(series.astype(under))
    if isinstance(dtype, pd.SparseDtype):
        return series.sparse.to_dense()
    if isinstance(dtype, pd.ArrowDtype):
        return _from_arrow(series)
    return series


def _from_arrow(series: pd.Series) -> pd.Series:
    kind = series.dtype.kind
    if kind in "iufb":
        return series.astype({"i": "Int64", "u": "UInt64", "f": "Float64", "b": "boolean"}[kind])
    arrow = series.dtype.pyarrow_dtype
    if kind in "mM" and hasattr(arrow, "unit"):  # a day has none, and becomes Python's date
        name = "datetime64" if kind == "M" else "timedelta64"
        zone = getattr(arrow, "tz", None)
        return series.astype(f"{name}[{arrow.unit}, {zone}]" if zone else f"{name}[{arrow.unit}]")
    return series.astype(object)


def read_floats(series: pd.Series, name: str, error: type[AnyOrderError]) -> FloatArray:
    """The values as float64, NaN for gaps; text is parsed."""
    values = plain(series)
    if types.is_complex_dtype(values.dtype):
        raise error(f'Column "{name}" must hold real numbers; it holds complex ones.')
    if types.is_bool_dtype(values.dtype) or types.is_numeric_dtype(values.dtype):
        found: FloatArray = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return found
    if types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype):
        codes, distinct = distinct_values(values, name, error)
        table = [_float(value, values, name, error) for value in distinct]
        return np.array([*table, np.nan])[codes]  # code -1, a gap, takes the last
    raise error(f'Column "{name}" must hold numbers; got {values.dtype}.')


def distinct_values(
    series: pd.Series, name: str, error: type[AnyOrderError] = SchemaError
) -> tuple[NDArray[np.intp], list[Any]]:
    """The place of each row's value among the distinct ones (-1 for a gap), and these."""
    try:
        codes, distinct = pd.factorize(series)
    except TypeError:
        raise error(
            f'Column "{name}" must hold plain values: text, numbers, times or booleans; it holds '
            "lists or other objects. Leave it out, or turn it into text."
        ) from None
    return codes, list(distinct)


def row_of(series: pd.Series, value: Any) -> str:
    """Where a value stands first, in words; nothing where there is one row only."""
    if len(series) == 1:
        return ""
    codes, distinct = pd.factorize(series)
    return f" (row {series.index[int(np.argmax(codes == list(distinct).index(value)))]})"


def _float(value: Any, series: pd.Series, name: str, error: type[AnyOrderError]) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        if is_foreign(value):
            raise error(
                f'Column "{name}" must hold numbers; got {value!r}{row_of(series, value)}. Write '
                f"decimals with a point, and thousands without {group_in(value)}."
            ) from None
        fits = error is SchemaError  # later, a table is read as it was declared then
        remedy = "declare it as one (missing_values)" if fits else "leave the cell empty"
        raise error(
            f'Column "{name}" must hold numbers; got {value!r}{row_of(series, value)}. If it '
            f"stands for a gap, {remedy}."
        ) from None


def read_datetimes(
    series: pd.Series, name: str, error: type[AnyOrderError], *, form: str = ""
) -> pd.Series:
    """The values as datetime64, NaT for gaps; ISO 8601 text and Python's dates are parsed.

    Args:
        series: Of any dtype.
        name: For messages.
        error: What is raised where a value is no time.
        form: Another form that text may have; see `date_forms`.
    """
    values = plain(series)
    if types.is_datetime64_any_dtype(values.dtype):
        return values
    present = values.dropna()
    if types.infer_dtype(present, skipna=True) == "date":
        days = np.array(present.tolist(), dtype="datetime64[D]").astype("datetime64[s]")
        return pd.Series(days, index=present.index).reindex(values.index)
    is_text = types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype)
    if len(present) and not is_text:
        raise error(f'Column "{name}" must hold dates or times; got {values.dtype}.')
    return _parsed_times(values, name, error, form)


def _parsed_times(values: pd.Series, name: str, error: type[AnyOrderError], form: str) -> pd.Series:
    """ISO 8601 text, or Python's datetimes; with a zone they become UTC."""
    codes, written = distinct_values(values, name, error)
    distinct = [as_iso(value, form) for value in written]
    zones = {_has_zone(value) for value in distinct}
    if len(zones) > 1:
        raise error(
            f'Column "{name}" must hold times all with or all without a time zone; it has both.'
        )
    aware = True in zones
    try:
        times = pd.to_datetime(pd.Series(distinct), format="ISO8601", utc=aware, errors="coerce")
    except (ValueError, TypeError):
        times = pd.Series(pd.NaT, index=range(len(distinct)))
    bad = np.flatnonzero(times.isna())
    if len(bad):
        odd = written[bad[0]]
        if form:
            raise error(
                f'Column "{name}" must hold dates as {example(EXAMPLE, form)} or '
                f"{EXAMPLE:%Y-%m-%d}; got {odd!r}{row_of(values, odd)}."
            )
        raise error(
            f'Column "{name}" must hold dates or times as 2024-05-31 or 2024-05-31T18:00:00; got '
            f"{odd!r}. {_iso_hint(odd)}"
        )
    return times.reindex(codes).set_axis(values.index)


def _iso_hint(value: Any) -> str:
    """How to write a date; a German one is said as it should be."""
    try:
        day = datetime.datetime.strptime(str(value).strip(), "%d.%m.%Y")
    except ValueError:
        return "Write the year first, then month and day; pandas.to_datetime converts a column."
    return f"Write {day:%Y-%m-%d}; pandas.to_datetime converts a column."


def _has_zone(value: Any) -> bool:
    if isinstance(value, str):
        clock = value[10:]
        return clock.endswith("Z") or "+" in clock or "-" in clock
    return isinstance(value, datetime.datetime) and value.tzinfo is not None


def read_durations(series: pd.Series, name: str, error: type[AnyOrderError]) -> pd.Series:
    """The values as timedelta64, NaT for gaps; text is parsed."""
    values = plain(series)
    if types.is_timedelta64_dtype(values.dtype):
        return values
    times = pd.to_timedelta(values.astype(object).where(values.notna(), None), errors="coerce")
    bad = np.flatnonzero((times.isna() & values.notna()).to_numpy())
    if len(bad) or (types.is_numeric_dtype(values.dtype) and values.notna().any()):
        got = repr(values.iloc[bad[0]]) if len(bad) else values.dtype
        raise error(
            f'Column "{name}" must hold durations; got {got}. Convert it with pandas.to_timedelta '
            "first."
        )
    return times
