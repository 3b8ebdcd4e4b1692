"""What is told of distributions: plain values, in the terms of their columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyorder.cli.console import plain
from anyorder.tables.categories import CategoryColumn
from anyorder.tables.columns import Column, NumberColumn
from anyorder.tables.curves import Ask, Curve, FloatArray, Found
from anyorder.tables.numbers import PER_SECOND
from anyorder.tables.schema import TableSchema

SHARES = np.array([0.05, 0.5, 0.95])
"""The ends of the interval that is told, and the median between them."""

RARE = 5e-4
"""Repeated values that are less probable are not listed."""

MOST_LEVELS = 200
"""So many levels of a category are listed, the most probable."""

DIGITS = 6
"""Significant digits of numbers on a wire: more are noise, and cost time."""


def summaries(
    table: TableSchema, asks: Sequence[Ask], found: Sequence[Sequence[Found]]
) -> list[dict[str, Any]]:
    """What is told about each column of each question, by the names of columns.

    The answers about one column are put into words together, because a call of pandas for each
    would take longer than the network.
    """
    by_column: dict[int, list[tuple[int, Found]]] = {}
    for number, (ask, answers) in enumerate(zip(asks, found, strict=True)):
        for place, answer in zip(ask.columns, answers, strict=True):
            by_column.setdefault(place, []).append((number, answer))
    told: list[dict[int, Any]] = [{} for _ in asks]
    for place, pairs in by_column.items():
        lines = _told(table.query[place], [answer for _, answer in pairs])
        for (number, _), line in zip(pairs, lines, strict=True):
            told[number][place] = line
    return [
        {table.query[place].name: lines[place] for place in ask.columns}
        for ask, lines in zip(asks, told, strict=True)
    ]


def positions(column: NumberColumn, numbers: FloatArray) -> FloatArray:
    """Where numbers lie on the axis of a column: in its unit; times in seconds since 1970."""
    measured = column.measurement
    return numbers + measured.origin / PER_SECOND.get(measured.unit, 1)


def short(value: float) -> float:
    """A number with few digits."""
    return float(f"{value:.{DIGITS}g}")


def _told(column: Column, answers: Sequence[Any]) -> list[dict[str, Any]]:
    if isinstance(column, CategoryColumn):
        return [_levels(column, answer) for answer in answers]
    assert isinstance(column, NumberColumn)
    return _numbers(column, answers)


def _levels(column: CategoryColumn, probabilities: FloatArray) -> dict[str, Any]:
    own = probabilities[: len(column.levels)]
    order = np.arange(len(own)) if len(own) <= MOST_LEVELS else np.argsort(-own)[:MOST_LEVELS]
    likely = own[own > 0]
    return {
        "kind": column.kind,
        "levels": [column.levels[place] for place in order.tolist()],
        "probabilities": [short(own[place]) for place in order.tolist()],
        "mode": column.levels[int(own.argmax())],
        "entropy": short(float(-(likely * np.log(likely)).sum())),
    }


def _numbers(column: NumberColumn, found: Sequence[Curve]) -> list[dict[str, Any]]:
    count = len(found)
    quantiles = np.concatenate([curve.quantiles(SHARES) for curve in found])
    ends = column.decode(quantiles).tolist()
    places = positions(column, column.numbers(quantiles)).reshape(count, -1)
    codes = np.stack([curve.codes for curve in found])
    knots = column.numbers(codes.ravel()).reshape(count, -1)
    middles = column.numbers(((codes[:, 1:] + codes[:, :-1]) / 2).ravel()).reshape(count, -1)
    means = np.array([_mean(column, *pair) for pair in zip(found, middles, strict=True)])
    return [
        {
            "kind": column.kind,
            "mean": _rounded(mean),
            "median": _rounded(median),
            "interval": [_rounded(low), _rounded(high)],
            "places": [short(place) for place in at],
            "density": _density(column, curve, edges, inside),
            "repeated": _repeated(column, curve),
            "entropy": short(curve.entropy()),
        }
        for curve, mean, (low, median, high), at, edges, inside in zip(
            found,
            column.unrounded(means).tolist(),
            (ends[3 * number : 3 * number + 3] for number in range(count)),
            np.column_stack([places, positions(column, means)]).tolist(),
            knots,
            middles,
            strict=True,
        )
    ]


def _mean(column: NumberColumn, curve: Curve, middles: FloatArray) -> float:
    repeated = curve.atoms @ np.array(column.atom_values) if len(curve.atoms) else 0.0
    total = curve.reached[-1] + curve.atoms.sum()
    return float((np.diff(curve.reached) @ middles + repeated) / total)


def _density(
    column: NumberColumn, curve: Curve, knots: FloatArray, middles: FloatArray
) -> dict[str, Any]:
    """The density between knots, in the unit of the column, without that of repeated values."""
    widths = np.diff(knots)
    there = widths > 0  # far out, where the map from codes is level, knots can fall together
    heights = np.diff(curve.reached)[there] / widths[there]
    return {
        "values": [short(value) for value in positions(column, middles[there]).tolist()],
        "heights": [short(height) for height in heights.tolist()],
        "share": short(float(curve.reached[-1])),
    }


def _repeated(column: NumberColumn, curve: Curve) -> dict[str, Any]:
    likely = np.flatnonzero(curve.atoms >= RARE)
    values = positions(column, np.array(column.atom_values)[likely])
    return {
        "values": [short(value) for value in values.tolist()],
        "probabilities": [short(mass) for mass in curve.atoms[likely].tolist()],
    }


def _rounded(value: Any) -> Any:
    """A value for JSON; numbers with few digits."""
    found = plain(value)
    return short(found) if isinstance(found, float) else found
