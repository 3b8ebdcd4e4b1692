"""A fixed map from the values of a column to a scale on which they look like a standard normal.

Money, counts and times span orders of magnitude and have long tails; a network and a mixture of
densities want numbers near zero. The map is learned once from the quantiles of the data, then
kept: strictly increasing, smooth, exactly invertible, and with a known derivative, so that a
density on one scale is a density on the other.

    t = (x - median) / scale       centred, in units of half the interquartile range
    u = asinh(t)                   linear near the centre, logarithmic in the tails
    z = spline(u)                  through quantiles to normal scores, linear beyond them

The logarithm is what keeps `z` small for every finite double, and a line in `u` is a power law in
`x`: heavy tails stay heavy.

Reference:
    Gregory and Delbourgo (1982), Piecewise rational quadratic interpolation to monotonic data.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]

MOST_KNOTS = 33
"""More knots would follow the noise of the sample."""

POINTS_BEYOND = 10
"""So many points lie beyond the outermost knots: fewer would not fix a quantile."""

OUTER_SLOPES = (0.2, 5.0)
"""dz/du beyond the knots. The lower end keeps samples from running away, the upper one keeps
|z| below 1e4 where |u|, at most 1420 for doubles, is greatest."""

CLOSEST = 1e-7
"""Knots nearer than this, or than this share of their range, are one: closer than float32 tells."""

FAR = 1e8
"""From here on asinh(t) is log(2t) to the last digit, and squares need no 1."""

LARGEST = float(np.finfo(np.float64).max)
SMALLEST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Gaussianizer:
    """A strictly increasing smooth map of the real line, with its inverse and its derivative.

    Args:
        median: Where `u` is zero.
        scale: The unit of `t`.
        knots: Places in `u`, ascending.
        scores: The `z` of the knots, ascending.
        slopes: dz/du at the knots, positive; the outer ones hold beyond them too.

    Example:
        >>> scores = Gaussianizer.fit(np.arange(1001.0) ** 3)
        >>> bool(abs(scores.forward(500.0**3)) < 0.01)
        True
    """

    median: float
    scale: float
    knots: tuple[float, ...]
    scores: tuple[float, ...]
    slopes: tuple[float, ...]

    @classmethod
    def fit(cls, values: ArrayLike) -> "Gaussianizer":
        """The map under which `values`, finite and at least one, look normal."""
        ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
        median = float(ordered[(len(ordered) - 1) // 2])
        affine = cls(median, _scale(ordered, median), (0.0,), (0.0,), (1.0,))
        places, scores = _quantiles(ordered)
        knots, kept = _apart(affine._bend(places)[0])
        if len(knots) < 2:
            return affine
        slopes = _slopes(knots, scores[kept])
        return cls(
            median,
            affine.scale,
            tuple(knots.tolist()),
            tuple(scores[kept].tolist()),
            tuple(slopes.tolist()),
        )

    def forward(self, x: ArrayLike) -> FloatArray:
        """The `z` of values: finite, below 1e4 in size, for every finite double."""
        return self._spline(self._bend(x)[0])[0]

    def inverse(self, z: ArrayLike) -> FloatArray:
        """The values of `z`; what is beyond the doubles becomes the greatest of them."""
        z = np.asarray(z, dtype=np.float64)
        knots, scores, slopes = self._arrays()
        below = knots[0] + (z - scores[0]) / slopes[0]
        above = knots[-1] + (z - scores[-1]) / slopes[-1]
        u = np.where(z < scores[0], below, above)
        if len(knots) > 1:
            inside = _inverse_rational(np.clip(z, scores[0], scores[-1]), knots, scores, slopes)
            u = np.where((z < scores[0]) | (z > scores[-1]), u, inside)
        return self._unbend(u)

    def log_derivative(self, x: ArrayLike) -> FloatArray:
        """The log of dz/dx: what is added to a log density of `z` to give one of `x`."""
        u, log_bend = self._bend(x)
        return np.log(self._spline(u)[1]) + log_bend

    def _bend(self, x: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """`u`, and log du/dx."""
        half = np.asarray(x, dtype=np.float64) * 0.5 - self.median * 0.5  # cannot overflow
        with np.errstate(over="ignore"):
            t = half / self.scale * 2.0
        size = np.abs(half)
        log_size = np.log(np.maximum(size, SMALLEST)) - math.log(self.scale) + math.log(2.0)
        far = np.abs(t) > FAR
        near = np.where(far, 0.0, t)
        u = np.where(far, np.sign(half) * (log_size + math.log(2.0)), np.arcsinh(near))
        steepness = np.where(far, log_size, 0.5 * np.log1p(near**2))
        return u, -math.log(self.scale) - steepness

    def _unbend(self, u: FloatArray) -> FloatArray:
        far = np.abs(u) > math.log(FAR)
        log_size = np.abs(u) - math.log(2.0) + math.log(self.scale)
        with np.errstate(over="ignore"):
            distant = np.sign(u) * np.exp(log_size)
            x = self.median + np.where(far, distant, self.scale * np.sinh(np.where(far, 0.0, u)))
        return np.clip(x, -LARGEST, LARGEST)

    def _spline(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`z`, and dz/du."""
        knots, scores, slopes = self._arrays()
        below, above = u < knots[0], u > knots[-1]
        z = np.where(
            below,
            scores[0] + slopes[0] * (u - knots[0]),
            scores[-1] + slopes[-1] * (u - knots[-1]),
        )
        slope = np.where(below, slopes[0], slopes[-1])
        if len(knots) == 1:
            return z, slope
        inside, steep = _rational(np.clip(u, knots[0], knots[-1]), knots, scores, slopes)
        outside = below | above
        return np.where(outside, z, inside), np.where(outside, slope, steep)

    def _arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return np.array(self.knots), np.array(self.scores), np.array(self.slopes)


def _scale(ordered: FloatArray, median: float) -> float:
    """Half the interquartile range; the standard deviation where that is zero; else 1."""
    last = len(ordered) - 1
    half_range = float(ordered[(3 * last + 3) // 4] * 0.5 - ordered[last // 4] * 0.5)
    if half_range > 0:
        return max(half_range, SMALLEST)
    deviations = ordered * 0.5 - median * 0.5
    peak = float(np.abs(deviations).max())
    if peak == 0:
        return 1.0
    half_deviation = peak * math.sqrt(float(np.mean((deviations / peak) ** 2)))
    return max(min(2 * half_deviation, LARGEST), SMALLEST)


def _quantiles(ordered: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distinct values at evenly spaced normal scores, and the score of each.

    The score of a value that stands many times is that of the middle of its places.
    """
    values, counts = np.unique(ordered, return_counts=True)
    count = len(ordered)
    ranks = np.cumsum(counts)
    middles = (ranks - 0.5 * counts) / count
    most = min(MOST_KNOTS, max(3, math.isqrt(count)))
    normal = NormalDist()
    if len(values) > most:
        reach = -normal.inv_cdf(min(0.25, POINTS_BEYOND / count))
        levels = [normal.cdf(score) for score in np.linspace(-reach, reach, most)]
        picked = np.unique(np.searchsorted(ranks / count, levels).clip(0, len(values) - 1))
        values, middles = values[picked], middles[picked]
    return values, np.array([normal.inv_cdf(float(level)) for level in middles])


def _apart(knots: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """The knots without those too near the one before, and their places."""
    least = CLOSEST * max(1.0, float(knots[-1] - knots[0]))
    kept = [0]
    for place in range(1, len(knots)):
        if knots[place] - knots[kept[-1]] > least:
            kept.append(place)
    return knots[kept], np.array(kept)


def _slopes(knots: FloatArray, scores: FloatArray) -> FloatArray:
    """Slopes at the knots: geometric means of the chords on both sides, as in the reference."""
    widths = np.diff(knots)
    chords = np.log(np.diff(scores) / widths)
    inner = (widths[1:] * chords[:-1] + widths[:-1] * chords[1:]) / (widths[1:] + widths[:-1])
    slopes = np.exp(np.concatenate([chords[:1], inner, chords[-1:]]))
    slopes[[0, -1]] = slopes[[0, -1]].clip(*OUTER_SLOPES)
    return slopes


def _rational(
    u: FloatArray, knots: FloatArray, scores: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The rational-quadratic piece at `u` inside the knots, and its derivative."""
    k = np.searchsorted(knots, u, side="right").clip(1, len(knots) - 1) - 1
    width, height = knots[k + 1] - knots[k], scores[k + 1] - scores[k]
    chord, left, right = height / width, slopes[k], slopes[k + 1]
    part = (u - knots[k]) / width
    rest = 1.0 - part
    below = chord + (left + right - 2 * chord) * part * rest
    z = scores[k] + height * (chord * part**2 + left * part * rest) / below
    above = right * part**2 + 2 * chord * part * rest + left * rest**2
    return z, (chord / below) ** 2 * above


def _inverse_rational(
    z: FloatArray, knots: FloatArray, scores: FloatArray, slopes: FloatArray
) -> FloatArray:
    """Solves the quadratic of the piece that holds `z`, by the root that does not cancel."""
    k = np.searchsorted(scores, z, side="right").clip(1, len(knots) - 1) - 1
    width, height = knots[k + 1] - knots[k], scores[k + 1] - scores[k]
    chord, left, right = height / width, slopes[k], slopes[k + 1]
    part = (z - scores[k]) / height
    bend = part * (left + right - 2 * chord)
    a, b, c = chord - left + bend, left - bend, -chord * part
    root = np.sqrt(np.maximum(b * b - 4 * a * c, 0.0))
    return knots[k] + width * (2 * c / (-b - root)).clip(0.0, 1.0)
