"""What requests say is known, as codes: all requests of a batch together.

`read_evidence` of the library reads anything and takes a millisecond a request. What most requests
hold, numbers within the range of training and levels that are there, is read here column by column
for all requests of a batch at once; all else is left to the library, with its sentences.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from anyorder.data.categories import CategoryColumn
from anyorder.data.columns import Column, NumberColumn
from anyorder.data.table import TableSchema
from anyorder.errors import AnyOrderError
from anyorder.estimators.table_questions import Evidence, read_evidence

Given = Mapping[str, Any]

Read = tuple[Evidence, list[str]]
"""What is known, and reasons to doubt the answer."""


def read_many(table: TableSchema, records: Sequence[Given]) -> list[Read | AnyOrderError]:
    """The evidence of each record, or what is wrong with it."""
    plain = [place for place, record in enumerate(records) if _is_plain(table, record)]
    found: list[Read | AnyOrderError | None] = [None] * len(records)
    for place, evidence in zip(plain, _read_plain(table, [records[i] for i in plain]), strict=True):
        found[place] = evidence, []
    return [
        read_one(table, record) if read is None else read
        for record, read in zip(records, found, strict=True)
    ]


def read_one(table: TableSchema, record: Given) -> Read | AnyOrderError:
    """The evidence of one record, by the library's own reader."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            evidence = read_evidence(table, record)
        except AnyOrderError as error:
            return error
    return evidence, [str(warning.message) for warning in caught]


def _is_plain(table: TableSchema, record: Given) -> bool:
    if table.context or table.missing_values:
        return False
    columns = {column.name: column for column in table.query}
    return all(
        name in columns and (value is None or _is_plain_value(columns[name], value))
        for name, value in record.items()
    )


def _is_plain_value(column: Column, value: Any) -> bool:
    """Whether nothing has to be converted, and nothing is to be said about it."""
    if isinstance(column, CategoryColumn):
        return any(level == value and type(level) is type(value) for level in column.levels)
    if not isinstance(column, NumberColumn) or column.kind != "number":
        return False
    if type(value) not in (int, float) or column.measurement.origin:
        return False
    low, high = column.seen
    return low <= value <= high and (not column.is_whole or value == int(value))


def _read_plain(table: TableSchema, records: Sequence[Given]) -> list[Evidence]:
    x = torch.zeros(len(records), len(table.schema))
    known = torch.zeros(len(records), len(table.query), dtype=torch.bool)
    for place, column in enumerate(table.query):
        rows = [row for row, record in enumerate(records) if record.get(column.name) is not None]
        if not rows:
            continue
        values = [records[row][column.name] for row in rows]
        x[rows, place] = torch.from_numpy(_codes(column, values)).float()
        known[rows, place] = True
    return [Evidence(x[row : row + 1], known[row], {}) for row in range(len(records))]


def _codes(column: Column, values: Sequence[Any]) -> np.ndarray[Any, Any]:
    if isinstance(column, CategoryColumn):
        return np.array([column.levels.index(value) for value in values], dtype=np.float64)
    return column.encode(pd.Series(values, dtype=np.float64, name=column.name))[0]
