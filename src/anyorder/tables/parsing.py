"""Parsing: the values of a pandas column as floats, times or durations, whatever their dtype.

The same column comes as int64 from one file, as text from another and as Arrow from a third.
Parsing is strict: a value that is not a number or not a time is an error that names the column and
the value, never a silent missing value.

Numbers have a decimal separator, "." or ","; the other one, spaces and apostrophes may separate
thousands. 3,5 and 54.15 show the decimal separator, and so do 0.125 and 1.234.567. 1.234 and 50,876
are ambiguous: three digits after one to three others may be decimals or thousands.

Dates may have the day or the month first, as in 22.11.2022 and 11/22/2022. 05/11/2022 alone is
ambiguous; a column is not, once a day is above 12. A date form is written as "dd.mm.yyyy",
"m/d/yyyy" or "dd.mm.yyyy HH:MM"; "" is ISO 8601.
"""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from anyorder.errors import AnyOrderError, SchemaError

SIGNS = (".", ",")
"""Decimal separators."""

SPACES = " \u00a0\u202f'\u2019"
"""Thousands separators that go with either decimal separator."""


def _pattern(sign: str, other: str) -> re.Pattern[str]:
    plain = rf"(?:\d+(?:[{sign}]\d*)?|[{sign}]\d+)(?:[eE][+-]?\d+)?"
    grouped = rf"[1-9]\d{{0,2}}([{other}{SPACES}])\d{{3}}(?:\1\d{{3}})*(?:[{sign}]\d+)?"
    return re.compile(rf"\s*[+-]?(?:{plain}|{grouped})\s*")


PATTERNS = {".": _pattern(".", ","), ",": _pattern(",", ".")}


def decimal_separators(cell: str) -> str:
    """Returns the possible decimal separators of a number; "" if the cell is not a number.

    Example:
        >>> [decimal_separators(cell) for cell in ("3,5", "0.125", "1.234", "1.234,5", "7", "a")]
        [',', '.', '.,', ',', '.,', '']
    """
    return "".join(sign for sign in SIGNS if PATTERNS[sign].fullmatch(cell))


def is_ambiguous(cell: str) -> bool:
    """Tests whether the value of a number depends on the decimal separator, as that of 1.234."""
    return any(sign in cell for sign in SIGNS) and decimal_separators(cell) == "".join(SIGNS)


def is_foreign(value: Any) -> TypeGuard[str]:
    """Tests for text that is a number which Python does not parse, such as 3,5 or 1 234."""
    if not isinstance(value, str) or not decimal_separators(value):
        return False
    return value.count(".") > 1 or any(sign in value.strip() for sign in f",{SPACES}")


def thousands_separator(cell: str) -> str:
    """Returns the likely thousands separator of a number that Python does not parse, in words."""
    if any(space in cell.strip() for space in SPACES):
        return "a space"
    return "a point" if "." in cell and decimal_separators(cell) == "," else "a comma"


def plainly(cell: str, sign: str) -> str:
    """Returns a number in the notation that Python parses.

    Example:
        >>> plainly("1.234,5", ","), plainly("7 876.63", "."), plainly("1.234", ".")
        ('1234.5', '7876.63', '1.234')
    """
    groups = SPACES + "".join(other for other in SIGNS if other != sign)
    return cell.strip().translate({ord(group): None for group in groups}).replace(sign, ".")


ORDERS = ("dmy", "mdy")
"""Day first, or month first."""

YEAR = re.compile(r"[12]\d{3}(-(0?[1-9]|1[0-2]))?")
"""A year, or a month of one."""

CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?"
DATE = re.compile(rf"\s*(\d{{1,2}})([./-])(\d{{1,2}})\2([12]\d{{3}})(?:[ T]({CLOCK}))?\s*")
PART = re.compile(r"yyyy|dd?|mm?|HH:MM(?::SS)?")


def days_of(text: object) -> tuple[str, str] | None:
    """Returns the first and the last day of a year or a month; None for anything else.

    Example:
        >>> days_of("2024-02"), days_of("2024-02-01")
        (('2024-02-01', '2024-02-29'), None)
    """
    if not isinstance(text, str) or not YEAR.fullmatch(text):
        return None
    span = pd.Period(text)
    return f"{span.start_time:%Y-%m-%d}", f"{span.end_time:%Y-%m-%d}"


def possible_orders(values: Sequence[Any]) -> list[str]:
    """Returns the orders in which all values are dates with one separator.

    Example:
        >>> possible_orders(["05/11/2022", "22/11/2022"])
        ['dmy']
        >>> possible_orders(["05/11/2022"]), possible_orders(["05/11/2022", "22.11.2022"])
        (['dmy', 'mdy'], [])
    """
    found = [DATE.fullmatch(value) if isinstance(value, str) else None for value in values]
    dates = [date for date in found if date is not None]
    if len(dates) < len(found) or len({date[2] for date in dates}) != 1:
        return []
    return [order for order in ORDERS if all(_iso(date, order) is not None for date in dates)]


def form_of(values: Sequence[str], order: str) -> str:
    """Returns the form of dates of one order.

    Example:
        >>> form_of(["05/11/2022", "22/11/2022"], "dmy"), form_of(["5.1.2022 14:30"], "dmy")
        ('dd/mm/yyyy', 'd.m.yyyy HH:MM')
    """
    dates = [date for date in map(DATE.fullmatch, values) if date is not None]
    padded = all(len(date[1]) == len(date[3]) == 2 for date in dates)
    first, second = (part * (1 + padded) for part in (order[0], order[1]))
    colons = max((date[5] or "").count(":") for date in dates)
    clock = ("", " HH:MM", " HH:MM:SS")[colons]
    return f"{first}{dates[0][2]}{second}{dates[0][2]}yyyy{clock}"


def as_iso(value: Any, form: str) -> Any:
    """Converts a date of a form to ISO 8601; returns anything else unchanged.

    Example:
        >>> as_iso("22.11.2022", "dd.mm.yyyy"), as_iso("2022-11-22", "dd.mm.yyyy")
        ('2022-11-22', '2022-11-22')
    """
    date = DATE.fullmatch(value) if form and isinstance(value, str) else None
    if date is None or date[2] not in form:
        return value
    return _iso(date, "dmy" if form.startswith("d") else "mdy") or value


def in_form(times: pd.Series, form: str) -> pd.Series:
    """Formats times in a form, with more of the clock where needed; missing values stay missing.

    Example:
        >>> times = pd.Series(pd.to_datetime(["2022-11-05", "2022-11-05T14:30"], format="ISO8601"))
        >>> in_form(times, "d.m.yyyy").tolist()
        ['5.11.2022', '5.11.2022 14:30']
    """
    return times.map(lambda time: _lossless(time, form), na_action="ignore").astype(object)


def _lossless(time: pd.Timestamp, form: str) -> str:
    """Formats one time without loss; fractions of seconds take ISO 8601."""
    if time.microsecond or time.nanosecond:
        return time.isoformat(sep=" ")
    day = form.partition(" ")[0]
    clock = " HH:MM:SS" if time.second else " HH:MM" if time.hour or time.minute else ""
    return example(time, day + max(form[len(day) :], clock, key=len))


def example(time: datetime.datetime, form: str) -> str:
    """Formats one time in a form."""
    parts = {
        "d": f"{time.day}",
        "dd": f"{time.day:02d}",
        "m": f"{time.month}",
        "mm": f"{time.month:02d}",
        "yyyy": f"{time.year:04d}",
        "HH:MM": f"{time:%H:%M}",
        "HH:MM:SS": f"{time:%H:%M:%S}",
    }
    return PART.sub(lambda part: parts[part[0]], form)


def _iso(date: re.Match[str], order: str) -> str | None:
    """Converts a date of an order to ISO 8601; None if the calendar has no such day."""
    first, second = int(date[1]), int(date[3])
    day, month = (first, second) if order == "dmy" else (second, first)
    try:
        found = datetime.date(int(date[4]), month, day).isoformat()
    except ValueError:
        return None
    clock = date[5] or ""
    return f"{found} {clock.zfill(3 * clock.count(':') + 2)}" if clock else found


EXAMPLE = datetime.datetime(2024, 5, 31, 18)
"""A date whose day cannot be a month."""

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]


def dtype_of(text: str) -> Any:
    """Returns the pandas dtype that a string names, or None if pandas cannot parse the name."""
    try:
        return types.pandas_dtype(text)
    except (TypeError, NotImplementedError, ImportError):
        return None


def plain_dtype(dtype: Any) -> Any:
    """Returns the numpy dtype under a nullable or Arrow one."""
    return getattr(dtype, "numpy_dtype", dtype)


def as_dtype(values: pd.Series, text: str, *, missing: BoolArray | None = None) -> pd.Series:
    """Converts to the dtype that `text` names, or to float64 if it cannot hold missing values."""
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
    """Converts to numpy's or pandas' own dtypes: no categories, Arrow or sparse ones."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        under = dtype.categories.dtype if len(dtype.categories) else object
        if isinstance(under, np.dtype) and under.kind in "iub" and series.isna().any():
            under = "boolean" if under.kind == "b" else "Int64"  # numpy's hold no missing values
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
    """Returns the values as float64, NaN where missing; text is parsed."""
    values = plain(series)
    if types.is_complex_dtype(values.dtype):
        raise error(f'Column "{name}" must hold real numbers; it holds complex ones.')
    if types.is_bool_dtype(values.dtype) or types.is_numeric_dtype(values.dtype):
        found: FloatArray = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return found
    if types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype):
        codes, distinct = distinct_values(values, name, error)
        table = [_float(value, values, name, error) for value in distinct]
        return np.array([*table, np.nan])[codes]  # code -1, a missing value, takes the last
    raise error(f'Column "{name}" must hold numbers; got {values.dtype}.')


def distinct_values(
    series: pd.Series, name: str, error: type[AnyOrderError] = SchemaError
) -> tuple[NDArray[np.intp], list[Any]]:
    """Returns the index of each row's value among the distinct ones (-1: missing), and these."""
    try:
        codes, distinct = pd.factorize(series)
    except TypeError:
        raise error(
            f'Column "{name}" must hold plain values: text, numbers, times or booleans; it holds '
            "lists or other objects. Leave it out, or turn it into text."
        ) from None
    return codes, list(distinct)


def row_of(series: pd.Series, value: Any) -> str:
    """Returns the first row of a value, in words; "" if there is one row only."""
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
                f"decimals with a point, and thousands without {thousands_separator(value)}."
            ) from None
        fits = error is SchemaError  # later tables are read as declared in training
        remedy = "declare it as one (missing_values)" if fits else "leave the cell empty"
        raise error(
            f'Column "{name}" must hold numbers; got {value!r}{row_of(series, value)}. If it '
            f"stands for a missing value, {remedy}."
        ) from None


def read_datetimes(
    series: pd.Series, name: str, error: type[AnyOrderError], *, form: str = ""
) -> pd.Series:
    """Returns the values as datetime64, NaT where missing; parses ISO 8601 and Python's dates."""
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
    """Parses ISO 8601 text or Python's datetimes; those with a zone become UTC."""
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
    """Returns how to write a date; a German one is converted."""
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
    """Returns the values as timedelta64, NaT where missing; text is parsed."""
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


def marked(series: pd.Series, markers: Sequence[Any]) -> BoolArray:
    """Returns True for rows that hold a declared marker of missing values.

    A marker matches as a number and as text: -999, -999.0 and "-999" are one marker.
    """
    values = plain(series)
    if not markers or types.is_datetime64_any_dtype(values.dtype):
        return np.zeros(len(series), dtype=bool)
    words = {str(marker).strip() for marker in markers}
    numbers = {number for number in map(_number, markers) if number is not None}
    if types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype):
        return values.isin(numbers).to_numpy(dtype=bool)
    try:
        codes, distinct = pd.factorize(values)
    except TypeError:
        return np.zeros(len(series), dtype=bool)
    hits = [_is_marker(value, words, numbers) for value in distinct]
    return np.array([*hits, False])[codes]


def _number(marker: Any) -> float | None:
    try:
        return None if isinstance(marker, bool) else float(marker)
    except (TypeError, ValueError):
        return None


def _is_marker(value: Any, words: set[str], numbers: set[float]) -> bool:
    if isinstance(value, str):
        return value.strip() in words or (bool(numbers) and _number(value) in numbers)
    if isinstance(value, bool | np.bool_):
        return str(value) in words
    return isinstance(value, Real | Decimal) and float(value) in numbers


def refuse_duplicates(names: Iterable[str]) -> None:
    """Refuses duplicate column names."""
    for name, count in Counter(names).items():
        if count > 1:
            raise SchemaError(
                f'Column names must differ; "{name}" occurs {count} times. Rename it.'
            )
