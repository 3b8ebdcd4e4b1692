"""Notation of columns, values and queries on the command line.

A separator inside double quotes, such as a comma, belongs to the name or the value.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from anyorder.errors import AnyOrderError, ConfigError, QueryError
from anyorder.lattice.query_laws import QueryLaw, QueryList
from anyorder.tables.columns import CALENDAR, CategoryColumn, Column
from anyorder.tables.parsing import days_of, is_foreign
from anyorder.tables.questions import column_set
from anyorder.tables.schema import TableSchema

Question = tuple[list[str], list[str], float]

WEIGHT = re.compile(r"\s*([0-9.]+)\s*:(.*)", re.DOTALL)
COMPARISON = re.compile(r"\s*(?P<name>[^=<>]+?)\s*(>=|<=|=>|=<|>|<)\s*([^=<>]+?)\s*")

SPECIAL = re.compile(r'[,;=|":\s]|\.\.|->')
"""Characters for which a name or a value must be quoted."""


def read_names(text: str | None, *, option: str) -> list[str]:
    """Reads names or values such as `a,b`."""
    names = [unquoted(part) for part in split(text, ",", option=option)] if text else []
    if not all(names):
        raise ConfigError(f'`{option}` must be names with commas between them; got "{text}".')
    return names


def read_types(text: str | None) -> dict[str, str]:
    """Reads columns and their types, such as `zip=category,born=datetime`."""
    return dict(_pair(part, option="--types") for part in split(text or "", ",", option="--types"))


def read_queries(text: str | None) -> list[Question] | None:
    """Reads queries such as `3: age,job -> income; -> age`: weight, given and queried columns."""
    if text is None:
        return None
    parts = split(text, ";", option="--queries")
    if not parts:
        raise ConfigError('`--queries` must hold a query, such as "age,job -> income".')
    return [_question(part) for part in parts]


def _question(text: str) -> Question:
    weighted = WEIGHT.fullmatch(text)
    weight, sides = weighted.groups() if weighted else ("1", text)
    arrow = _split_all(sides, "->", option="--queries")
    try:
        number = float(weight)
    except ValueError:
        raise ConfigError(f'`--queries` must have numbers for weights; got "{weight}".') from None
    if len(arrow) != 2 or not arrow[1]:
        raise ConfigError(
            f'`--queries` must have queries such as "age,job -> income"; got "{text}".'
        )
    given, query = (read_names(side, option="--queries") for side in arrow)
    both = [name for name in query if name in given]
    if both:
        raise QueryError(f'"{both[0]}" is both given and queried in "{text}": drop it on one side.')
    return given, query, number


def given_queries(law: QueryLaw, names: Sequence[str]) -> str | None:
    """Returns a list of queries as `read_queries` reads it, with weights; None for another law."""
    if not isinstance(law, QueryList):
        return None
    lines = []
    for given, query, weight in law.queries:
        known, asked = (",".join(quoted(names[place]) for place in part) for part in (given, query))
        lines.append(f"{weight:.3g}: {known} -> {asked}".replace("  ", " "))
    return "; ".join(lines)


def check_questions(table: TableSchema, questions: Sequence[Question] | None) -> None:
    """Refuses names that are no columns, before anything is trained."""
    for given, query, _ in questions or ():
        column_set(table, given, argument="--queries")
        column_set(table, query, argument="--queries", allow_context=False)


def read_given(table: TableSchema, text: str | None) -> dict[str, Any]:
    """Reads evidence such as `age=41,income=20000..,job=nurse|clerk`, for `TableModel`."""
    found: dict[str, Any] = {}
    for part in split(text or "", ",", option="--given"):
        _refuse_comparison(table, part)
        if found and part.isdigit():  # what stood behind a decimal comma
            raise QueryError(
                f'`--given` must have the form name=value; got "{part}". Write decimals with a '
                "point, as 176.6."
            )
        name, value = _pair(part, option="--given", raw=True)
        column_set(table, name, argument="--given")
        if name in found:
            raise QueryError(f'`--given` must name a column once; "{name}" stands there twice.')
        read = _levels if isinstance(table[name], CategoryColumn) else _number_or_interval
        found[name] = read(table[name], value)
    return found


def _refuse_comparison(table: TableSchema, text: str) -> None:
    """Refuses `age>30` with the notation for it."""
    compared = COMPARISON.fullmatch(text)
    if compared is None or unquoted(compared["name"]) not in table.layout:
        return
    name, sign, value = compared.groups()
    interval = f"{name}={value}.." if ">" in sign else f"{name}=..{value}"
    raise QueryError(f'`--given` has no {sign}: write "{interval}", an interval with its ends.')


def _levels(column: Column, text: str) -> Any:
    """Reads a level, or a list of them; a level may itself hold a separator."""
    whole = unquoted(text)
    if _is_level(column, whole):
        return whole
    levels = [unquoted(part) for part in _split_all(text, "|", option="--given")]
    if len(levels) == 1 and len(_split_all(text, "..", option="--given")) > 1:
        raise QueryError(
            f'"{column.name}" is a category: give levels, as {column.name}=a|b, no interval.'
        )
    return levels if len(levels) > 1 else whole


def _is_level(column: Column, text: str) -> bool:
    try:
        column.encode(pd.Series([text], name=column.name))
    except AnyOrderError:
        return False
    return True


def _number_or_interval(column: Column, text: str) -> Any:
    if len(_split_all(text, "|", option="--given")) > 1:
        raise QueryError(
            f'"{column.name}" is a {column.kind}: give a value or an interval, as '
            f'{column.name}=low..high; got "{text}". '
            f"If its numbers are names, fit it with --types {quoted(column.name)}=category."
        )
    ends = _split_all(text, "..", option="--given")
    if len(ends) == 1:
        return _number(column, ends[0])
    if len(ends) > 2 or not any(ends):
        raise QueryError(
            f'An interval is written low..high, low.. or ..high; got "{column.name}={text}".'
        )
    return tuple(_number(column, end) if end else None for end in ends)


def _number(column: Column, text: str) -> Any:
    """Reads a number; a time stays text, which the column reads."""
    value = unquoted(text)
    if column.kind in CALENDAR:
        _refuse_month(column, value)
    if column.kind != "number":
        return value
    for read in (int, float):
        try:
            number = read(value)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    hint = " Write decimals with a point." if is_foreign(value) else ""
    raise QueryError(f'`--given` must have a number for "{column.name}"; got "{value}".{hint}')


def _refuse_month(column: Column, text: str) -> None:
    """Refuses a year or a month as a date: it would be read as its first day."""
    days = days_of(text)
    if days is None:
        return
    name, (first, last) = quoted(column.name), days
    raise QueryError(
        f'`--given` must have a whole date for "{column.name}"; got "{text}". Write a day, '
        f"{name}={first}, or an interval, {name}={first}..{last}."
    )


def written_given(values: dict[str, Any]) -> str:
    """Formats values as `read_given` reads them."""
    return ",".join(f"{quoted(name)}={quoted(str(value))}" for name, value in values.items())


def quoted(text: str) -> str:
    """Returns a name or value in double quotes, where it needs them."""
    if text and not SPECIAL.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def unquoted(text: str) -> str:
    """Returns a name or value without the quotes around it."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


def split(text: str, separator: str, *, option: str) -> list[str]:
    """Splits a text at separators that are not in quotes; empty parts are dropped."""
    parts = _split_all(text, separator, option=option)
    return [part for part in parts if part]


def _split_all(text: str, separator: str, *, option: str) -> list[str]:
    if text.count('"') % 2:
        raise ConfigError(f"`{option}` must have an even number of double quotes; got {text}")
    parts, start, place = [], 0, 0
    while place < len(text):
        if text[place] == '"':
            place = text.index('"', place + 1) + 1
        elif text.startswith(separator, place):
            parts.append(text[start:place])
            start = place = place + len(separator)
        else:
            place += 1
    return [part.strip() for part in (*parts, text[start:])]


def _pair(text: str, *, option: str, raw: bool = False) -> tuple[str, str]:
    """Reads a name and its value; with `raw`, the value keeps its quotes."""
    name, *parts = _split_all(text, "=", option=option)
    value = "=".join(parts)
    if not name or not value:
        raise ConfigError(f'`{option}` must have the form name=value; got "{text}".')
    return unquoted(name), value if raw else unquoted(value)
