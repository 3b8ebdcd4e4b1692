"""The pictures of a report; they need matplotlib."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from pandas.api import types

from anyorder.estimators.conditional import as_label
from anyorder.evaluation import Estimate

REAL, DRAWN = "#2458a6", "#e0812b"
"""Blue and orange: told apart by most people who see few colours."""

BINS, MOST_LEVELS, DOTS = 24, 8, 400
"""Bars of a number, levels of a category that are named, dots of a cloud."""

CUT = 0.005
"""The share of the rows to each side that a histogram leaves out: outliers would flatten it."""


def curve_figure(curves: Mapping[str, Sequence[tuple[float, float]]], units: str) -> Figure:
    """How a training went: for each name, (minutes, value)."""
    figure = Figure(figsize=(3.6 * len(curves), 2.8), layout="constrained")
    places = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (name, points) in zip(places, curves.items(), strict=True):
        minutes, values = zip(*points, strict=True)
        axes.plot(minutes, values, color=REAL, linewidth=1.2)
        # The first steps are far off; what matters is where it went.
        top = float(np.quantile(values, 0.97)) if len(values) > 30 else max(values)
        low = min(values)
        axes.set_ylim(low - 0.05 * (top - low) - 1e-9, top + 0.05 * (top - low) + 1e-9)
        axes.set(title=name, xlabel="minutes")
    places[0].set_ylabel(units)
    return figure


def worth_figure(found: Mapping[str, Estimate], units: str) -> Figure:
    """How surprising a cell is, by how much is given; bars of two standard errors."""
    figure = Figure(figsize=(5.5, 3), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(
        range(len(found)),
        [part.value for part in found.values()],
        yerr=[2 * part.se for part in found.values()],
        fmt="o-",
        color=REAL,
        capsize=3,
    )
    axes.set_xticks(range(len(found)), list(found))
    axes.set(xlabel="given of the other cells", ylabel=units)
    return figure


def columns_figure(real: pd.DataFrame, drawn: pd.DataFrame) -> Figure:
    """The distribution of each column, of rows and of draws."""
    across = min(3, len(real.columns))
    down = -(-len(real.columns) // across)
    figure = Figure(figsize=(3.2 * across, 2.1 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).flatten()
    for axes in places[len(real.columns) :]:
        axes.set_axis_off()
    for axes, name in zip(places, real.columns, strict=False):
        if is_number(real[name]):
            _histograms(axes, _plain(real[name]), _plain(drawn[name]))
            if types.is_datetime64_any_dtype(real[name].dtype):
                date_axis(axes)
        else:
            _bars(axes, real[name], drawn[name])
        axes.set_title(as_label(name), fontsize=10)
        axes.set_yticks([])
    places[0].legend(fontsize=8)
    return figure


def date_axis(axes: Any) -> None:
    """Names the days since 1970 on an axis as dates: few, so that they stand apart."""
    ticks = AutoDateLocator(minticks=2, maxticks=4)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(ticks))  # type: ignore[no-untyped-call]
    axes.tick_params(axis="x", labelsize=8)


def pairs_figure(real: pd.DataFrame, drawn: pd.DataFrame) -> Figure:
    """Clouds of pairs of columns: rows below the diagonal, draws above it, on the same axes."""
    names = list(real.columns)
    figure = Figure(figsize=(2.1 * len(names), 2.1 * len(names)), layout="constrained")
    places = figure.subplots(len(names), len(names), squeeze=False)
    values = {name: _places(real[name], drawn[name]) for name in names}
    for i, down in enumerate(names):
        for j, across in enumerate(names):
            axes, part = places[i][j], 0 if i > j else 1
            axes.set_xticks([])
            axes.set_yticks([])
            if i == 0:
                axes.set_title(as_label(across), fontsize=9)
            if j == 0:
                axes.set_ylabel(as_label(down), fontsize=9)
            if i == j:
                _histograms(axes, *values[down])
                continue
            for name, limits in ((across, axes.set_xlim), (down, axes.set_ylim)):
                limits(*_limits(np.concatenate(values[name])))
            axes.scatter(
                values[across][part][:DOTS],
                values[down][part][:DOTS],
                s=5,
                alpha=0.45,
                linewidths=0,
                color=(REAL, DRAWN)[part],
            )
    return figure


def is_number(values: pd.Series) -> bool:
    """Whether a column is drawn as a number; dates are."""
    if types.is_bool_dtype(values.dtype):
        return False
    return types.is_numeric_dtype(values.dtype) or types.is_datetime64_any_dtype(values.dtype)


def _plain(values: pd.Series) -> Any:
    """Numbers without gaps; dates in days since 1970, as matplotlib counts them."""
    there = values.dropna()
    if types.is_datetime64_any_dtype(there.dtype):
        first = pd.Timestamp(0, tz=there.dt.tz)
        return ((there - first) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)
    return there.to_numpy(dtype=np.float64)


def _places(real: pd.Series, drawn: pd.Series) -> tuple[Any, Any]:
    """Both as numbers; levels are spread a little, so that dots do not hide each other."""
    if is_number(real):
        return tuple(part.to_numpy() for part in (_numbers(real), _numbers(drawn)))
    levels = {level: place for place, level in enumerate(_levels(real))}
    found = []
    for seed, part in enumerate((real, drawn)):
        codes = part.map(lambda level: levels.get(level, len(levels))).astype(np.float64)
        spread = np.random.default_rng(seed).uniform(-0.25, 0.25, len(codes))
        found.append(codes.to_numpy() + spread)
    return found[0], found[1]


def _numbers(values: pd.Series) -> pd.Series:
    """As floats, gaps as NaN: the rows of two columns belong together."""
    found = pd.Series(np.nan, values.index, dtype=np.float64)
    found[values.notna()] = _plain(values)
    return found


def _levels(values: pd.Series) -> list[Any]:
    """The most frequent ones."""
    return list(values.dropna().value_counts().index[:MOST_LEVELS])


def _limits(values: Any) -> tuple[float, float]:
    there = values[np.isfinite(values)]
    low, high = np.quantile(there, [CUT, 1 - CUT]) if len(there) else (0.0, 1.0)
    room = 0.04 * (high - low) or 0.5
    return float(low - room), float(high + room)


def _histograms(axes: Any, real: Any, drawn: Any) -> None:
    low, high = _limits(real)
    for values, colour, label in ((real, REAL, "rows"), (drawn, DRAWN, "draws")):
        inside = values[np.isfinite(values)]
        counts, edges = np.histogram(inside, bins=BINS, range=(low, high))
        heights = counts / max(len(inside), 1)
        axes.stairs(heights, edges, color=colour, fill=label == "rows", alpha=0.45, label=label)
        if label == "draws":
            axes.stairs(heights, edges, color=colour, linewidth=1.4)


def _bars(axes: Any, real: pd.Series, drawn: pd.Series) -> None:
    levels = _levels(real)
    for place, (values, colour, label) in enumerate(
        ((real, REAL, "rows"), (drawn, DRAWN, "draws"))
    ):
        shares = values.dropna().value_counts(normalize=True)
        heights = [float(shares.get(level, 0.0)) for level in levels]
        across = [i + 0.4 * (place - 0.5) for i in range(len(levels))]
        axes.bar(across, heights, width=0.38, color=colour, alpha=0.6, label=label)
    short = [str(level) if len(str(level)) <= 12 else f"{str(level)[:11]}…" for level in levels]
    short = [as_label(level) for level in short]
    axes.set_xticks(range(len(levels)), short, fontsize=7, rotation=30, ha="right")
