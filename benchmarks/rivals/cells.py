"""Cells of rounded numbers, for models that have densities only. Needs numpy and scipy.

The probability of a cell is the mass between its ends. (The density at the middle times the width
can exceed one.) Where a rounded number is given, all that is known is its cell, and that is given.
Models are fitted to rows that are spread evenly over their cells, or they would put ever narrower
bells on values that repeat.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from benchmarks.rivals.task import Array

Mask = NDArray[np.bool_]


class Box(NamedTuple):
    """The ends of cells, in any shape: points where they meet, NaN where nothing is asked."""

    low: Array
    high: Array

    @classmethod
    def around(cls, values: Array, steps: Sequence[float | None]) -> "Box":
        """The cells of rows; points where there is no step."""
        halves = np.array([step or 0.0 for step in steps]) / 2
        return cls(values - halves, values + halves)

    @property
    def points(self) -> Mask:
        """Which have no width, and a density in place of a probability."""
        return self.low == self.high

    def only(self, places: Mask) -> "Box":
        """The same with nothing asked anywhere else."""
        return Box(*(np.where(places, ends, np.nan) for ends in self))

    def standard(self, center: Array, scale: Array) -> "Box":
        """In units of a scale, from a center."""
        return Box(*((ends - center) / scale for ends in self))

    def lower_tail(self) -> tuple[Array, Array, Mask]:
        """The ends, turned to the other side of zero if both are above, and which were.

        Normal CDFs have all their digits there.
        """
        above = self.low > 0
        return np.where(above, -self.high, self.low), np.where(above, -self.low, self.high), above


def spread(values: Array, steps: Sequence[float | None], rng: np.random.Generator) -> Array:
    """Values moved to random places of their cells."""
    widths = np.array([step or 0.0 for step in steps])
    return values + (rng.random(values.shape) - 0.5) * widths


def log_normal(box: Box) -> Array:
    """The log of the standard normal's mass in cells, and of its density at points."""
    left, right, _ = box.lower_tail()
    below = log_ndtr(right)
    with np.errstate(divide="ignore"):  # of points, which have no mass
        masses = below + np.log(-np.expm1(log_ndtr(left) - below))
    return np.where(box.points, -0.5 * box.low**2 - 0.5 * np.log(2 * np.pi), masses)
