"""The pictures of a report; they need matplotlib.

Sections that the reports of all domains share.
"""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pandas.api import types
from torch import Tensor

from anyorder.diagnostics.calibration import surprise_by_evidence
from anyorder.diagnostics.check import SEEN, Check
from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.gaps import nats
from anyorder.diagnostics.plots import NARROW, as_label, name_dates, panels
from anyorder.lattice.query_laws import QueryLaw
from anyorder.lattice.query_mixtures import describe_queries
from anyorder.lattice.random_sets import seeded
from anyorder.report.page import Block, Grid, Panels, Picture, Points, Section, Words
from anyorder.training.progress import read_metrics

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


PACKAGES = ("anyorder", "torch", "numpy", "pandas")

PLOTS = {
    "coverage": (
        "Share of true values inside their 50%, 80% and 90% intervals, by evidence",
        "Dots on their lines: intervals hold what they say. Left of them: too narrow. Bars are two "
        "standard errors.",
    ),
    "pit": (
        "Histograms of where true values fall in their predicted distributions",
        "Where true values fell, in ten parts that were called equally probable: flat is right, a "
        "U is overconfident, a hill too cautious. In the grey band it may be chance.",
    ),
    "reliability": (
        "How often the most probable level is right, against how probable it was said to be",
        "On the diagonal, a stated 80% is right in eight cases of ten; below it, the model is too "
        "sure. Bars are two standard errors.",
    ),
}
"""What is to be seen on the pictures of a check, and what it means."""


NATS = (
    "A nat is the unit of surprise: what was given the probability p surprises by -ln p nats, so "
    "the toss of a coin by 0.69 (a nat is 1.44 bits)."
)
"""Said once, where nats are first told of."""


class Asked(NamedTuple):
    """What a model answered about what it has not seen: numbers, and sections."""

    facts: list[tuple[str, str]]
    sections: list[Section]


def asked_sections(
    model: Any,
    unseen: Any,
    x: Tensor,
    *,
    cell: str,
    dimension: str,
    seed: int,
    progress: bool,
) -> Asked:
    """Asks a model of text or images what all reports tell of them.

    Args:
        model: A fitted estimator with `evaluate` and `check`.
        unseen: A text or images; their test part is read.
        x: The rows of it that are asked about.
        cell: What a variable is called.
        dimension: What bits are counted by.
        seed: Of the questions.
        progress: Whether a line shows how the check goes.
    """
    bits = model.evaluate(unseen, rows=len(x), random_state=seed)
    check = model.check(unseen, rows=len(x), random_state=seed, progress=progress)
    missing = torch.zeros(x.shape, dtype=torch.bool)
    worth = surprise_by_evidence(model.model_, x, missing, generator=seeded(seed))
    facts = [(f"{name}, bits a {dimension}", str(found)) for name, found in bits.items()]
    facts.append(("weights", f"{model.model_.num_parameters:,}"))
    return Asked(facts, [worth_section(worth, cell), *trust_sections(check)])


def trust_sections(check: Check, *, seen: bool = False) -> list[Section]:
    """Whether probabilities hold, and how far the model agrees with itself.

    Args:
        check: What was found.
        seen: Whether it was trained on the rows that it was asked about.
    """
    asked = f"Asked about {check.rows:,} rows"
    blocks: list[Block] = [
        Words(f"{asked}. {SEEN}" if seen else f"{asked} that it should not have seen in training."),
        Points(check.calibration_sentences()),
    ]
    drawn = panels(check.numbers, check.categories)
    for name, (alt, caption) in PLOTS.items():
        if name in drawn:
            blocks.append(Panels([Picture(figure, alt) for figure in drawn[name]], caption))
    found = [Section("Can its probabilities be trusted?", blocks)]
    if check.gap_sentences():
        words = Words("The same likelihood, asked for in another way, should be the same number.")
        agreement = Section("Does it agree with itself?", [words, Points(check.gap_sentences())])
        found.append(agreement)
    return found


def worth_section(
    found: Mapping[str, Estimate], cell: str, *, whole: Estimate | None = None
) -> Section:
    """What evidence is worth.

    Args:
        found: The surprise of a cell by how much is given.
        cell: What a cell is called.
        whole: The log-likelihood of a whole row, if it is told nowhere else.
    """
    first, last = (list(found.values())[place] for place in (0, -1))
    blocks: list[Block] = [
        Words(
            f"How surprising one {cell} is, with more and more of the others given. All of them "
            f"together tell {nats(first.minus(last))} nats about it. {NATS}"
        )
    ]
    if whole is not None:
        words = f"The log-likelihood of a whole row is {nats(whole)} nats; more is better."
        blocks.append(Words(words))
    alt = "Surprise by amount of evidence: " + ", ".join(
        f"{name} given {part.value:.2f}" for name, part in found.items()
    )
    blocks.append(Picture(worth_figure(found, f"surprise, nats a {cell}"), alt))
    return Section("What evidence is worth", blocks)


def training_section(
    training: Path | None, law: QueryLaw | None, names: Sequence[str], *, dimension: str
) -> Section:
    """What it was trained for, and how that went.

    Args:
        training: The folder of the training, if it is there.
        law: The questions.
        names: Of the variables.
        dimension: What bits are counted by.
    """
    blocks: list[Block] = [Words("It was trained for these questions:")]
    blocks.append(Points(describe_queries(law, names)))
    curves = read_curves(training)
    if curves:
        units = f"bits a {dimension}"
        pictures = [
            Picture(figure, f"Loss on {name}, {units}: {_ends(curves[name])}")
            for name, figure in curve_figures(curves, units).items()
        ]
        blocks.append(Panels(pictures, "Lower is better."))
    return Section("How it was trained", blocks)


def _ends(points: Sequence[tuple[float, float]]) -> str:
    return f"from {points[0][1]:.2f} to {points[-1][1]:.2f}"


def read_curves(training: Path | None) -> dict[str, list[tuple[float, float]]]:
    """The loss and the held-out loss of a training as (minutes, bits); of members, the first's."""
    if training is None:
        return {}
    files = sorted(training.rglob("metrics.jsonl"))
    curves: dict[str, list[tuple[float, float]]] = {}
    titles = {"loss": "training rows", "held_out": "held-out rows"}
    units = {"loss": 1 / math.log(2), "held_out": 1.0}  # as `fit` writes them: nats and bits
    for values in read_metrics(files[0]) if files else ():
        for key, title in titles.items():
            if key in values and "seconds" in values:
                point = (values["seconds"] / 60, values[key] * units[key])
                curves.setdefault(title, []).append(point)
    return {title: points for title, points in curves.items() if len(points) > 1}


def settings_section(settings: Mapping[str, Any]) -> Section:
    """All that was set, and the versions that wrote this."""
    plain = [(name, _words(value)) for name, value in settings.items() if value is not None]
    versions = [(name, metadata.version(name)) for name in PACKAGES]
    versions.append(("python", platform.python_version()))
    return Section(
        "Settings and versions",
        [Grid(("setting", "value"), plain), Grid(("package", "version"), versions)],
    )


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
