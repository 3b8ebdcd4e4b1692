"""Type inference: the type of a column that was not declared.

The first rule that applies decides. Booleans are booleans. Numbers are numbers, but flags (just 0
and 1) are categories. Times are numbers. The categories of pandas are categories. Text is numbers
if all of it is numbers, and dates if all of it is dates, by ISO 8601 or with a day above 12
(22.11.2022). Text that is half numbers, or numbers and signs such as "?", is refused, because a
marker of missing values would turn an amount into a category of thousands of levels. Other text is
a category.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from anyorder.errors import SchemaError
from anyorder.tables.columns import CategoryColumn, Column, NumberColumn
from anyorder.tables.parsing import (
    ORDERS,
    distinct_values,
    form_of,
    is_foreign,
    plain,
    possible_orders,
    read_datetimes,
    read_durations,
    read_floats,
    thousands_separator,
)

ColumnType = Literal["number", "category", "boolean", "datetime", "dmy", "mdy", "ignore"]
"""Types that a caller may declare; "dmy" are dates with the day first."""

COLUMN_TYPES: tuple[str, ...] = get_args(ColumnType)

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
NAME_OF_DIGITS = re.compile(r"\s*(0\d+|\d{17,})\s*")
"""Digits with a leading zero, such as a postcode, or more digits than float64 holds, such as an
account: an identifier, not a number."""

DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
MOSTLY = 0.5
"""From this fraction of numbers on, a column of text and numbers is refused."""


def infer_column(
    series: pd.Series,
    *,
    declared: str | None = None,
    missing_share: float | None = None,
    context: bool = False,
) -> Column:
    """Infers the column of a series with at least one value.

    `missing_share` is needed if the series does not hold all missing values.
    """
    if isinstance(series.dtype, pd.SparseDtype):
        series = plain(series)  # comes back dense: a model fills in what was zero
    kind = declared or column_type(series)
    share = float(series.isna().mean()) if missing_share is None else missing_share
    if kind == "category":
        return CategoryColumn.fit(series, missing_share=share, context=context)
    if kind == "boolean":
        return CategoryColumn.boolean(series, missing_share=share, context=context)
    if kind == "number":
        return NumberColumn.fit(_as_numbers(series), missing_share=share, context=context)
    form = _date_form(series, kind)
    times = read_datetimes(series, str(series.name), SchemaError, form=form).rename(series.name)
    times = series if types.is_datetime64_any_dtype(series.dtype) else times
    return NumberColumn.fit(times, missing_share=share, context=context, form=form)


def column_type(series: pd.Series) -> ColumnType:
    """Infers the type of a series from its dtype, or from its values if they are objects."""
    name, dtype = str(series.name), series.dtype
    if isinstance(dtype, pd.CategoricalDtype | pd.IntervalDtype):
        return "category"
    values = plain(series)
    if isinstance(values.dtype, pd.PeriodDtype):
        raise SchemaError(
            f'Column "{name}" holds periods. Convert it with .dt.to_timestamp() first.'
        )
    if types.is_bool_dtype(values.dtype):
        return "boolean"
    if types.is_numeric_dtype(values.dtype):
        return "category" if set(values.dropna().unique()) == {0, 1} else "number"
    if types.is_timedelta64_dtype(values.dtype):
        return "number"
    if types.is_datetime64_any_dtype(values.dtype):
        return "datetime"
    return _type_of_objects(values, name)


def _type_of_objects(series: pd.Series, name: str) -> ColumnType:
    codes, distinct = distinct_values(series, name)
    held = types.infer_dtype(series, skipna=True)
    if held == "boolean":
        return "boolean"
    if held == "date" or held in ("timedelta", "timedelta64"):
        return "number"
    if held in ("datetime", "datetime64") or _are_dates(distinct):
        return "datetime"
    if len(possible_orders(distinct)) == 1:
        return "datetime"
    if any(isinstance(value, str) and NAME_OF_DIGITS.fullmatch(value) for value in distinct):
        return "category"
    numeric = np.array([_is_number(value) for value in distinct])
    if numeric.all():
        return "number"
    _refuse_points_and_commas(series, name, codes, distinct)
    present = codes >= 0
    others = [value for value, is_number in zip(distinct, numeric, strict=True) if not is_number]
    are_signs = not any(re.search(r"\w", str(value)) for value in others)
    if numeric[codes[present]].mean() >= MOSTLY or (numeric.any() and are_signs):
        place = int(np.flatnonzero(present & ~numeric[codes])[0])
        odd = distinct[codes[place]]
        remedy = (
            f"Declare {odd!r} as a missing value (missing_values), or the column as categories "
            "(types)."
        )
        if is_foreign(odd):
            remedy = (
                f"Write decimals with a point, and thousands without {thousands_separator(odd)}; "
                "if they are no numbers, declare the column as categories (types)."
            )
        raise SchemaError(
            f'Column "{name}" looks like numbers but holds {odd!r} (row {series.index[place]}). '
            f"{remedy}"
        )
    return "category"


def _refuse_points_and_commas(
    series: pd.Series, name: str, codes: NDArray[np.intp], distinct: Sequence[Any]
) -> None:
    """Refuses numbers of which some have a decimal point and others a comma: 3.7 and 3,5."""
    commas = np.array([is_foreign(value) for value in distinct])
    numeric = np.array([_is_number(value) for value in distinct])
    points = numeric & np.array(["." in str(value) for value in distinct])
    share = (numeric | commas)[codes[codes >= 0]].mean()
    if not commas.any() or not points.any() or share < MOSTLY:
        return
    with_point, with_comma = (
        f"{distinct[code]!r} (row {series.index[int(np.argmax(codes == code))]})"
        for code in (int(np.argmax(points)), int(np.argmax(commas)))
    )
    raise SchemaError(
        f'Column "{name}" holds numbers with a point, {with_point}, and with a comma, '
        f"{with_comma}. Write them alike in the file: decimals with a point, thousands without a "
        "comma. If they are no numbers, declare the column as categories (types)."
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return NUMBER.fullmatch(value) is not None
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool_)


def _are_dates(distinct: Sequence[Any]) -> bool:
    if not all(isinstance(value, str) and DATE.fullmatch(value) for value in distinct):
        return False
    try:
        read_datetimes(pd.Series(distinct, dtype=object), "", SchemaError)
    except SchemaError:
        return False  # shaped like dates, such as 2021-13-45, or with a zone in some rows only
    return True


def _as_numbers(series: pd.Series) -> pd.Series:
    """Parses text and objects as numbers: int64 if all are whole, else float64."""
    name, values = str(series.name), plain(series)
    if types.is_bool_dtype(values.dtype):
        return values.astype("Int64" if values.isna().any() else "int64")
    if not (types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype)):
        return values if isinstance(series.dtype, pd.CategoricalDtype) else series
    held = types.infer_dtype(values, skipna=True)
    if held in ("date", "decimal"):
        return series
    if held in ("timedelta", "timedelta64"):
        return read_durations(values, name, SchemaError)
    floats = pd.Series(read_floats(values, name, SchemaError), index=series.index, name=name)
    distinct = distinct_values(values, name)[1]
    if floats.isna().any() or not all(_is_whole(value) for value in distinct):
        return floats
    return floats.astype(np.int64)


def _is_whole(value: Any) -> bool:
    """Tests for a whole number that float64 holds exactly, written without a point."""
    if isinstance(value, str):
        return value.strip().lstrip("+-").isdecimal() and abs(int(value)) < 2**53
    return isinstance(value, int | np.integer) and abs(int(value)) < 2**53


def _date_form(series: pd.Series, kind: str) -> str:
    """Infers the form of the dates of a column; "" for ISO 8601 and for values that are not text.

    With points the day comes first, as it does wherever they are used. With slashes and dashes a
    day above 12 must show it, or the column be declared.
    """
    name, values = str(series.name), plain(series)
    if not (types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype)):
        return ""
    distinct = distinct_values(values, name)[1]
    dates = [value for value in distinct if possible_orders([value])]
    if not dates:
        return ""
    if kind in ORDERS:
        return form_of(dates, kind)
    orders = possible_orders(dates)
    if len(orders) > 1 and "." not in dates[0]:
        raise SchemaError(
            f'Column "{name}" holds dates such as {dates[0]!r}, and none tells whether the day or '
            f'the month comes first. Declare it as "dmy" or "mdy" (types, --types {name}=dmy).'
        )
    # If no order fits all, parsing in the order of most of them reports the others.
    found = [order for date in dates for order in possible_orders([date])]
    return form_of(dates, orders[0] if orders else max(ORDERS, key=found.count))
