r"""General location model and Gaussian copula, with exact conditionals in closed form.

A latent class c has probability :math:`\pi_c`. Given the class, categories are independent, and the
normal scores z of the numbers are jointly normal (Olkin and Tate, 1961; here with a covariance of
each class). A number is x = F^{-1}(\Phi(z)) for a continuous F, or z itself. So

.. math:: p(c | x_e) \propto \pi_c \prod_j p(x_j | c) \, N(z_e; \mu_{c,e}, \Sigma_{c,ee})

and p(x_i | x_e) is the mixture of the classes' conditionals. A Gaussian copula is the case of one
class and no categories, with zero means and unit variances: F is then the marginal of the number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from benchmarks.rivals.questions import Array
from benchmarks.rivals.task import Column

REACH, STEP = 6.0, 0.01
"""Range and spacing of the trapezoidal rule, in standard deviations of a component.

The mass beyond is below 1e-8. The spacing is fine because the densities of answers are not smooth:
at 0.1 divergences of 0.015 nats are off by 0.04, at 0.01 by less than 0.0005.
"""


class Marginal(Protocol):
    """A continuous distribution of numbers."""

    def value(self, z: Array) -> Array:
        """Returns the quantiles at Phi(z)."""

    def score(self, x: Array) -> Array:
        """Returns the normal scores z of values; the inverse of `value`."""

    def log_density(self, x: Array) -> Array:
        """Returns the log density of values."""


class Exponential:
    """The exponential distribution of mean 1."""

    def value(self, z: Array) -> Array:
        """Returns the quantiles at Phi(z)."""
        return -log_ndtr(-z)

    def score(self, x: Array) -> Array:
        """Returns the normal scores of values."""
        return -ndtri(np.exp(-x))

    def log_density(self, x: Array) -> Array:
        """Returns the log density of values."""
        return -x


@dataclass(frozen=True)
class Bimodal:
    """Equal mixture of two normal distributions."""

    means: tuple[float, float] = (-2.0, 2.0)
    scales: tuple[float, float] = (0.5, 1.0)

    def value(self, z: Array) -> Array:
        """Returns the quantiles at Phi(z), by bisection."""
        low, high = np.full_like(z, -60.0), np.full_like(z, 60.0)
        for _ in range(80):  # below the precision of a double
            middle = (low + high) / 2
            below = self.score(middle) < z
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def score(self, x: Array) -> Array:
        """Returns the normal scores of values, by the nearer tail."""
        standard = [(x - m) / s for m, s in zip(self.means, self.scales, strict=True)]
        below = sum(ndtr(part) for part in standard) / 2
        above = sum(ndtr(-part) for part in standard) / 2
        return np.where(below < above, ndtri(below), -ndtri(above))

    def log_density(self, x: Array) -> Array:
        """Returns the log density of values."""
        pairs = zip(self.means, self.scales, strict=True)
        return np.logaddexp.reduce([_log_normal(x, m, s) for m, s in pairs]) - np.log(2)


class Nodes(NamedTuple):
    """Points of a column and their weights, which sum to 1: levels, or quadrature nodes."""

    points: Array
    weights: Array


@dataclass(frozen=True)
class LocationModel:
    """A general location model. Columns are its categories, then its numbers.

    Args:
        weights: Probability of each class. Shape ``(classes,)``.
        tables: Probabilities of each category's levels. Shapes ``(classes, levels)``.
        means: Means of the normal scores. Shape ``(classes, numbers)``.
        covariances: Their covariances. Shape ``(classes, numbers, numbers)``.
        marginals: Distribution F of each number; None if it is its own normal score.
    """

    weights: Array
    tables: Sequence[Array]
    means: Array
    covariances: Array
    marginals: Sequence[Marginal | None]

    @property
    def columns(self) -> list[Column]:
        """Columns, with their kinds."""
        categories = [
            Column(f"category_{place}", "category", levels=table.shape[1])
            for place, table in enumerate(self.tables)
        ]
        numbers = [Column(f"number_{place}", "number") for place in range(len(self.marginals))]
        return categories + numbers

    def sample(self, rows: int, rng: np.random.Generator) -> Array:
        """Samples rows."""
        classes = rng.choice(len(self.weights), size=rows, p=self.weights)
        found = []
        for table in self.tables:
            below = table[classes].cumsum(axis=1)[:, :-1]
            found.append((rng.random((rows, 1)) >= below).sum(axis=1).astype(np.float64))
        roots = np.linalg.cholesky(self.covariances)
        noise = rng.normal(size=(rows, len(self.marginals)))
        scores = self.means[classes] + np.einsum("rij,rj->ri", roots[classes], noise)
        for marginal, z in zip(self.marginals, scores.T, strict=True):
            found.append(z if marginal is None else marginal.value(z))
        return np.stack(found, axis=1)

    def log_prob(self, rows: Array) -> Array:
        """Returns the log-likelihood of each row: along a path, one column after the other."""
        places = range(rows.shape[1])
        return np.array(
            [
                sum(self.log_conditional(row[[i]], row, range(i), i)[0] for i in places)
                for row in rows
            ]
        )

    def nodes(self, row: Array, given: Sequence[int], target: int) -> Nodes:
        """Returns points and weights with which p(target | given) integrates any function."""
        logs = self._class_logs(row, given)
        if target < len(self.tables):
            table = self.tables[target]
            return Nodes(np.arange(table.shape[1], dtype=np.float64), np.exp(logs) @ table)
        grid = np.arange(-REACH, REACH + STEP / 2, STEP)
        mass = np.exp(-(grid**2) / 2)
        means, scales = self._moments(row, given, target)
        scores = (means[:, None] + scales[:, None] * grid).ravel()
        weights = np.outer(np.exp(logs), mass / mass.sum()).ravel()
        marginal = self.marginals[target - len(self.tables)]
        return Nodes(scores if marginal is None else marginal.value(scores), weights)

    def log_conditional(
        self, points: Array, row: Array, given: Sequence[int], target: int
    ) -> Array:
        """Returns log p(target = point | given) at points, with the evidence of a row.

        Args:
            points: Values of the target. Shape ``(points,)``.
            row: Values of all columns. Shape ``(columns,)``.
            given: Indices of the given columns.
            target: Index of the queried column.
        """
        logs = self._class_logs(row, given)[:, None]
        if target < len(self.tables):
            levels = self.tables[target][:, points.astype(np.int64)]
            return np.logaddexp.reduce(logs + np.log(levels))
        means, scales = self._moments(row, given, target)
        z, slopes = self._scores(points, target)
        parts = _log_normal(z, means[:, None], scales[:, None])
        return np.logaddexp.reduce(logs + parts) + slopes

    def _class_logs(self, row: Array, given: Sequence[int]) -> Array:
        """Returns log p(class | given). Shape ``(classes,)``."""
        logs = np.log(self.weights)
        for place in given:
            if place < len(self.tables):
                logs = logs + np.log(self.tables[place][:, int(row[place])])
        numbers, scores = self._evidence(row, given)
        for place in range(len(logs)):
            covariance = self.covariances[place][np.ix_(numbers, numbers)]
            away = scores - self.means[place][numbers]
            distance = away @ np.linalg.solve(covariance, away)
            logs[place] -= (distance + np.linalg.slogdet(covariance)[1]) / 2
        return logs - np.logaddexp.reduce(logs)

    def _moments(self, row: Array, given: Sequence[int], target: int) -> tuple[Array, Array]:
        """Returns mean and standard deviation of the target's score in each class."""
        numbers, scores = self._evidence(row, given)
        place, found = target - len(self.tables), []
        for mean, covariance in zip(self.means, self.covariances, strict=True):
            cross = covariance[place, numbers]
            gain = np.linalg.solve(covariance[np.ix_(numbers, numbers)], cross)
            variance = covariance[place, place] - gain @ cross
            found.append((mean[place] + gain @ (scores - mean[numbers]), variance**0.5))
        means, scales = np.array(found).T
        return means, scales

    def _evidence(self, row: Array, given: Sequence[int]) -> tuple[list[int], Array]:
        """Returns the given numbers, counted without the categories, and their scores."""
        first = len(self.tables)
        numbers = [place - first for place in given if place >= first]
        scores = [float(self._scores(row[[first + one]], first + one)[0][0]) for one in numbers]
        return numbers, np.array(scores)

    def _scores(self, values: Array, target: int) -> tuple[Array, Array]:
        """Returns the normal scores of values, and the log of their slopes."""
        marginal = self.marginals[target - len(self.tables)]
        if marginal is None:
            return values, np.zeros_like(values)
        z = marginal.score(values)
        return z, marginal.log_density(values) - _log_normal(z, 0.0, 1.0)


def copula(numbers: int = 12, *, factors: int = 3, seed: int = 0) -> LocationModel:
    """Returns a Gaussian copula with exponential, bimodal and normal marginals in turn.

    Its correlations are those of some common factors and noise of the same variance.
    """
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(numbers, factors))
    loadings /= np.linalg.norm(loadings, axis=1, keepdims=True)
    correlations = 0.75 * loadings @ loadings.T + 0.25 * np.eye(numbers)
    kinds: list[Marginal | None] = [Exponential(), Bimodal(), None]
    marginals = [kinds[place % len(kinds)] for place in range(numbers)]
    return LocationModel(np.ones(1), [], np.zeros((1, numbers)), correlations[None], marginals)


def location(
    classes: int = 4, *, levels: Sequence[int] = (2, 2, 3, 3, 4, 5), numbers: int = 6, seed: int = 0
) -> LocationModel:
    """Returns a general location model with random parameters."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(classes, 5.0))
    tables = [rng.dirichlet(np.full(count, 0.7), size=classes) for count in levels]
    tables = [0.98 * table + 0.02 / table.shape[1] for table in tables]  # no level is impossible
    means = rng.normal(size=(classes, numbers)) * 1.5
    roots = rng.normal(size=(classes, numbers, numbers)) / numbers**0.5
    covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(numbers)
    return LocationModel(weights, tables, means, covariances, [None] * numbers)


def _log_normal(z: Array, mean: Array | float, scale: Array | float) -> Array:
    return -0.5 * ((z - mean) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
