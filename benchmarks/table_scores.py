"""Scores of likelihoods and imputations of a table, row by row, for paired comparisons.

    joint, conditional   nats per row; more is better
    nrmse                RMSE of point estimates of numbers, in training standard deviations
    error_rate           error rate of point estimates of categories
    crps                 CRPS of samples of numbers, rounded as the column, in standard deviations
    category_crps        the same of categories, with distance 0 or 1: half the Brier score

The last four are means over columns, and less is better. Each is an `Estimate` whose rows average
to the score. A ratio or a root is linearised around its value (the delta method), so that standard
errors and paired differences are computed as for a mean.
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
"""Lowest log-likelihood of a row: the log of the smallest double."""

LIKELIHOODS = ("joint", "conditional")


def likelihood(logs: Array) -> tuple[Estimate, int]:
    """Returns nats per row, clipped at `IMPOSSIBLE`, and the number of clipped rows.

    Rows of probability zero and NaN are clipped too. A very unlikely row must not cost more than an
    impossible one.
    """
    lost = ~np.isfinite(logs) | (logs < IMPOSSIBLE)
    return Estimate(torch.from_numpy(np.where(lost, IMPOSSIBLE, logs))), int(lost.sum())


def imputation(task: TableTask, answers: Mapping[str, Array]) -> dict[str, Estimate]:
    """Returns scores of imputed cells, of each column as "score/column" and of all columns."""
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
    """Returns the means of sampled numbers, and the modes of sampled categories."""
    point = draws.mean(axis=0)
    for place, column in enumerate(columns):
        if column.is_category:
            counts = [(draws[:, :, place] == level).sum(axis=0) for level in range(column.levels)]
            point[:, place] = np.argmax(counts, axis=0)
    return point


def rounded(columns: list[Column], draws: Array) -> Array:
    """Rounds samples of rounded columns, because some models do not."""
    found = draws.copy()
    for place, column in enumerate(columns):
        if column.step is not None:  # a power of ten
            found[..., place] = draws[..., place].round(round(-math.log10(column.step)))
    return found


def crps(draws: Array, truth: Array, *, is_category: bool) -> Array:
    """Returns the unbiased CRPS, E|X - y| - E|X - X'| / 2 over samples. Shape ``(rows,)``."""
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
    """Returns the mean over the rows whose cell was removed."""
    mean = values[holes].mean()
    moved = np.where(holes, values - mean, 0.0) * (len(holes) / holes.sum())
    return Estimate(torch.from_numpy(mean + moved))


def root(squares: Array, holes: Mask) -> Estimate:
    """Returns the square root of the mean over the rows whose cell was removed."""
    mean = ratio(squares, holes)
    value = math.sqrt(mean.value)
    slope = 0.5 / value if value > 0 else 0.0
    return Estimate(value + slope * (mean.rows - mean.value))


def _guessed(
    column: Column, truth: Array, guess: Array, holes: Mask, scale: float
) -> tuple[str, Estimate]:
    if column.is_category:
        return "error_rate", ratio((guess != truth).astype(np.float64), holes)
    # A cell that was left empty is NaN, and so is the score of its column.
    return "nrmse", root(((guess - truth) / scale) ** 2, holes)


def _scales(task: TableTask) -> Array:
    deviations = np.nanstd(task.task.train, axis=0)
    return np.where(task.task.categories | (deviations == 0), 1.0, deviations)


def _means(found: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Returns the mean of each score over columns."""
    together: dict[str, list[torch.Tensor]] = {}
    for name, score in found.items():
        together.setdefault(name.split("/")[0], []).append(score.rows)
    return {name: Estimate(torch.stack(rows).mean(dim=0)) for name, rows in together.items()}
