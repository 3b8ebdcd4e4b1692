"""Probabilities of boxes under normal laws, by the GHK simulator. Needs numpy and scipy.

Along a Cholesky factor every column is normal given those before it: its cell has a mass there,
and a place drawn inside the cell leads on to the next column. The product of the masses is right
on average, and exact if columns do not depend on each other. Its logarithm is low by about half
the relative variance of the mean over draws, so that this is kept small:

* Columns are taken in an order of each row's own, the least probable cell first.
* Draws are Latin hypercubes: every part of a column's law is met as often, and what columns by
  themselves add to the variance is nearly gone.

References:
    Geweke (1991), Hajivassiliou and McFadden (1998), Keane (1994): the three of GHK.
    Gibson, Glasbey and Elston (1994): the order.
    McKay, Beckman and Conover (1979): Latin hypercubes.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from benchmarks.rivals.cells import Box, log_normal
from benchmarks.rivals.task import Array

Places = tuple[NDArray[np.intp], NDArray[np.intp]]

NUMBERS = 10_000_000
"""How many numbers are held for the rows that are looked at together, about."""


def log_box_prob(
    mean: Array, covariance: Array, box: Box, *, draws: int, rng: np.random.Generator
) -> Array:
    """The log probability of each row's cells, and density of its points, under a normal law.

    Args:
        mean: Shape ``(columns,)``.
        covariance: Shape ``(columns, columns)``.
        box: The cells. Shapes ``(rows, columns)``.
        draws: How often each row is drawn.
        rng: Of the draws.
    """
    unasked = np.isnan(box.low)
    low, high = np.where(unasked, -np.inf, box.low), np.where(unasked, np.inf, box.high)
    rows, columns = low.shape
    together = max(1, NUMBERS // (columns * max(columns, draws)))
    logs = []
    for start in range(0, rows, together):
        part = slice(start, start + together)
        path = _Path(mean, covariance, Box(low[part], high[part]))
        logs.append(_mean_over_draws(path, draws, rng))
    return np.concatenate(logs)


class _Path:
    """Cholesky factors of many rows, each in an order of its own that is found on the way.

    Args:
        mean: Shape ``(columns,)``.
        covariance: Shape ``(columns, columns)``.
        box: The cells. Shapes ``(rows, columns)``.
    """

    def __init__(self, mean: Array, covariance: Array, box: Box) -> None:
        self.covariance, self.box, self.shape = covariance, box, box.low.shape
        self.mean = np.broadcast_to(mean, self.shape)
        self.left = np.ones(self.shape, dtype=bool)
        # Of each column, with those that were taken at the middles of their cells.
        self.center = self.mean.copy()
        self.variance = np.broadcast_to(covariance.diagonal(), self.shape).copy()
        self.factors = np.zeros((*self.shape, self.shape[1]))  # (rows, taken, columns)

    def take(self, step: int) -> tuple[Places, Array, Array]:
        """Where each row's next column is, its factors of those before, and its scale."""
        scales = np.sqrt(self.variance)
        standard = self.box.standard(self.center, scales)
        masses = log_normal(standard)
        # For points nothing is drawn: they come before all cells.
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


def _mean_over_draws(path: _Path, draws: int, rng: np.random.Generator) -> Array:
    rows, columns = path.shape
    logs, drawn = np.zeros((rows, draws)), np.zeros((rows, columns, draws))
    for step in range(columns):
        at, factors, scale = path.take(step)
        center = path.mean[at][:, None] + (factors[:, None] @ drawn[:, :step])[:, 0]
        cells = Box(path.box.low[at][:, None], path.box.high[at][:, None])
        standard = cells.standard(center, scale)
        masses = log_normal(standard)
        drawn[:, step] = _inside(standard, masses, _stratified(logs.shape, rng))
        # The density of a point is in units of the column.
        logs += masses - cells.points * np.log(scale)
    found: Array = np.logaddexp.reduce(logs, axis=1) - np.log(draws)
    return found


def _stratified(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Numbers between 0 and 1: in each row one in each of as many equal parts, in random order."""
    return (rng.random(shape).argsort(axis=-1) + rng.random(shape)) / shape[-1]


def _inside(cells: Box, masses: Array, share: Array | float) -> Array:
    """Places in the standard normal's cells that have a share of the mass on one side."""
    left, right, turned = cells.lower_tail()
    found = ndtri_exp(np.logaddexp(log_ndtr(left), np.log(share) + masses)).clip(left, right)
    return np.where(turned, -found, found)
