"""scikit-learn's Gaussian mixture with full covariances; BIC chooses the number of components.

Categories are coded by their levels and spread like any other whole number: crude, but a
probability. The cells of the outer levels extend to infinity, because samples beyond them are
clipped; otherwise the levels of a hundred binary columns would have little of the mass.
"""

import warnings

import numpy as np
from scipy.special import ndtr
from sklearn.mixture import GaussianMixture

from benchmarks.rivals.cells import Box, log_box_prob, spread
from benchmarks.rivals.task import Answers, Array, Task, work

SIZES = (1, 2, 4, 8, 16, 32)

DRAWS = 512
"""Samples of each row, over all components, for the probability of its cells."""


def answer(task: Task, answers: Answers) -> None:
    """Fits, then answers everything: a Gaussian mixture has all conditionals."""
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
    """A fitted mixture, for rows with missing cells (NaN)."""

    def __init__(self, rows: Array, seed: int) -> None:
        self.center, self.scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
        standard = (rows - self.center) / self.scale
        sizes = [size for size in SIZES if size * 5 <= len(rows)] or [1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that has not converged has a worse BIC
            fits = [GaussianMixture(size, random_state=seed).fit(standard) for size in sizes]
        self.best = min(fits, key=lambda fit: fit.bic(standard))

    def log_prob(self, box: Box, rng: np.random.Generator) -> Array:
        """Returns log probabilities of cells, and log densities of points in column units."""
        best, standard = self.best, box.standard(self.center, self.scale)
        draws = DRAWS // len(best.weights_)
        logs = [
            log_box_prob(mean, covariance, standard, draws=draws, rng=rng)
            for mean, covariance in zip(best.means_, best.covariances_, strict=True)
        ]
        found: Array = np.logaddexp.reduce(np.stack(logs, axis=1) + np.log(best.weights_), axis=1)
        return found - (box.points * np.log(self.scale)).sum(axis=1)

    def best_guess(self, task: Task) -> Array:
        """Imputes missing cells by conditional means, or by the most probable level."""
        found = task.gaps.copy()
        for row, standard in zip(found, self._standard(task.gaps), strict=True):
            logs = self._weights(standard)
            weights = np.exp(logs - np.logaddexp.reduce(logs))
            components = [self._given(standard, component) for component in range(len(logs))]
            for i, place in enumerate(np.flatnonzero(np.isnan(row))):
                center, scale = self.center[place], self.scale[place]
                means = np.array([mean[i] for mean, _ in components]) * scale + center
                widths = np.array([covariance[i, i] for _, covariance in components]) ** 0.5 * scale
                column = task.columns[place]
                row[place] = weights @ means
                if column.is_category:
                    row[place] = _likeliest(column.levels, weights, means, widths)
        return found

    def draw(self, rows: Array, rng: np.random.Generator) -> Array:
        """Imputes missing cells by a joint sample."""
        found = self._standard(rows)
        for row in found:
            missing, logs = np.isnan(row), self._weights(row)
            if missing.any():
                weights = np.exp(logs - logs.max())
                component = rng.choice(len(logs), p=weights / weights.sum())
                row[missing] = rng.multivariate_normal(
                    *self._given(row, component), method="cholesky"
                )
        return found * self.scale + self.center

    def _standard(self, rows: Array) -> Array:
        return (rows - self.center) / self.scale

    def _weights(self, row: Array) -> Array:
        """Returns the log of each component's weight times its density of the observed cells."""
        there = ~np.isnan(row)
        away = row[there] - self.best.means_[:, there]  # (components, there)
        covariances = self.best.covariances_[:, there][:, :, there]
        solved = np.linalg.solve(covariances, away[..., None])[..., 0]
        volumes = np.linalg.slogdet(covariances)[1]
        logs = (away * solved).sum(axis=1) + volumes + there.sum() * np.log(2 * np.pi)
        return np.log(self.best.weights_) - 0.5 * logs

    def _given(self, row: Array, component: int) -> tuple[Array, Array]:
        """Returns mean and covariance of a component's missing cells given the observed ones."""
        missing = np.isnan(row)
        mean, covariance = self.best.means_[component], self.best.covariances_[component]
        cross = covariance[np.ix_(missing, ~missing)]
        gain = np.linalg.solve(covariance[np.ix_(~missing, ~missing)], cross.T).T
        center = mean[missing] + gain @ (row[~missing] - mean[~missing])
        spread_ = covariance[np.ix_(missing, missing)] - gain @ cross.T
        return center, (spread_ + spread_.T) / 2 + 1e-9 * np.eye(int(missing.sum()))


def _cells(task: Task, steps: list[float | None]) -> Box:
    low, high = Box.around(task.test, steps)
    last = np.array([column.levels - 1 for column in task.columns])
    lowest, highest = task.categories & (task.test == 0), task.categories & (task.test == last)
    return Box(np.where(lowest, -np.inf, low), np.where(highest, np.inf, high))


def _likeliest(levels: int, weights: Array, means: Array, widths: Array) -> int:
    """Returns the level whose cell has most mass."""
    edges = np.concatenate([[-np.inf], np.arange(levels - 1) + 0.5, [np.inf]])
    below = ndtr((edges[:, None] - means) / widths) @ weights
    return int(np.diff(below).argmax())


def _values(task: Task, rows: Array) -> Array:
    """Rounds categories to the nearest of their levels."""
    most = np.array([max(column.levels - 1, 0) for column in task.columns])
    return np.where(task.categories, np.rint(rows).clip(0, most), rows)


if __name__ == "__main__":
    work(answer)
