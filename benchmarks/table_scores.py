"""How good answers about a table are, row by row, so that models can be compared in pairs.

    joint, conditional   nats a row; more is better
    nrmse                of best guesses of numbers, in standard deviations of the rows to fit
    error_rate           of best guesses of categories
    crps                 of draws of numbers, rounded as the column is, in standard deviations
    category_crps        the same of categories, with distance 0 or 1: half the Brier score

The last four are means over columns, and less is better. Each is an `Estimate` whose rows average
to the score and vary as it does (a ratio or a root is linearised around its value), so that
standard errors and paired differences come out as for a mean.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder.diagnostics.evaluation import Estimate
from benchmarks.rivals.task import Array, Column
from benchmarks.table_task import TableTask

Mask = NDArray[np.bool_]

IMPOSSIBLE = math.log(5e-324)
"""What a row costs that a model calls impossible, and any at most: the smallest double's log."""

LIKELIHOODS = ("joint", "conditional")


def likelihood(logs: Array) -> tuple[Estimate, int]:
    """Nats a row, and how many rows were impossible, less likely or no number: `IMPOSSIBLE` each.

    A row of which a model knows that it is very unlikely must not cost more than one that it calls
    impossible.
    """
    lost = ~np.isfinite(logs) | (logs < IMPOSSIBLE)
    return Estimate(torch.from_numpy(np.where(lost, IMPOSSIBLE, logs))), int(lost.sum())


def imputation(task: TableTask, answers: Mapping[str, Array]) -> dict[str, Estimate]:
    """Scores of filled holes, of each column as "score/column" and of all of them together."""
    found: dict[str, Estimate] = {}
    draws, point = answers.get("draws"), answers.get("point")
    if point is None and draws is not None:
        point = best_guesses(task.task.columns, draws)
    if draws is not None:
        draws = rounded(task.task.columns, draws)
    scales = _scales(task)
    for place, column in enumerate(task.task.columns):
        holes, truth = task.holes[:, place], task.task.test[:, place]
        if not holes.any():
            continue
        if point is not None:
            name, score = _guessed(column, truth, point[:, place], holes, scales[place])
            found[f"{name}/{column.name}"] = score
        if draws is not None:
            name = "category_crps" if column.is_category else "crps"
            each = crps(draws[:, :, place], truth, is_category=column.is_category)
            found[f"{name}/{column.name}"] = ratio(each / scales[place], holes)
    return {**_means(found), **found}


def best_guesses(columns: list[Column], draws: Array) -> Array:
    """The means of drawn numbers, and what is drawn most often of categories."""
    point = draws.mean(axis=0)
    for place, column in enumerate(columns):
        if column.is_category:
            counts = [(draws[:, :, place] == level).sum(axis=0) for level in range(column.levels)]
            point[:, place] = np.argmax(counts, axis=0)
    return point


def rounded(columns: list[Column], draws: Array) -> Array:
    """Draws of rounded numbers, rounded whoever drew them: ours are, and others may be spread."""
    found = draws.copy()
    for place, column in enumerate(columns):
        if column.step is not None:  # a power of ten
            found[..., place] = draws[..., place].round(round(-math.log10(column.step)))
    return found


def crps(draws: Array, truth: Array, *, is_category: bool) -> Array:
    """E|X - y| - E|X - X'| / 2 over draws, each pair of different ones. Shape ``(rows,)``."""
    count = len(draws)
    if is_category:
        draws, apart = draws.copy(), (draws != truth).mean(axis=0)
        pairs = (draws[:, None] != draws[None]).sum(axis=(0, 1))
    else:
        apart = np.abs(draws - truth).mean(axis=0)
        ordered = np.sort(draws, axis=0)
        # The sum of all distances: the i-th of n is above i others and below n - 1 - i.
        pairs = 2 * ((2 * np.arange(count) - count + 1)[:, None] * ordered).sum(axis=0)
    return apart - pairs / (2 * count * max(count - 1, 1))


def ratio(values: Array, holes: Mask) -> Estimate:
    """The mean over the rows that have a hole."""
    mean = values[holes].mean()
    moved = np.where(holes, values - mean, 0.0) * (len(holes) / holes.sum())
    return Estimate(torch.from_numpy(mean + moved))


def root(squares: Array, holes: Mask) -> Estimate:
    """The square root of the mean over the rows that have a hole."""
    mean = ratio(squares, holes)
    value = math.sqrt(mean.value)
    slope = 0.5 / value if value > 0 else 0.0
    return Estimate(value + slope * (mean.rows - mean.value))


def _guessed(
    column: Column, truth: Array, guess: Array, holes: Mask, scale: float
) -> tuple[str, Estimate]:
    if column.is_category:
        return "error_rate", ratio((guess != truth).astype(np.float64), holes)
    # A hole that was left empty has no error: its column then has no score.
    return "nrmse", root(((guess - truth) / scale) ** 2, holes)


def _scales(task: TableTask) -> Array:
    deviations = np.nanstd(task.task.train, axis=0)
    return np.where(task.task.categories | (deviations == 0), 1.0, deviations)


def _means(found: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """The mean over columns of each score."""
    together: dict[str, list[torch.Tensor]] = {}
    for name, score in found.items():
        together.setdefault(name.split("/")[0], []).append(score.rows)
    return {name: Estimate(torch.stack(rows).mean(dim=0)) for name, rows in together.items()}
