"""The pictures of a report; they need matplotlib."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pandas.api import types

from anyorder.diagnostics.plots import NARROW
from anyorder.estimators.conditional import as_label, name_dates
from anyorder.evaluation import Estimate

REAL, DRAWN = "#2458a6", "#e0812b"
"""Blue and orange: told apart by most people who see few colours."""

BINS, MOST_LEVELS, FEW_LEVELS, DOTS = 24, 8, 4, 400
"""Bars of a number, levels of a category that are shown, and named beside a cloud, and its dots."""

FEWEST_BINS = 6
"""Of few rows: in more bars, chance would look like structure."""

CUT = 0.005
"""The share of the rows to each side that a histogram leaves out: outliers would flatten it."""


def curve_figures(
    curves: Mapping[str, Sequence[tuple[float, float]]], units: str
) -> dict[str, Figure]:
    """How a training went: for each name, (minutes, value)."""
    found = {}
    for name, points in curves.items():
        figure = found[name] = Figure(figsize=(NARROW, 2.6), layout="constrained")
        axes = figure.subplots()
        minutes, values = zip(*points, strict=True)
        axes.plot(minutes, values, color=REAL, linewidth=1.2)
        # The first steps are far off; what matters is where it went.
        top = float(np.quantile(values, 0.97)) if len(values) > 30 else max(values)
        low = min(values)
        axes.set_ylim(low - 0.05 * (top - low) - 1e-9, top + 0.05 * (top - low) + 1e-9)
        axes.set(title=name, xlabel="minutes", ylabel=units)
    return found


def worth_figure(found: Mapping[str, Estimate], units: str) -> Figure:
    """How surprising a cell is, by how much is given; bars of two standard errors."""
    # Amounts stand above each other, where there is room for their names on a phone too.
    figure = Figure(figsize=(NARROW, 0.4 * len(found) + 0.9), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(
        [part.value for part in found.values()],
        range(len(found)),
        xerr=[2 * part.se for part in found.values()],
        fmt="o-",
        color=REAL,
        capsize=3,
    )
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set(ylabel="given of the rest", xlabel=units)
    return figure


def column_figures(real: pd.DataFrame, drawn: pd.DataFrame) -> dict[str, Figure]:
    """The distribution of each column, of rows and of draws."""
    found = {}
    for name in real.columns:
        figure = found[name] = Figure(figsize=(2.8, 2.1), layout="constrained")
        axes = figure.subplots()
        if is_number(real[name]):
            _histograms(axes, _plain(real[name]), _plain(drawn[name]))
            if types.is_datetime64_any_dtype(real[name].dtype):
                name_dates(axes, most=4)
                axes.tick_params(axis="x", labelsize=9)
        else:
            _bars(axes, real[name], drawn[name])
        axes.set_title(as_label(name), fontsize=11)
        axes.set_yticks([])
    return found


def pair_figures(real: pd.DataFrame, drawn: pd.DataFrame) -> dict[tuple[str, str], Figure]:
    """Clouds of each pair of columns: rows, and beside them draws, on the same axes."""
    found = {}
    values = {name: _places(real[name], drawn[name]) for name in real.columns}
    for across, down in combinations(real.columns, 2):
        figure = found[across, down] = Figure(figsize=(NARROW, 2.3), layout="constrained")
        places = figure.subplots(1, 2, sharex=True, sharey=True)
        kinds = zip(places, ("rows", "draws"), (REAL, DRAWN), strict=True)
        for part, (axes, title, colour) in enumerate(kinds):
            axes.scatter(
                values[across][part][:DOTS],
                values[down][part][:DOTS],
                s=7,
                alpha=0.45,
                linewidths=0,
                color=colour,
            )
            axes.set_title(title, fontsize=11, color=colour)
            for name, limits in ((across, axes.set_xlim), (down, axes.set_ylim)):
                limits(*_limits(np.concatenate(values[name])))
            _ticks(axes.xaxis, real[across], rotation=25, ha="right")
        _ticks(places[0].yaxis, real[down])
        figure.supxlabel(as_label(across), fontsize=10)
        figure.supylabel(as_label(down), fontsize=10)
    return found


def _ticks(axis: Any, values: pd.Series, **options: Any) -> None:
    """Few of a number, the names of levels if they are few, and none otherwise."""
    levels = [] if is_number(values) else _levels(values)
    if types.is_datetime64_any_dtype(values.dtype) or len(levels) > FEW_LEVELS:
        axis.set_ticks([])
    elif levels:
        axis.set_ticks(range(len(levels)), _short(levels), fontsize=9, **options)
    else:
        axis.set_major_locator(MaxNLocator(3))
        axis.set_tick_params(labelsize=9)


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
    bins = int(np.clip(2 * np.isfinite(real).sum() ** (1 / 3), FEWEST_BINS, BINS))
    for values, colour in ((real, REAL), (drawn, DRAWN)):
        inside = values[np.isfinite(values)]
        counts, edges = np.histogram(inside, bins=bins, range=(low, high))
        heights = counts / max(len(inside), 1)
        axes.stairs(heights, edges, color=colour, fill=colour == REAL, alpha=0.45)
        if colour == DRAWN:
            axes.stairs(heights, edges, color=colour, linewidth=1.4)


def _bars(axes: Any, real: pd.Series, drawn: pd.Series) -> None:
    levels = _levels(real)
    for place, (values, colour) in enumerate(((real, REAL), (drawn, DRAWN))):
        shares = values.dropna().value_counts(normalize=True)
        heights = [float(shares.get(level, 0.0)) for level in levels]
        across = [i + 0.4 * (place - 0.5) for i in range(len(levels))]
        axes.bar(across, heights, width=0.38, color=colour, alpha=0.6)
    axes.set_xticks(range(len(levels)), _short(levels), fontsize=9, rotation=30, ha="right")


def _short(levels: Sequence[Any]) -> list[str]:
    """The names of levels, cut where they are long."""
    names = (str(level) for level in levels)
    return [as_label(name if len(name) <= 12 else f"{name[:11]}…") for name in names]
