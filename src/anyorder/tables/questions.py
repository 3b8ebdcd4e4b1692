"""Reads what is asked of a table: rows, names of columns, evidence and queries.

They are given as values of Python, or in the notation of the command line, in which a separator
inside double quotes, such as a comma, belongs to the name or the value. Evidence beyond the
training data and queries that were not trained are answered, with a warning.
"""

import math
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from anyorder.errors import (
    AnyOrderError,
    AnyOrderWarning,
    ConfigError,
    QueryError,
    SchemaError,
    check_choice,
    nearest_or_all,
)
from anyorder.inference.queries import Interval, Levels
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import RemoveGreatest
from anyorder.lattice.query_laws import QueryLaw, QueryList, as_query_law, renumbered
from anyorder.saving.checkpoint import describe
from anyorder.tables.columns import CALENDAR, CategoryColumn, Column, NumberColumn
from anyorder.tables.engine import Evidence, code_range
from anyorder.tables.fitting import table_queries
from anyorder.tables.parsing import days_of, is_foreign
from anyorder.tables.schema import TableSchema, as_frame


def warn_unseen(table: TableSchema, values: Mapping[str, Any]) -> None:
    """Warns of given numbers that lie where training had none."""
    for name, value in values.items():
        column = table[name]
        if not isinstance(column, NumberColumn):
            continue
        number = float(column.measurement.numbers(pd.Series([value]), name)[0])
        if np.isnan(number):
            continue
        low, high = (str(end).removesuffix(".0").removesuffix(" 00:00:00") for end in column.span)
        if not column.seen[0] <= number <= column.seen[1]:
            _warn(
                f'"{name}" was {low} to {high} in training: given {value}, the model extrapolates.'
            )
        elif column.is_whole and not number.is_integer():
            _warn(f'"{name}" was whole in training: given {value}, the model extrapolates.')


def warn_untrained(law: QueryLaw, protocol: object, query: Tensor, given: Tensor) -> None:
    """Warns of a query with a conditional that a list of training queries leaves out."""
    if law.listed is None or not isinstance(protocol, RemoveGreatest):
        return
    listed, weights = law.listed
    queried, known = listed.query[weights > 0], listed.given[weights > 0]
    position = protocol.position
    for target in query.nonzero().flatten().tolist():
        before = position < position[target]
        edge = given | (query & before)
        trained = queried[:, target] & ((known | (queried & before)) == edge).all(dim=1)
        if not trained.any():
            _warn("The model was trained for other queries, see `queries`: here it extrapolates.")
            return


def _warn(sentence: str) -> None:
    """Warns at the line that called the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("anyorder."):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, AnyOrderWarning, stacklevel=level)


def query_frame(rows: Any, table: TableSchema, features: Sequence[str]) -> pd.DataFrame:
    """Returns rows as a frame; it must share a column with the model, or all would be missing.

    An array has the fitted columns, in their order; it may lack the target `y` of `fit`.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        names = table.layout if rows.shape[1] == len(table.layout) else features
        if rows.shape[1] != len(names):
            raise SchemaError(
                f"An array must have the {len(names)} columns that were fitted; it has "
                f"{rows.shape[1]}. Give a frame with the names of its columns."
            )
        return as_frame(rows, list(names))
    frame = as_frame(rows)
    if not set(frame.columns) & set(table.layout):
        first, *others = frame.columns
        raise SchemaError(
            f'The table must have a column of the model; it has "{first}"'
            f"{' and others' if others else ''}.{nearest_or_all(first, table.layout)}"
        )
    return frame


Names = str | Sequence[str] | None


def column_sets(
    table: TableSchema, missing: Tensor, *, query: Names, given: Names
) -> tuple[Tensor, Tensor]:
    """Returns the queried and the given variables of each row. Shapes ``(rows, vars)``.

    By default, the cells are queried that a row has and that are not given.
    """
    known = column_set(table, given, argument="given") & ~missing
    if query is None:
        return ~missing & ~known, known
    queried, _ = named_sets(table, query, given)
    absent = (queried & missing).nonzero()
    if len(absent):
        row, place = absent[0].tolist()
        raise QueryError(
            f'Row {row} has no value of "{table.names[place]}", which is queried: a missing value '
            "has no likelihood. Drop the row, or leave `query` out to query what each row has."
        )
    return queried.expand_as(missing), known


def named_sets(
    table: TableSchema, query: Names, given: Names, *, prefix: str = ""
) -> tuple[Tensor, Tensor]:
    """Returns the queried and the given variables, which must be disjoint. Shapes ``(vars,)``.

    `prefix` precedes the names of these arguments in errors, such as "--".
    """
    queried = column_set(table, query, argument=f"{prefix}query", allow_context=False)
    known = column_set(table, given, argument=f"{prefix}given")
    both = (queried & known).nonzero()
    if len(both):
        name = table.names[int(both[0])]
        raise QueryError(f'"{name}" is both queried and given: drop it from one of them.')
    return queried, known


def column_set(
    table: TableSchema, names: Names, *, argument: str, allow_context: bool = True
) -> Tensor:
    """Returns the variables of some columns. Shape ``(vars,)``."""
    listed = listed_names(names, argument=argument)
    context = [column.name for column in table.context]
    members = torch.zeros(len(table.names), dtype=torch.bool)
    for name in listed:
        if name in table.names:
            members[table.names.index(name)] = True
        elif name in context and not allow_context:
            raise QueryError(f'"{name}" is context: it is always given and never queried.')
        elif name not in context:
            why = {ignored.name: ignored.reason for ignored in table.ignored}
            left_out = f" It was left out when the model was fitted ({why.get(name)})."
            hint = left_out if name in why else nearest_or_all(name, [*table.names, *context])
            raise QueryError(f'`{argument}` must name columns of the model; got "{name}".{hint}')
    return members


def listed_names(names: Any, *, argument: str) -> list[str]:
    """Returns one name or several as a list."""
    if names is None or isinstance(names, str):
        return [] if names is None else [names]
    try:
        return [str(name) for name in names]
    except TypeError:
        raise QueryError(
            f"`{argument}` must be the name of a column or a list of them; got {names!r}."
        ) from None


def read_evidence(table: TableSchema, given: Mapping[str, Any] | None) -> Evidence:
    """Reads `{"age": 41, "job": ["nurse", "clerk"], "income": (20_000, None)}`.

    A tuple of two is an interval, None an open end; a list is a set of levels; None and NaN are
    missing; all else is a value.
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
                f'`given` must hold "{column.name}", which is context: it is always given.'
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
    x, missing = table.encode(pd.DataFrame(values, index=[0]))
    warn_unseen(table, {name: value for name, (value,) in values.items()})
    return Evidence(x, ~missing[0], regions)


class Read(NamedTuple):
    """Evidence that was read, and warnings about it."""

    evidence: Evidence
    warnings: list[str]


def read_many(
    table: TableSchema, records: Sequence[Mapping[str, Any]]
) -> list[Read | AnyOrderError]:
    """Reads the evidence of each record; an invalid record is answered by its error.

    `read_evidence` takes a millisecond a record. Numbers within the range of training and known
    levels, which most records hold, are read here column by column, for all records at once.
    """
    simple = [place for place, record in enumerate(records) if _is_simple(table, record)]
    read = dict(zip(simple, _read_simple(table, [records[i] for i in simple]), strict=True))
    return [
        Read(read[place], []) if place in read else _read_one(table, record)
        for place, record in enumerate(records)
    ]


def _read_one(table: TableSchema, record: Mapping[str, Any]) -> Read | AnyOrderError:
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            evidence = read_evidence(table, record)
        except AnyOrderError as error:
            return error
    return Read(evidence, [str(warning.message) for warning in caught])


def _is_simple(table: TableSchema, record: Mapping[str, Any]) -> bool:
    columns = {column.name: column for column in table.query}
    return not (table.context or table.missing_values) and all(
        name in columns and (value is None or _is_simple_value(columns[name], value))
        for name, value in record.items()
    )


def _is_simple_value(column: Column, value: Any) -> bool:
    """Returns True if the value needs no conversion and no warning."""
    if isinstance(column, CategoryColumn):
        return any(level == value and type(level) is type(value) for level in column.levels)
    if not isinstance(column, NumberColumn) or column.kind != "number":
        return False
    if type(value) not in (int, float) or column.measurement.origin:
        return False
    low, high = column.seen
    return low <= value <= high and (not column.is_whole or value == int(value))


def _read_simple(table: TableSchema, records: Sequence[Mapping[str, Any]]) -> list[Evidence]:
    x = torch.zeros(len(records), len(table.schema))
    known = torch.zeros(len(records), len(table.query), dtype=torch.bool)
    for place, column in enumerate(table.query):
        rows = [row for row, record in enumerate(records) if record.get(column.name) is not None]
        values = [records[row][column.name] for row in rows]
        if rows:
            dtype = np.float64 if isinstance(column, NumberColumn) else object
            codes, _ = column.encode(pd.Series(values, dtype=dtype, name=column.name))
            x[rows, place], known[rows, place] = torch.from_numpy(codes).float(), True
    return [Evidence(x[row : row + 1], known[row], {}) for row in range(len(records))]


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
    """Returns the number of an end of an interval; None where it is open."""
    if end is None:
        return None
    number = column.measurement.numbers(pd.Series([end], name=column.name), column.name)[0]
    return None if np.isnan(number) else float(number)


Question = tuple[Sequence[str], Sequence[str], float]

Queries = str | QueryLaw | MaskDistribution | Iterable[Question]
"""Training queries as a caller writes them; see `TableModel`."""


def law_of(queries: Queries, table: TableSchema) -> QueryLaw:
    """Returns the law over the columns that can be queried, numbered as in the model.

    A law over numbers has them in the order of the frame. The order of the model may be learned,
    and is unknown when the law is written.
    """
    names = table.names
    if isinstance(queries, str):
        check_choice("queries", queries, ("any",))
        return table_queries(len(names))
    if isinstance(queries, QueryLaw | MaskDistribution):
        law = as_query_law(queries)
        if law.num_variables != len(names):
            raise ConfigError(
                f"`queries` must be a law over the {len(names)} columns that can be queried; "
                f"it is over {law.num_variables}."
            )
        return renumbered(law, [names.index(name) for name in table.layout if name in names])
    entries = []
    for given, query, weight in _questions(queries):
        known, queried = (
            column_set(table, part, argument="queries").nonzero().flatten().tolist()
            for part in (given, query)
        )
        if both := [names[place] for place in queried if place in known]:
            raise ConfigError(
                f'`queries` must not query what is given; "{both[0]}" is both: drop it from one.'
            )
        entries.append((known, queried, weight))
    return QueryList(len(names), entries)


def check_any_order(law: QueryLaw) -> None:
    """Refuses a law that cannot be renumbered, before an order is searched for."""
    renumbered(law, range(law.num_variables)[::-1])


def is_for_any(law: QueryLaw) -> bool:
    """Returns True for the law of queries="any"."""
    return describe(law) == describe(table_queries(law.num_variables))


def _questions(queries: Any) -> list[Question]:
    """Returns the listed questions, checked."""
    try:
        return [(given, query, weight) for given, query, weight in queries]
    except (TypeError, ValueError):
        raise ConfigError(
            '`queries` must be "any", a law, or a list of (given, query, weight), such as '
            f'[(["age", "job"], "income", 1.0)]; got {queries!r}.'
        ) from None


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
