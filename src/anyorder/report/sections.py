"""Sections and pictures that the reports of all domains share; they need matplotlib."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pandas.api import types
from torch import Tensor

from anyorder.diagnostics.calibration import surprise_by_evidence
from anyorder.diagnostics.check import SEEN, Check
from anyorder.diagnostics.consistency import nats
from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.plots import NARROW, as_label, name_dates, panels
from anyorder.errors import seeded
from anyorder.lattice.query_laws import QueryLaw, describe_queries
from anyorder.report.page import Block, Grid, Page, Panels, Picture, Points, Section, Words
from anyorder.training.progress import read_metrics

REAL, DRAWN = "#2458a6", "#e0812b"
"""Blue and orange, which most colour-blind people can tell apart."""

BINS, MOST_LEVELS, FEW_LEVELS, DOTS = 24, 8, 4, 400
"""Greatest number of histogram bars, of levels in a bar chart, of named levels beside a scatter
plot, and of its dots."""

FEWEST_BINS = 6
"""Least number of histogram bars; with few rows, more would show noise."""

CUT = 0.005
"""Share of the rows at each end that a histogram leaves out: outliers would flatten it."""


def curve_figures(
    curves: Mapping[str, Sequence[tuple[float, float]]], units: str
) -> dict[str, Figure]:
    """Plots training curves: for each name, points (minutes, value)."""
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


def evidence_figure(found: Mapping[str, Estimate], units: str) -> Figure:
    """Plots the surprise of a cell by how much is given; bars of two standard errors."""
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
    """Plots the distribution of each column, of real rows and of samples."""
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
    """Plots each pair of columns: real rows, and beside them samples, on the same axes."""
    found = {}
    values = {name: _places(real[name], drawn[name]) for name in real.columns}
    for across, down in combinations(real.columns, 2):
        figure = found[across, down] = Figure(figsize=(NARROW, 2.3), layout="constrained")
        places = figure.subplots(1, 2, sharex=True, sharey=True)
        kinds = zip(places, ("rows", "samples"), (REAL, DRAWN), strict=True)
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
    """Sets few ticks for a number, the names of levels if they are few, and none otherwise."""
    levels = [] if is_number(values) else _levels(values)
    if types.is_datetime64_any_dtype(values.dtype) or len(levels) > FEW_LEVELS:
        axis.set_ticks([])
    elif levels:
        axis.set_ticks(range(len(levels)), _short(levels), fontsize=9, **options)
    else:
        axis.set_major_locator(MaxNLocator(3))
        axis.set_tick_params(labelsize=9)


def is_number(values: pd.Series) -> bool:
    """Returns whether a column is plotted as a number; dates are."""
    if types.is_bool_dtype(values.dtype):
        return False
    return types.is_numeric_dtype(values.dtype) or types.is_datetime64_any_dtype(values.dtype)


def _plain(values: pd.Series) -> Any:
    """Returns numbers without missing values; dates in days since 1970, as matplotlib has them."""
    there = values.dropna()
    if types.is_datetime64_any_dtype(there.dtype):
        first = pd.Timestamp(0, tz=there.dt.tz)
        return ((there - first) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)
    return there.to_numpy(dtype=np.float64)


def _places(real: pd.Series, drawn: pd.Series) -> tuple[Any, Any]:
    """Returns both as numbers; levels are jittered, so that dots do not hide each other."""
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
    """Returns floats with NaN for missing values, so that rows of two columns stay aligned."""
    found = pd.Series(np.nan, values.index, dtype=np.float64)
    found[values.notna()] = _plain(values)
    return found


def _levels(values: pd.Series) -> list[Any]:
    """Returns the most frequent levels."""
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
    """Returns the names of levels, cut where they are long."""
    names = (str(level) for level in levels)
    return [as_label(name if len(name) <= 12 else f"{name[:11]}…") for name in names]


PACKAGES = ("anyorder", "torch", "numpy", "pandas")

PLOTS = {
    "coverage": (
        "Share of true values inside their 50%, 80% and 90% intervals, by evidence",
        "Dots on their lines: coverage is as stated. Left of them: intervals are too narrow. Bars "
        "are two standard errors.",
    ),
    "pit": (
        "Histograms of where true values fall in their predicted distributions",
        "Probability integral transforms in ten bins of equal probability: flat is calibrated, a U "
        "is overconfident, a hill underconfident. Inside the grey band it may be chance.",
    ),
    "reliability": (
        "Accuracy of the most probable level against its stated probability",
        "On the diagonal, a stated 80% is right in eight cases of ten; below it, the model is "
        "overconfident. Bars are two standard errors.",
    ),
}
"""Alternative text and caption of the pictures of a check."""

NATS = (
    "Surprise is the negative log-likelihood in nats: -ln p for an outcome of probability p, so "
    "0.69 for the toss of a coin (a nat is 1.44 bits)."
)
"""Definition, where nats first occur."""


def level_report(
    model: Any,
    unseen: Any,
    x: Tensor,
    *,
    name: str,
    words: str,
    first: Section,
    law: QueryLaw,
    names: Sequence[str],
    options: Mapping[str, Any],
    cell: str,
    dimension: str,
    training: Path | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Page:
    """Evaluates and checks a model of text or images on test data, and returns its report.

    The rows `x` are those of the test part of `unseen`; `cell` names a variable, and `dimension`
    what bits are divided by. The first section shows samples.
    """
    bits = model.evaluate(unseen, rows=len(x), random_state=seed)
    check = model.check(unseen, rows=len(x), random_state=seed, progress=progress)
    missing = torch.zeros(x.shape, dtype=torch.bool)
    worth = surprise_by_evidence(model.model_, x, missing, generator=seeded(seed))
    facts = [(f"{name}, bits a {dimension}", str(found)) for name, found in bits.items()]
    facts.append(("weights", f"{model.model_.num_parameters:,}"))
    sections = [
        first,
        evidence_section(worth, cell),
        *calibration_sections(check),
        training_section(training, law, names, dimension=dimension),
        settings_section({**options, **asdict(model.training_settings())}),
    ]
    words = f"{words} Evaluated on the test part of {unseen.name}."
    return Page(f'The model "{name}"', words, sections, facts)


def calibration_sections(check: Check, *, seen: bool = False) -> list[Section]:
    """Returns sections on calibration and on consistency."""
    rows = f"Evaluated on {check.rows:,} rows"
    blocks: list[Block] = [
        Words(f"{rows}. {SEEN}" if seen else f"{rows} that it should not have seen in training."),
        Points(check.calibration_sentences()),
    ]
    drawn = panels(check.numbers, check.categories)
    for name, (alt, caption) in PLOTS.items():
        if name in drawn:
            blocks.append(Panels([Picture(figure, alt) for figure in drawn[name]], caption))
    found = [Section("Can its probabilities be trusted?", blocks)]
    if check.gap_sentences():
        words = Words("The same likelihood, computed in another way, should be the same number.")
        agreement = Section("Does it agree with itself?", [words, Points(check.gap_sentences())])
        found.append(agreement)
    return found


def evidence_section(
    found: Mapping[str, Estimate], cell: str, *, whole: Estimate | None = None
) -> Section:
    """Returns the section on the value of evidence."""
    first, last = (list(found.values())[place] for place in (0, -1))
    blocks: list[Block] = [
        Words(
            f"Surprise of one {cell}, with more and more of the others given. All of them together "
            f"reduce it by {nats(first.minus(last))} nats. {NATS}"
        )
    ]
    if whole is not None:
        words = f"The log-likelihood of a whole row is {nats(whole)} nats; more is better."
        blocks.append(Words(words))
    alt = "Surprise by amount of evidence: " + ", ".join(
        f"{name} given {part.value:.2f}" for name, part in found.items()
    )
    blocks.append(Picture(evidence_figure(found, f"surprise, nats a {cell}"), alt))
    return Section("What evidence is worth", blocks)


def training_section(
    training: Path | None, law: QueryLaw | None, names: Sequence[str], *, dimension: str
) -> Section:
    """Returns the section on the query law and the training curves."""
    blocks: list[Block] = [Words("It was trained for these queries:")]
    blocks.append(Points(describe_queries(law, names)))
    curves = read_curves(training)
    if curves:
        units = f"bits a {dimension}"
        pictures = [
            Picture(figure, f"Loss on {name}, {units}: from {first:.2f} to {last:.2f}")
            for name, figure in curve_figures(curves, units).items()
            for first, last in [(curves[name][0][1], curves[name][-1][1])]
        ]
        blocks.append(Panels(pictures, "Lower is better."))
    return Section("How it was trained", blocks)


def read_curves(training: Path | None) -> dict[str, list[tuple[float, float]]]:
    """Reads training and held-out loss as (minutes, bits); of an ensemble, its first member's."""
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
    """Returns the section on settings and package versions."""
    plain = [
        (name, value if isinstance(value, str) else json.dumps(value, default=str))
        for name, value in settings.items()
        if value is not None
    ]
    versions = [(name, metadata.version(name)) for name in PACKAGES]
    versions.append(("python", platform.python_version()))
    return Section(
        "Settings and versions",
        [Grid(("setting", "value"), plain), Grid(("package", "version"), versions)],
    )
