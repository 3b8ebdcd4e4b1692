"""Dates that are written by day and month, such as 22.11.2022 or 11/22/2022.

05/11/2022 alone does not tell which of the two comes first; a column does, once a day is above 12.
A form is written as people write it: "dd.mm.yyyy", "m/d/yyyy", "dd.mm.yyyy HH:MM"; "" is ISO 8601.
"""

import datetime
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

ORDERS = ("dmy", "mdy")
"""The day first, or the month."""

YEAR = re.compile(r"[12]\d{3}(-(0?[1-9]|1[0-2]))?")
"""A year, or a month of one."""

CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?"
DATE = re.compile(rf"\s*(\d{{1,2}})([./-])(\d{{1,2}})\2([12]\d{{3}})(?:[ T]({CLOCK}))?\s*")
PART = re.compile(r"yyyy|dd?|mm?|HH:MM(?::SS)?")


def days_of(text: object) -> tuple[str, str] | None:
    """The first and the last day of a year or a month; None for all else.

    Example:
        >>> days_of("2024-02"), days_of("2024-02-01")
        (('2024-02-01', '2024-02-29'), None)
    """
    if not isinstance(text, str) or not YEAR.fullmatch(text):
        return None
    span = pd.Period(text)
    return f"{span.start_time:%Y-%m-%d}", f"{span.end_time:%Y-%m-%d}"


def possible_orders(values: Sequence[Any]) -> list[str]:
    """The orders in which all values are dates with one separator; none where there is no such.

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
    """How dates of one order are written.

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
    """A date in a form as ISO 8601; all else, and what is no date of the calendar, as it is.

    Example:
        >>> as_iso("22.11.2022", "dd.mm.yyyy"), as_iso("2022-11-22", "dd.mm.yyyy")
        ('2022-11-22', '2022-11-22')
    """
    date = DATE.fullmatch(value) if form and isinstance(value, str) else None
    if date is None or date[2] not in form:
        return value
    return _iso(date, "dmy" if form.startswith("d") else "mdy") or value


def in_form(times: pd.Series, form: str) -> pd.Series:
    """Times as they are written, with a longer clock where it takes one; a gap stays one.

    Example:
        >>> times = pd.Series(pd.to_datetime(["2022-11-05", "2022-11-05T14:30"], format="ISO8601"))
        >>> in_form(times, "d.m.yyyy").tolist()
        ['5.11.2022', '5.11.2022 14:30']
    """
    return times.map(lambda time: _whole(time, form), na_action="ignore").astype(object)


def _whole(time: pd.Timestamp, form: str) -> str:
    """One time as it is written, with nothing lost; ISO 8601 has fractions of seconds."""
    if time.microsecond or time.nanosecond:
        return time.isoformat(sep=" ")
    day = form.partition(" ")[0]
    clock = " HH:MM:SS" if time.second else " HH:MM" if time.hour or time.minute else ""
    return example(time, day + max(form[len(day) :], clock, key=len))


def example(time: datetime.datetime, form: str) -> str:
    """One time as it is written."""
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
    """A date of an order as ISO 8601; None where the calendar has no such day."""
    first, second = int(date[1]), int(date[3])
    day, month = (first, second) if order == "dmy" else (second, first)
    try:
        found = datetime.date(int(date[4]), month, day).isoformat()
    except ValueError:
        return None
    clock = date[5] or ""
    return f"{found} {clock.zfill(3 * clock.count(':') + 2)}" if clock else found
