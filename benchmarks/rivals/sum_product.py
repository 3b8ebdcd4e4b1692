"""SPFlow's LearnSPN: sums by k-means, products by randomised dependence, leaves by likelihood.

Standardised numbers have normal leaves, categories categorical ones. Each leaf has one column and
gives the mass of a cell in place of a density, so the probability of a row's cells is exact. All
marginals are exact too, so conditionals are their ratios.
"""

import contextlib
import io
from typing import Any

import numpy as np
import torch
from spflow.learn.learn_spn import learn_spn, partition_by_rdc
from spflow.meta.data import IntervalEvidence, Scope
from spflow.modules.leaves import Categorical, Normal

from benchmarks.rivals.cells import Box, log_normal, spread
from benchmarks.rivals.task import Answers, Array, Task, work

TRIES = 10
"""Largest number of attempts of a test of dependence."""


def answer(task: Task, answers: Answers) -> None:
    """Fits, then answers everything."""
    torch.manual_seed(task.seed)
    rng = np.random.default_rng(task.seed)
    steps = [column.step for column in task.columns]
    network = answers.time("fit", lambda: Network(task, spread(task.whole_rows(), steps, rng)))
    box = Box.around(task.test, steps)
    given = box.only(task.given)
    answers.time("joint", lambda: network.log_prob(box))
    answers.time("conditional", lambda: network.log_prob(box) - network.log_prob(given))
    answers.draw(task.draws, lambda: network.draw(task.gaps))


class Network:
    """A learned network, for rows with missing cells (NaN)."""

    def __init__(self, task: Task, rows: Array) -> None:
        numbers = ~task.categories
        self.center = np.where(numbers, rows.mean(axis=0), 0.0)
        self.scale = np.where(numbers, np.maximum(rows.std(axis=0), 1e-9), 1.0)
        with contextlib.redirect_stdout(io.StringIO()):  # k-means reports every step
            standard, leaves = self._standard(rows), _leaves(task)
            self.root = learn_spn(standard, leaves, partitioning_method=_independent_parts)

    @torch.no_grad()
    def log_prob(self, box: Box) -> Array:
        """Returns log probabilities of cells, and log densities of points in column units."""
        ends = (torch.from_numpy(end) for end in box.standard(self.center, self.scale))
        logs = self.root.log_likelihood(IntervalEvidence(*ends)).flatten().double().numpy()
        return logs - (box.points * np.log(self.scale)).sum(axis=1)

    @torch.no_grad()
    def draw(self, rows: Array) -> Array:
        """Imputes missing cells by a joint sample."""
        found = self.root.sample_with_evidence(self._standard(rows)).double().numpy()
        return np.where(np.isnan(rows), found * self.scale + self.center, rows)

    def _standard(self, rows: Array) -> torch.Tensor:
        return torch.from_numpy((rows - self.center) / self.scale).float()


def _independent_parts(data: torch.Tensor) -> torch.Tensor:
    """Wraps SPFlow's test of dependence, which fails on columns that are constant in a cluster.

    Constant columns are independent, so each is a part by itself. The test also fails for some of
    its random projections: it is then repeated, and at last all columns count as dependent.
    """
    varies = (data != data[0]).any(dim=0)
    parts = -torch.arange(1, data.shape[1] + 1)
    if varies.sum() < 2:
        return parts
    for _ in range(TRIES):
        with contextlib.suppress(RuntimeError):
            parts[varies] = partition_by_rdc(data[:, varies].double()).to(parts)
            return parts
    parts[varies] = 1
    return parts


class NormalCells(Normal):  # type: ignore[misc]
    """Normal leaves with exact masses of intervals, and densities of points.

    SPFlow's own masses are differences of CDFs in single precision, bounded below by 1e-40.
    """

    def _log_likelihood_interval(
        self, low: torch.Tensor, high: torch.Tensor, cache: object = None
    ) -> torch.Tensor:
        del cache  # of modules; leaves do not use it
        ends = (end[:, self.scope.query, None, None].double().numpy() for end in (low, high))
        scale = self.scale.double().numpy()  # (features, channels, repetitions), as is the center
        box = Box(*ends)
        logs = log_normal(box.standard(self.loc.double().numpy(), scale))
        logs -= box.points * np.log(scale)
        return torch.from_numpy(np.where(np.isnan(box.low), 0.0, logs))


def _leaves(task: Task) -> list[Any]:
    """Returns a leaf for the numbers, and one for the categories of each number of levels."""
    numbers = np.flatnonzero(~task.categories).tolist()
    leaves = [NormalCells(scope=Scope(numbers), out_channels=1)] if numbers else []
    for levels in sorted({column.levels for column in task.columns if column.is_category}):
        members = [i for i, column in enumerate(task.columns) if column.levels == levels]
        leaves.append(_categorical(levels)(Scope(members)))
    return leaves


def _categorical(levels: int) -> type[Any]:
    """Returns a leaf class with fixed levels, because the learner passes only the scope."""

    class Levels(Categorical):  # type: ignore[misc]
        def __init__(self, scope: Any, out_channels: int = 1) -> None:
            super().__init__(scope=scope, out_channels=out_channels, K=levels)

    return Levels


if __name__ == "__main__":
    work(answer)
