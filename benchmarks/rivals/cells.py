"""Cells of rounded numbers, for models that have only densities. Needs numpy and scipy.

The probability of a cell is the mass between its ends. (The density at the middle times the width
can exceed one.) A given rounded number is known only up to its cell, so the cell is given. Models
are fitted to rows that are spread uniformly over their cells; otherwise they would fit ever
narrower components to values that repeat.

Masses of boxes under a multivariate normal are estimated by the GHK simulator. Along a Cholesky
factor every column is normal given those before it: its cell has a mass, and a sample inside the
cell leads on to the next column. The product of the masses is unbiased, and exact for independent
columns. Its logarithm is biased by about minus half the relative variance of the mean over samples,
so this variance is kept small:

* Each row takes its columns in its own order, the least probable cell first.
* Samples are Latin hypercubes, which removes most of the variance of single columns.

References:
    Geweke (1991), Hajivassiliou and McFadden (1998), Keane (1994): GHK.
    Gibson, Glasbey and Elston (1994): the order.
    McKay, Beckman and Conover (1979): Latin hypercubes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from benchmarks.rivals.task import Array

Mask = NDArray[np.bool_]


class Box(NamedTuple):
    """Ends of cells, in any shape: points where they are equal, NaN where nothing is queried."""

    low: Array
    high: Array

    @classmethod
    def around(cls, values: Array, steps: Sequence[float | None]) -> "Box":
        """Returns the cells of rows; points in columns without a step."""
        halves = np.array([step or 0.0 for step in steps]) / 2
        return cls(values - halves, values + halves)

    @property
    def points(self) -> Mask:
        """Mask of the points, which have a density in place of a probability."""
        return self.low == self.high

    def only(self, places: Mask) -> "Box":
        """Returns the cells at `places`, with nothing queried elsewhere."""
        return Box(*(np.where(places, ends, np.nan) for ends in self))

    def standard(self, center: Array, scale: Array) -> "Box":
        """Returns the cells in standard units."""
        return Box(*((ends - center) / scale for ends in self))

    def lower_tail(self) -> tuple[Array, Array, Mask]:
        """Returns the ends, reflected at zero if both are above it, and the mask of these.

        Normal CDFs are most precise in the lower tail.
        """
        above = self.low > 0
        return np.where(above, -self.high, self.low), np.where(above, -self.low, self.high), above


def spread(values: Array, steps: Sequence[float | None], rng: np.random.Generator) -> Array:
    """Moves values to random places of their cells."""
    widths = np.array([step or 0.0 for step in steps])
    return values + (rng.random(values.shape) - 0.5) * widths


def log_normal(box: Box) -> Array:
    """Returns the log mass of cells under the standard normal, and log density of points."""
    left, right, _ = box.lower_tail()
    below = log_ndtr(right)
    with np.errstate(divide="ignore"):  # points have no mass
        masses = below + np.log(-np.expm1(log_ndtr(left) - below))
    return np.where(box.points, -0.5 * box.low**2 - 0.5 * np.log(2 * np.pi), masses)


Places = tuple[NDArray[np.intp], NDArray[np.intp]]

NUMBERS = 10_000_000
"""Approximate number of values in memory for the rows of a batch."""


def log_box_prob(
    mean: Array, covariance: Array, box: Box, *, draws: int, rng: np.random.Generator
) -> Array:
    """Returns the log probability of each row's cells, and density of its points, by GHK.

    Args:
        mean: Mean of the normal. Shape ``(columns,)``.
        covariance: Covariance of the normal. Shape ``(columns, columns)``.
        box: Cells. Shapes ``(rows, columns)``.
        draws: Number of samples of each row.
        rng: Source of randomness.
    """
    free = np.isnan(box.low)
    low, high = np.where(free, -np.inf, box.low), np.where(free, np.inf, box.high)
    rows, columns = low.shape
    together = max(1, NUMBERS // (columns * max(columns, draws)))
    logs = []
    for start in range(0, rows, together):
        part = slice(start, start + together)
        path = _Path(mean, covariance, Box(low[part], high[part]))
        logs.append(_mean_over_samples(path, draws, rng))
    return np.concatenate(logs)


class _Path:
    """Cholesky factors of many rows, each in its own order, which is found on the way.

    Args:
        mean: Mean of the normal. Shape ``(columns,)``.
        covariance: Covariance of the normal. Shape ``(columns, columns)``.
        box: Cells. Shapes ``(rows, columns)``.
    """

    def __init__(self, mean: Array, covariance: Array, box: Box) -> None:
        self.covariance, self.box, self.shape = covariance, box, box.low.shape
        self.mean = np.broadcast_to(mean, self.shape)
        self.left = np.ones(self.shape, dtype=bool)
        # Conditional moments of each column, with taken columns at the medians of their cells.
        self.center = self.mean.copy()
        self.variance = np.broadcast_to(covariance.diagonal(), self.shape).copy()
        self.factors = np.zeros((*self.shape, self.shape[1]))  # (rows, taken, columns)

    def take(self, step: int) -> tuple[Places, Array, Array]:
        """Returns each row's next column, its factors of those before, and its scale."""
        scales = np.sqrt(self.variance)
        standard = self.box.standard(self.center, scales)
        masses = log_normal(standard)
        # Points need no sample, so they come before all cells.
        keys = np.where(self.box.points, -np.inf, masses)
        at = np.arange(len(keys)), np.where(self.left, keys, np.inf).argmin(axis=1)
        middle = _inside(Box(standard.low[at], standard.high[at]), masses[at], 0.5)
        self.left[at] = False
        factors = self.factors[at[0], :step, at[1]]  # (rows, step)
        before = (factors[:, None] @ self.factors[:, :step])[:, 0]  # (rows, columns)
        found = self.left * (self.covariance[at[1]] - before) / scales[at][:, None]
        self.factors[:, step] = found
        self.variance -= found**2
        self.center += found * middle[:, None]
        return at, factors, scales[at][:, None]


def _mean_over_samples(path: _Path, draws: int, rng: np.random.Generator) -> Array:
    rows, columns = path.shape
    logs, sampled = np.zeros((rows, draws)), np.zeros((rows, columns, draws))
    for step in range(columns):
        at, factors, scale = path.take(step)
        center = path.mean[at][:, None] + (factors[:, None] @ sampled[:, :step])[:, 0]
        cells = Box(path.box.low[at][:, None], path.box.high[at][:, None])
        standard = cells.standard(center, scale)
        masses = log_normal(standard)
        sampled[:, step] = _inside(standard, masses, _stratified(logs.shape, rng))
        # The density of a point is in units of the column.
        logs += masses - cells.points * np.log(scale)
    found: Array = np.logaddexp.reduce(logs, axis=1) - np.log(draws)
    return found


def _stratified(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Returns stratified uniform samples: in each row one in each of equal parts, shuffled."""
    return (rng.random(shape).argsort(axis=-1) + rng.random(shape)) / shape[-1]


def _inside(cells: Box, masses: Array, share: Array | float) -> Array:
    """Returns quantiles of the standard normal within cells."""
    left, right, turned = cells.lower_tail()
    found = ndtri_exp(np.logaddexp(log_ndtr(left), np.log(share) + masses)).clip(left, right)
    return np.where(turned, -found, found)
