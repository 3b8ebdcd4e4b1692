"""From what people write to what a model is asked: names of columns, values, intervals, sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from anyorder.data.code_ranges import code_range
from anyorder.data.columns import CALENDAR, Column, NumberColumn
from anyorder.data.date_forms import days_of
from anyorder.data.table import TableSchema
from anyorder.errors import QueryError, nearest_or_all
from anyorder.estimators.table_doubts import doubt_values
from anyorder.soft_evidence import Interval, Levels

Names = str | Sequence[str] | None


def column_sets(
    table: TableSchema, missing: Tensor, *, query: Names, given: Names
) -> tuple[Tensor, Tensor]:
    """The sets of a question about each row of a frame.

    Args:
        table: The columns.
        missing: What the frame lacks. Shape ``(rows, vars)``.
        query: Columns that are asked; the cells that a row has and that are not given by default.
        given: Columns that are known, where a row has them; none by default.

    Returns:
        Query and given. Shapes ``(rows, vars)``.
    """
    known = column_set(table, given, argument="given") & ~missing
    if query is None:
        return ~missing & ~known, known
    asked, _ = named_sets(table, query, given)
    gaps = (asked & missing).nonzero()
    if len(gaps):
        row, place = gaps[0].tolist()
        raise QueryError(
            f'Row {row} has no value of "{table.names[place]}", which is asked: a gap has no '
            "likelihood. Drop the row, or leave `query` out to ask what each row has."
        )
    return asked.expand_as(missing), known


def named_sets(
    table: TableSchema, query: Names, given: Names, *, prefix: str = ""
) -> tuple[Tensor, Tensor]:
    """The sets of columns that are asked and given, which must not share one. Shapes ``(vars,)``.

    `prefix` is what stands before the names of these arguments where they were typed.
    """
    asked = column_set(table, query, argument=f"{prefix}query", allow_context=False)
    known = column_set(table, given, argument=f"{prefix}given")
    both = (asked & known).nonzero()
    if len(both):
        name = table.names[int(both[0])]
        raise QueryError(f'"{name}" is both asked and given: drop it from one of them.')
    return asked, known


def column_set(
    table: TableSchema, names: Names, *, argument: str, allow_context: bool = True
) -> Tensor:
    """The set of some columns. Shape ``(vars,)``."""
    listed = listed_names(names, argument=argument)
    context = [column.name for column in table.context]
    members = torch.zeros(len(table.names), dtype=torch.bool)
    for name in listed:
        if name in table.names:
            members[table.names.index(name)] = True
        elif name in context and not allow_context:
            raise QueryError(f'"{name}" is context: it is always given and is never asked.')
        elif name not in context:
            why = {ignored.name: ignored.reason for ignored in table.ignored}
            left_out = f" It was left out when the model was fitted ({why.get(name)})."
            hint = left_out if name in why else nearest_or_all(name, [*table.names, *context])
            raise QueryError(f'`{argument}` must name columns of the model; got "{name}".{hint}')
    return members


def listed_names(names: Any, *, argument: str) -> list[str]:
    """One name, or several, as a list."""
    if names is None or isinstance(names, str):
        return [] if names is None else [names]
    try:
        return [str(name) for name in names]
    except TypeError:
        raise QueryError(
            f"`{argument}` must be the name of a column or a list of them; got {names!r}."
        ) from None


@dataclass(frozen=True)
class Evidence:
    """What is known about one row.

    Args:
        x: Values. Shape ``(1, columns)``.
        given: What is known exactly. Shape ``(vars,)``.
        regions: Where other variables lie.
    """

    x: Tensor
    given: Tensor
    regions: dict[int, Interval | Levels]


def read_evidence(table: TableSchema, given: Mapping[str, Any] | None) -> Evidence:
    """Reads `{"age": 41, "job": ["nurse", "clerk"], "income": (20_000, None)}`.

    A tuple of two is an interval, None an open end; a list is a set of levels; None and NaN are
    unknown; all else is a value.
    """
    if given is not None and not isinstance(given, Mapping):
        raise QueryError(
            f"`given` must be a dictionary from columns to values; got {type(given).__name__}."
        )
    entries = dict(given or {})
    column_set(table, list(entries), argument="given")
    for column in table.context:
        if column.name not in entries:
            raise QueryError(
                f'`given` must tell "{column.name}", which is context: it is always given.'
            )
    regions, values = {}, {}
    for name, value in entries.items():
        _check_days(table[name], value)
        if isinstance(value, tuple | list | set):
            if name not in table.names:
                raise QueryError(f'"{name}" is context: give it one value.')
            regions[table.names.index(name)] = _region(table, name, value)
        else:
            values[name] = [value]
    frame = pd.DataFrame(values, index=[0])
    x, missing = table.encode(frame)
    doubt_values(table, {name: value for name, (value,) in values.items()})
    return Evidence(x, ~missing[0], regions)


def _check_days(column: Column, value: Any) -> None:
    """Refuses years and months of a date, which would be read as their first days."""
    if column.kind not in CALENDAR:
        return
    for text in value if isinstance(value, tuple) else (value,):
        if days := days_of(text):
            raise QueryError(
                f'`given` must have a whole date for "{column.name}"; got {text!r}. Give a day, '
                f"{days[0]!r}, or an interval, {days!r}."
            )


def _region(table: TableSchema, name: str, value: Any) -> Interval | Levels:
    column = table[name]
    if not isinstance(column, NumberColumn):
        if isinstance(value, tuple):  # an interval, as it is everywhere: not its two ends
            raise QueryError(f'"{name}" is a category: give a list of its levels, no interval.')
        codes, missing = column.encode(pd.Series(list(value), name=name, dtype=object))
        if not len(codes) or missing.any():
            raise QueryError(f'The set of levels of "{name}" must hold levels; got {value!r}.')
        return Levels(tuple(sorted({int(code) for code in codes})))
    if not isinstance(value, tuple) or len(value) != 2:
        raise QueryError(
            f'"{name}" is a {column.kind}: give a value, or an interval (low, high) as a tuple; '
            f"got {value!r}."
        )
    low, high = (_end(column, end) for end in value)
    if low is not None and high is not None and low > high:
        raise QueryError(f'The interval of "{name}" must ascend; got {value!r}.')
    found = code_range(column, low, high)
    if found is None:
        raise QueryError(
            f'The interval of "{name}" must hold a value that the column can have, which is '
            f"{column.summary}; got {value!r}. Widen it to the next one."
        )
    return Interval(*found)


def _end(column: NumberColumn, end: Any) -> float | None:
    """The number of an end of an interval; None where it is open."""
    if end is None:
        return None
    number = column.measurement.numbers(pd.Series([end], name=column.name), column.name)[0]
    return None if np.isnan(number) else float(number)
