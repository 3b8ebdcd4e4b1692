"""Figures of calibration; they need matplotlib."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from anyorder.diagnostics.calibration import BINS, LEVELS, CategoryCalibration, NumberCalibration

ACROSS = 3
"""Panels in a row of a figure."""

NARROW = 3.9
"""Width in inches of a figure whose text stays readable on a phone."""


def figures(
    numbers: Mapping[str, NumberCalibration], categories: Mapping[str, CategoryCalibration]
) -> dict[str, Any]:
    """Returns the figures "pit", "coverage" and "reliability" for which there is data."""
    found = {}
    if numbers:
        found["pit"] = pit_figure(numbers)
        found["coverage"] = coverage_figure(numbers)
    if categories:
        found["reliability"] = reliability_figure(categories)
    return found


def panels(
    numbers: Mapping[str, NumberCalibration], categories: Mapping[str, CategoryCalibration]
) -> dict[str, list[Any]]:
    """Returns the contents of `figures` as single panels, which a page can arrange."""
    found: dict[str, list[Any]] = {}
    if numbers:
        found["coverage"] = [coverage_figure(numbers)]
        found["pit"] = [pit_figure({given: part}) for given, part in numbers.items()]
        top = max(figure.axes[0].get_ylim()[1] for figure in found["pit"])
        for figure in found["pit"]:
            figure.axes[0].set_ylim(0, top)
    if categories:
        found["reliability"] = [reliability_figure({g: part}) for g, part in categories.items()]
    return found


def pit_figure(numbers: Mapping[str, NumberCalibration]) -> Figure:
    """Plots a histogram of PITs for each amount of evidence: a calibrated model's is flat."""
    figure, places = _panels(len(numbers))
    for axes, (given, part) in zip(places, numbers.items(), strict=True):
        # Two standard errors of the count of a bin under a uniform PIT.
        share, noise = 1 / BINS, 2 * ((BINS - 1) / len(part.pit)) ** 0.5 / BINS
        axes.axhspan(share - noise, share + noise, color="0.85", zorder=0)
        middles = [(place + 0.5) * share for place in range(BINS)]
        axes.bar(middles, part.histogram().tolist(), width=0.8 * share)
        axes.axhline(share, color="black", linewidth=0.8)
        axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], nbins=5))  # whole percents
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set(title=f"{given} given", xlabel="predicted probability of less")
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("share of values")
    return figure


def coverage_figure(numbers: Mapping[str, NumberCalibration]) -> Figure:
    """Plots the coverage of central intervals for each amount of evidence."""
    # Amounts are on the vertical axis, where their names fit on a phone too.
    figure = Figure(figsize=(NARROW, 0.5 * len(numbers) + 1.3), layout="constrained")
    axes = figure.subplots()
    for number, level in enumerate(LEVELS):
        found = [part.coverage(level) for part in numbers.values()]
        axes.errorbar(
            [estimate.value for estimate in found],
            [place + 0.12 * (number - 1) for place in range(len(found))],
            xerr=[2 * estimate.se for estimate in found],
            fmt="o",
            color=f"C{number}",
            label=f"{level:.0%} intervals",
        )
        axes.axvline(level, color=f"C{number}", linewidth=0.8)
    axes.set_yticks(range(len(numbers)), list(numbers))
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(ylabel="given of the row", xlabel="share of values inside", xlim=(0, 1.02))
    options = {"ncols": len(LEVELS), "fontsize": 9, "columnspacing": 0.8, "handletextpad": 0.1}
    figure.legend(loc="outside upper center", frameon=False, **options)
    return figure


def reliability_figure(categories: Mapping[str, CategoryCalibration]) -> Figure:
    """Plots the accuracy of the most probable level against its predicted probability."""
    figure, places = _panels(len(categories))
    for axes, (given, part) in zip(places, categories.items(), strict=True):
        bins = part.reliability()
        axes.plot([0, 1], [0, 1], color="black", linewidth=0.8)
        axes.errorbar(
            [b.confidence for b in bins],
            [b.accuracy for b in bins],
            yerr=[2 * b.se for b in bins],
            fmt="o",
            markersize=4,
        )
        axes.set(title=f"{given} given", xlabel="said to be right", xlim=(0, 1.02), ylim=(0, 1.02))
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("is right")
    return figure


def _panels(count: int) -> tuple[Figure, list[Any]]:
    """Returns a figure with `count` axes, at most `ACROSS` in a row so that it fits on a phone."""
    across = min(ACROSS, count)
    down = -(-count // across)
    figure = Figure(figsize=(2.6 * across, 2.6 * down), layout="constrained")
    places = figure.subplots(down, across, sharey=True, squeeze=False).flatten()
    for axes in places[count:]:
        axes.set_axis_off()
    return figure, list(places[:count])


def name_dates(axes: Any, *, most: int = 7) -> None:
    """Names the days since 1970 on an axis as dates: few and short, so that they stand apart."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    ticks = AutoDateLocator(minticks=most // 2, maxticks=most)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(ticks))  # type: ignore[no-untyped-call]


def as_label(text: object) -> str:
    r"""A text as matplotlib draws it to the letter: what stands between dollars is no formula.

    Example:
        >>> as_label("$1-$5")
        '\\$1-\\$5'
    """
    return str(text).replace("$", r"\$")
