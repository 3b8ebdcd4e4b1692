"""scikit-learn's Gaussian mixture with full covariances; BIC chooses the number of bells.

Categories are the numbers of their levels, spread like any other whole number: crude, but a
probability. The cells of the outer levels go on for ever, as draws beyond them are clipped; without
that the levels of a hundred binary columns would together have a small part of the mass.
"""

import warnings

import numpy as np
from scipy.special import ndtr
from sklearn.mixture import GaussianMixture

from benchmarks.rivals.cells import Box, spread
from benchmarks.rivals.normal_boxes import log_box_prob
from benchmarks.rivals.task import Answers, Array, Task, work

SIZES = (1, 2, 4, 8, 16, 32)

DRAWS = 512
"""Of each row, all bells together, for the probability of its cells."""


def answer(task: Task, answers: Answers) -> None:
    """Fits, then answers everything: a Gaussian mixture knows all its conditionals."""
    rng = np.random.default_rng(task.seed)
    steps = [1.0 if column.is_category else column.step for column in task.columns]
    mixture = answers.time("fit", lambda: Mixture(spread(task.whole_rows(), steps, rng), task.seed))
    box = _cells(task, steps)
    given = box.only(task.given)
    answers.time("joint", lambda: mixture.log_prob(box, rng))
    answers.time("conditional", lambda: mixture.log_prob(box, rng) - mixture.log_prob(given, rng))
    answers.time("point", lambda: mixture.best_guess(task))
    answers.draw(task.draws, lambda: _values(task, mixture.draw(task.gaps, rng)))


class Mixture:
    """A fitted mixture, asked about rows of which any cells are NaN."""

    def __init__(self, rows: Array, seed: int) -> None:
        self.center, self.scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
        standard = (rows - self.center) / self.scale
        sizes = [size for size in SIZES if size * 5 <= len(rows)] or [1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one that has not converged loses by its BIC
            fits = [GaussianMixture(size, random_state=seed).fit(standard) for size in sizes]
        self.best = min(fits, key=lambda fit: fit.bic(standard))

    def log_prob(self, box: Box, rng: np.random.Generator) -> Array:
        """Of cells, with densities of points in the units of the columns."""
        best, standard = self.best, box.standard(self.center, self.scale)
        draws = DRAWS // len(best.weights_)
        logs = [
            log_box_prob(mean, covariance, standard, draws=draws, rng=rng)
            for mean, covariance in zip(best.means_, best.covariances_, strict=True)
        ]
        found: Array = np.logaddexp.reduce(np.stack(logs, axis=1) + np.log(best.weights_), axis=1)
        return found - (box.points * np.log(self.scale)).sum(axis=1)

    def best_guess(self, task: Task) -> Array:
        """Rows with their gaps at their means; of categories, at the level with the most mass."""
        found = task.gaps.copy()
        for row, standard in zip(found, self._standard(task.gaps), strict=True):
            logs = self._weights(standard)
            weights = np.exp(logs - np.logaddexp.reduce(logs))
            bells = [self._given(standard, bell) for bell in range(len(logs))]
            for i, place in enumerate(np.flatnonzero(np.isnan(row))):
                center, scale = self.center[place], self.scale[place]
                means = np.array([mean[i] for mean, _ in bells]) * scale + center
                widths = np.array([covariance[i, i] for _, covariance in bells]) ** 0.5 * scale
                column = task.columns[place]
                row[place] = weights @ means
                if column.is_category:
                    row[place] = _likeliest(column.levels, weights, means, widths)
        return found

    def draw(self, rows: Array, rng: np.random.Generator) -> Array:
        """Rows with their gaps drawn together."""
        found = self._standard(rows)
        for row in found:
            gaps, logs = np.isnan(row), self._weights(row)
            if gaps.any():
                weights = np.exp(logs - logs.max())
                bell = rng.choice(len(logs), p=weights / weights.sum())
                row[gaps] = rng.multivariate_normal(*self._given(row, bell), method="cholesky")
        return found * self.scale + self.center

    def _standard(self, rows: Array) -> Array:
        return (rows - self.center) / self.scale

    def _weights(self, row: Array) -> Array:
        """The log of each bell's weight times its density of what is there."""
        there = ~np.isnan(row)
        away = row[there] - self.best.means_[:, there]  # (bells, there)
        covariances = self.best.covariances_[:, there][:, :, there]
        solved = np.linalg.solve(covariances, away[..., None])[..., 0]
        volumes = np.linalg.slogdet(covariances)[1]
        logs = (away * solved).sum(axis=1) + volumes + there.sum() * np.log(2 * np.pi)
        return np.log(self.best.weights_) - 0.5 * logs

    def _given(self, row: Array, bell: int) -> tuple[Array, Array]:
        """Mean and covariance of a bell's gaps given what is there."""
        gaps, mean, covariance = np.isnan(row), self.best.means_[bell], self.best.covariances_[bell]
        cross = covariance[np.ix_(gaps, ~gaps)]
        gain = np.linalg.solve(covariance[np.ix_(~gaps, ~gaps)], cross.T).T
        center = mean[gaps] + gain @ (row[~gaps] - mean[~gaps])
        spread_ = covariance[np.ix_(gaps, gaps)] - gain @ cross.T
        return center, (spread_ + spread_.T) / 2 + 1e-9 * np.eye(int(gaps.sum()))


def _cells(task: Task, steps: list[float | None]) -> Box:
    low, high = Box.around(task.test, steps)
    last = np.array([column.levels - 1 for column in task.columns])
    lowest, highest = task.categories & (task.test == 0), task.categories & (task.test == last)
    return Box(np.where(lowest, -np.inf, low), np.where(highest, np.inf, high))


def _likeliest(levels: int, weights: Array, means: Array, widths: Array) -> int:
    """The level whose cell has most mass."""
    edges = np.concatenate([[-np.inf], np.arange(levels - 1) + 0.5, [np.inf]])
    below = ndtr((edges[:, None] - means) / widths) @ weights
    return int(np.diff(below).argmax())


def _values(task: Task, rows: Array) -> Array:
    """Categories as the nearest of their levels."""
    most = np.array([max(column.levels - 1, 0) for column in task.columns])
    return np.where(task.categories, np.rint(rows).clip(0, most), rows)


if __name__ == "__main__":
    work(answer)
