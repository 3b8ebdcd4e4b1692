"""Reasons to doubt an answer of a table model, which is given all the same, with a warning."""

import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from anyorder.data.columns import NumberColumn
from anyorder.data.table import TableSchema
from anyorder.errors import AnyOrderWarning
from anyorder.protocols import RemoveGreatest
from anyorder.query_laws import QueryLaw


def doubt_values(table: TableSchema, values: Mapping[str, Any]) -> None:
    """Warns of numbers that are given and lie where training had none."""
    for name, value in values.items():
        column = table[name]
        if not isinstance(column, NumberColumn):
            continue
        number = float(column.measurement.numbers(pd.Series([value]), name)[0])
        if np.isnan(number):
            continue
        low, high = (str(end).removesuffix(".0").removesuffix(" 00:00:00") for end in column.span)
        if not column.seen[0] <= number <= column.seen[1]:
            _warn(f'"{name}" was {low} to {high} in training: the answer given {value} is a guess.')
        elif column.is_whole and not number.is_integer():
            _warn(f'"{name}" was whole in training: the answer given {value} is a guess.')


def doubt_question(law: QueryLaw, protocol: object, query: Tensor, given: Tensor) -> None:
    """Warns of a question whose conditionals are none of those that a list of questions trained.

    Args:
        law: What the model was trained for; only lists of questions leave others out.
        protocol: How questions are taken apart.
        query: What is asked. Shape ``(vars,)``.
        given: What is known. Shape ``(vars,)``.
    """
    if law.listed is None or not isinstance(protocol, RemoveGreatest):
        return
    listed, weights = law.listed
    asked, known = listed.query[weights > 0], listed.given[weights > 0]
    position = protocol.position
    for target in query.nonzero().flatten().tolist():
        before = position < position[target]
        edge = given | (query & before)
        trained = asked[:, target] & ((known | (asked & before)) == edge).all(dim=1)
        if not trained.any():
            _warn("The model was trained for other questions, `queries`: this answer is a guess.")
            return


def _warn(sentence: str) -> None:
    """Warns at the line that called the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("anyorder."):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, AnyOrderWarning, stacklevel=level)
