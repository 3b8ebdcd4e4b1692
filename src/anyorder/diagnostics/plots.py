"""Pictures of calibration; they need matplotlib."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from anyorder.diagnostics.calibration import (
    BINS,
    LEVELS,
    CategoryCalibration,
    NumberCalibration,
)


def figures(
    numbers: Mapping[str, NumberCalibration], categories: Mapping[str, CategoryCalibration]
) -> dict[str, Any]:
    """The figures "pit", "coverage" and "reliability", those for which there is data."""
    found = {}
    if numbers:
        found["pit"] = pit_figure(numbers)
        found["coverage"] = coverage_figure(numbers)
    if categories:
        found["reliability"] = reliability_figure(categories)
    return found


def pit_figure(numbers: Mapping[str, NumberCalibration]) -> Figure:
    """A histogram of PITs for each amount of evidence: flat is calibrated."""
    figure = Figure(figsize=(2.6 * len(numbers), 2.8), layout="constrained")
    places = figure.subplots(1, len(numbers), sharey=True, squeeze=False)[0]
    for axes, (given, part) in zip(places, numbers.items(), strict=True):
        middles = [(place + 0.5) / BINS for place in range(BINS)]
        axes.bar(middles, (part.histogram() * BINS).tolist(), width=1 / BINS, edgecolor="white")
        # Two standard errors of the count of a bin, if each value is as likely in each.
        noise = 2 * ((BINS - 1) / len(part.pit)) ** 0.5
        axes.axhspan(1 - noise, 1 + noise, color="black", alpha=0.12)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set(title=f"{given} given", xlabel="probability of less")
    places[0].set_ylabel("share, times 10")
    return figure


def coverage_figure(numbers: Mapping[str, NumberCalibration]) -> Figure:
    """How many values lie in central intervals, for each amount of evidence."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for number, level in enumerate(LEVELS):
        found = [part.coverage(level) for part in numbers.values()]
        axes.errorbar(
            [place + 0.06 * (number - 1) for place in range(len(found))],
            [estimate.value for estimate in found],
            yerr=[2 * estimate.se for estimate in found],
            fmt="o",
            color=f"C{number}",
            label=f"{level:.0%} intervals",
        )
        axes.axhline(level, color=f"C{number}", linewidth=0.8)
    axes.set_xticks(range(len(numbers)), list(numbers))
    axes.set(xlabel="given of the row", ylabel="share of values inside", ylim=(0, 1))
    axes.legend(loc="lower right")
    return figure


def reliability_figure(categories: Mapping[str, CategoryCalibration]) -> Figure:
    """How often the most probable level is right, by how probable it was said to be."""
    figure = Figure(figsize=(2.6 * len(categories), 2.9), layout="constrained")
    places = figure.subplots(1, len(categories), sharey=True, squeeze=False)[0]
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
    places[0].set_ylabel("is right")
    return figure
