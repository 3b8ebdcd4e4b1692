"""Numbers: invertible maps from the values of a column to float64, and on to normal scores.

A column of whole numbers, decimals, dates, times with a zone or durations is a real number to a
model. `Measurement` converts between the two: it holds an origin, a unit, a zone, the step to which
values are rounded, and the dtype of the column.

`Gaussianizer` maps these numbers to a scale on which they are about standard normal. Money, counts
and times span orders of magnitude and have long tails; a network and a mixture of densities want
numbers near zero. The map is fitted once to the quantiles of the data, then fixed: strictly
increasing, smooth, exactly invertible, and with a known derivative, so that a density on one scale
is a density on the other.

    t = (x - median) / scale       centred, in units of half the interquartile range
    u = asinh(t)                   linear near the centre, logarithmic in the tails
    z = spline(u)                  through quantiles to normal scores, linear beyond them

The logarithm is what keeps `z` small for every finite double, and a line in `u` is a power law in
`x`: heavy tails stay heavy.

Reference:
    Gregory and Delbourgo (1982), Piecewise rational quadratic interpolation to monotonic data.
"""

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api import types

from anyorder.errors import AnyOrderError, QueryError, SchemaError
from anyorder.tables.parsing import (
    BoolArray,
    FloatArray,
    as_dtype,
    dtype_of,
    plain,
    plain_dtype,
    read_datetimes,
    read_durations,
    read_floats,
)

MOST_KNOTS = 33
"""Greatest number of knots: more would fit the noise of the sample."""

POINTS_BEYOND = 10
"""Points beyond the outermost knots: fewer would not determine a quantile."""

OUTER_SLOPES = (0.2, 5.0)
"""dz/du beyond the knots. The lower end keeps samples from running away, the upper one keeps
|z| below 1e4 where |u|, at most 1420 for doubles, is greatest."""

CLOSEST = 1e-7
"""Knots nearer than this, or than this fraction of their range, are merged: float32 cannot resolve
them."""

FAR = 1e8
"""From here on asinh(t) is log(2t) in double precision."""

LARGEST = float(np.finfo(np.float64).max)
SMALLEST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Gaussianizer:
    """A strictly increasing smooth map of the real line, with its inverse and its derivative.

    Args:
        median: Value at which `u` is zero.
        scale: Unit of `t`.
        knots: Values of `u` at the knots, ascending.
        scores: Values of `z` at the knots, ascending.
        slopes: dz/du at the knots, positive; the outer ones hold beyond them too.

    Example:
        >>> scores = Gaussianizer.fit(np.arange(1001.0) ** 3)
        >>> scores.forward(np.array([100.0, 500.0, 900.0]) ** 3).round(2).tolist()
        [-1.28, 0.0, 1.28]
    """

    median: float
    scale: float
    knots: tuple[float, ...]
    scores: tuple[float, ...]
    slopes: tuple[float, ...]

    @property
    def rises(self) -> bool:
        """True if it is increasing, as what `fit` returns; a description could say otherwise."""
        knots, scores, slopes = self._arrays()
        sizes = len(knots) == len(scores) == len(slopes)
        steps = np.concatenate([np.diff(knots), np.diff(scores), slopes])
        return sizes and bool(np.isfinite(steps).all() and (steps > 0).all())

    @classmethod
    def fit(cls, values: ArrayLike) -> "Gaussianizer":
        """Fits the map under which `values`, finite and at least one, are about normal."""
        ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
        median = float(ordered[(len(ordered) - 1) // 2])
        affine = cls(median, _scale(ordered, median), (0.0,), (0.0,), (1.0,))
        quantiles, scores = _quantiles(ordered)
        knots, kept = _merged(affine._bend(quantiles)[0])
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
        """Returns the `z` of values: finite, |z| < 1e4, for every finite double."""
        return self._spline(self._bend(x)[0])[0]

    def inverse(self, z: ArrayLike) -> FloatArray:
        """Returns the values of `z`, clipped to the finite doubles."""
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
        """Returns log dz/dx: added to a log density of `z`, it gives one of `x`."""
        u, log_bend = self._bend(x)
        return np.log(self._spline(u)[1]) + log_bend

    def _bend(self, x: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Returns `u`, and log du/dx."""
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
        """Returns `z`, and dz/du."""
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
    """Returns half the interquartile range; the standard deviation if that is zero; else 1."""
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
    """Returns distinct values at evenly spaced normal scores, and the score of each.

    The score of a repeated value is that of the middle of its ranks.
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


def _merged(knots: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """Returns the knots without those too near the one before, and their indices."""
    least = CLOSEST * max(1.0, float(knots[-1] - knots[0]))
    kept = [0]
    for place in range(1, len(knots)):
        if knots[place] - knots[kept[-1]] > least:
            kept.append(place)
    return knots[kept], np.array(kept)


def _slopes(knots: FloatArray, scores: FloatArray) -> FloatArray:
    """Returns slopes at the knots: geometric means of the chords on both sides (the reference)."""
    widths = np.diff(knots)
    chords = np.log(np.diff(scores) / widths)
    inner = (widths[1:] * chords[:-1] + widths[:-1] * chords[1:]) / (widths[1:] + widths[:-1])
    slopes = np.exp(np.concatenate([chords[:1], inner, chords[-1:]]))
    slopes[[0, -1]] = slopes[[0, -1]].clip(*OUTER_SLOPES)
    return slopes


def _rational(
    u: FloatArray, knots: FloatArray, scores: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Evaluates the rational-quadratic spline at `u` inside the knots, and its derivative."""
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


Measure = Literal["number", "datetime", "timedelta", "date"]

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TIME_STEPS = (86400.0, 3600.0, 60.0, 1.0, 1e-3, 1e-6)
"""Steps that times are rounded to: day, hour, minute, second, millisecond, microsecond."""

MOST_DECIMALS = 6
EXACT = 2**53
"""Bound up to which float64 holds every whole number."""

YEARS = (np.datetime64("0001-01-01", "s"), np.datetime64("9999-12-31", "s"))
"""Range of Python's dates; a sample beyond it is clipped."""

FARTHEST = 2**62
"""Greatest distance from the origin in units: the sum of the two is then an int64."""

LONGEST_SECONDS = 8.6e13
"""Range of Python's timedelta."""


@dataclass(frozen=True)
class Measurement:
    """The conversion between the values of a column and float64 numbers.

    Args:
        measure: "number", "datetime", "timedelta" or "date".
        dtype: The pandas dtype of the column.
        unit: Unit of times: "s", "ms", "us" or "ns".
        zone: Time zone of a datetime, or None.
        origin: Value of number 0: a whole number, or units since 1970. It is a value of the
            column, so that float64 seconds keep their last digits.
        resolution: Step that all values are multiples of, in numbers (times: in seconds).
        decimal: True for Python's `Decimal`.
        form: Form of dates that are text, if it is not ISO 8601; see `parsing.py`.
    """

    measure: Measure
    dtype: str
    unit: str = ""
    zone: str | None = None
    origin: int = 0
    resolution: float | None = None
    decimal: bool = False
    form: str = ""

    @classmethod
    def of(cls, series: pd.Series, name: str) -> "Measurement":
        """Infers the measurement of a column of numbers or times with at least one value."""
        values = plain(series)
        kind = types.infer_dtype(values, skipna=True) if values.dtype == object else ""
        if types.is_datetime64_any_dtype(values.dtype) or kind == "date":
            return _of_datetimes(series, name, "date" if kind == "date" else "datetime")
        if types.is_timedelta64_dtype(values.dtype):
            first = cls("timedelta", str(series.dtype), unit=str(values.dt.unit))
            ticks, gone = first._ticks(series, name, SchemaError)
            return _with_step(first, ticks[~gone])
        return _of_numbers(series, name, decimal=kind == "decimal")

    def numbers(
        self, series: pd.Series, name: str, error: type[AnyOrderError] = QueryError
    ) -> FloatArray:
        """Returns the values as numbers, NaN where missing; raises `error` at an invalid one."""
        if self.measure == "number":
            found = _exact_integers(series, self.origin) if self.origin else None
            found = read_floats(series, name, error) - self.origin if found is None else found
            _refuse_infinities(found, series, name, error)
            return found
        ticks, gone = self._ticks(series, name, error)
        seconds = _difference(ticks, self.origin) / PER_SECOND[self.unit]
        return np.where(gone, np.nan, seconds)

    def held(self, numbers: FloatArray) -> FloatArray:
        """Rounds numbers to the precision of the column's dtype: float32 has no 0.1."""
        dtype = plain_dtype(dtype_of(self.dtype) or np.dtype(np.float64))
        if self.measure != "number" or self.decimal or not types.is_float_dtype(dtype):
            return numbers
        with np.errstate(over="ignore"):
            return numbers.astype(dtype).astype(np.float64)

    def restore(self, numbers: FloatArray, missing: BoolArray, name: str) -> pd.Series:
        """Converts numbers to values, rounded to the resolution, in the dtype if possible."""
        if self.measure == "number":
            return self._restored_numbers(numbers, missing, name)
        values = self._restored_times(numbers)
        values = values.mask(pd.Series(missing))
        if self.measure == "date":
            values = values.dt.date.astype(object).where(~pd.Series(missing), None)
        elif self.zone is not None:
            values = values.dt.tz_localize("UTC").dt.tz_convert(self.zone)
        return as_dtype(values, self.dtype).rename(name)

    def _ticks(
        self, series: pd.Series, name: str, error: type[AnyOrderError]
    ) -> tuple[NDArray[np.int64], BoolArray]:
        """Returns times as whole units (datetimes: since 1970 in UTC), and True where missing."""
        if self.measure == "timedelta":
            times = read_durations(series, name, error)
        else:
            times = read_datetimes(series, name, error, form=self.form)
        zoned = isinstance(times.dtype, pd.DatetimeTZDtype)
        if zoned != (self.zone is not None):
            raise error(
                f'Column "{name}" must hold times {"with" if self.zone else "without"} a time '
                "zone, as in training. Change it with .dt.tz_localize."
            )
        times = times.dt.tz_convert("UTC").dt.tz_localize(None) if zoned else times
        gone = times.isna().to_numpy()
        try:
            return times.dt.as_unit(self.unit).to_numpy().astype(np.int64), gone
        except (pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
            raise error(
                f'Column "{name}" holds a time that its unit, "{self.unit}", cannot express.'
            ) from None

    def _restored_times(self, seconds: FloatArray) -> pd.Series:
        per = PER_SECOND[self.unit]
        # With a known step the count of steps is exact; seconds of nanoseconds are not.
        step = max(1, round((self.resolution or 0) * per))
        low, high = (end - self.origin for end in self._bounds())
        within = seconds.clip(max(low, -FARTHEST) / per, min(high, FARTHEST) / per)
        count = np.rint(within * (per / step))
        ticks = self.origin + count.astype(np.int64) * step
        kind = "timedelta64" if self.measure == "timedelta" else "datetime64"
        return pd.Series(ticks.view(f"{kind}[{self.unit}]"))

    def _bounds(self) -> tuple[int, int]:
        """Returns the least and greatest ticks, with room for rounding."""
        per, most = PER_SECOND[self.unit], 2**63 - 2**48
        if self.measure == "timedelta":
            return max(-most, int(-LONGEST_SECONDS * per)), min(most, int(LONGEST_SECONDS * per))
        first, last = (int(year.astype(np.int64)) * per for year in YEARS)
        return max(-most, first), min(most, last)

    def _restored_numbers(self, numbers: FloatArray, missing: BoolArray, name: str) -> pd.Series:
        if self.decimal:
            return pd.Series(self._decimals(numbers, missing), dtype=object, name=name)
        dtype = dtype_of(self.dtype) or np.dtype(np.float64)
        if types.is_integer_dtype(dtype):
            values = pd.Series(self._integers(numbers, np.dtype(plain_dtype(dtype))), name=name)
        else:
            most = np.finfo(plain_dtype(dtype)).max if types.is_float_dtype(dtype) else np.inf
            values = pd.Series(self._rounded(numbers).clip(-most, most), name=name)
        return as_dtype(values, self.dtype, missing=missing)

    def _rounded(self, numbers: FloatArray) -> FloatArray:
        if self.resolution is None:
            return numbers
        decimals = round(-np.log10(self.resolution))
        small = np.abs(numbers) < EXACT / 10**decimals  # beyond, every double is a multiple
        return np.where(small, np.round(np.where(small, numbers, 0.0), decimals), numbers)

    def _integers(self, numbers: FloatArray, dtype: np.dtype[Any]) -> NDArray[Any]:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        whole = np.rint(numbers)
        if self.origin:  # one by one, as Python's integers, which are exact
            exact = (int(number) + self.origin for number in whole.tolist())
            return np.array([min(max(number, low), high) for number in exact], dtype=dtype)
        # The greatest int64 is not a float64: the nearest one is too great by one.
        ends = (float(low), float(high)) if high < EXACT else np.nextafter((low, float(high)), 0)
        return whole.clip(*ends).astype(dtype)

    def _decimals(self, numbers: FloatArray, missing: BoolArray) -> list[Decimal | None]:
        rounded = self._rounded(numbers).tolist()
        places = None if self.resolution is None else round(-np.log10(self.resolution))
        texts = [repr(v) if places is None else f"{v:.{places}f}" for v in rounded]
        return [None if gone else Decimal(text) for text, gone in zip(texts, missing, strict=True)]


def _of_numbers(series: pd.Series, name: str, *, decimal: bool) -> Measurement:
    plain_series = plain(series)
    if types.is_complex_dtype(plain_series.dtype):
        raise SchemaError(
            f'Column "{name}" holds complex numbers; give the real and the imaginary part each a '
            "column."
        )
    values = read_floats(plain_series, name, SchemaError)
    _refuse_infinities(values, series, name, SchemaError)
    values = values[~np.isnan(values)]
    if types.is_integer_dtype(plain_series.dtype):
        origin = 0 if np.abs(values).max() < EXACT else _middle_integer(plain_series)
        return Measurement("number", str(series.dtype), origin=origin, resolution=1.0)
    single = types.is_float_dtype(series.dtype) and np.dtype(plain_dtype(series.dtype)).itemsize < 8
    precision = plain_dtype(series.dtype) if single else np.float64
    resolution = _decimal_step(values, np.dtype(precision))
    dtype = str(series.dtype) if decimal or types.is_numeric_dtype(series.dtype) else "float64"
    return Measurement("number", dtype, resolution=resolution, decimal=decimal)


def _of_datetimes(series: pd.Series, name: str, measure: Measure) -> Measurement:
    times = read_datetimes(series, name, SchemaError)
    zone = str(times.dt.tz) if isinstance(times.dtype, pd.DatetimeTZDtype) else None
    dtype = str(series.dtype)
    if zone is not None and dtype_of(str(times.dtype)) != times.dtype:
        # A zone without a name, such as a file's, cannot be saved: the instants are kept.
        zone, dtype = "UTC", f"datetime64[{times.dtype.unit}, UTC]"
    first = Measurement(measure, dtype, unit=str(times.dt.unit), zone=zone)
    ticks, gone = first._ticks(times, name, SchemaError)
    present = np.sort(ticks[~gone])
    origin = int(present[len(present) // 2])
    return _with_step(replace(first, origin=origin), ticks[~gone])


def _with_step(measured: Measurement, ticks: NDArray[np.int64]) -> Measurement:
    """Returns the measurement with the coarsest step that divides all ticks, from the origin."""
    per = PER_SECOND[measured.unit]
    for step in TIME_STEPS:
        count = round(step * per)
        if count >= 1 and not ((ticks - measured.origin) % count).any():
            return replace(measured, resolution=step)
    return measured


def _middle_integer(series: pd.Series) -> int:
    """Returns the median if int64 holds it, else 0: then the last digits are lost."""
    values = series.dropna()
    if int(values.max()) >= 2**63:
        return 0
    return int(np.sort(values.to_numpy(dtype=np.int64))[len(values) // 2])


def _decimal_step(values: FloatArray, precision: np.dtype[Any]) -> float | None:
    most = float(np.abs(values).max())
    for decimals in range(MOST_DECIMALS + 1):
        if most * 10**decimals >= EXACT:
            return None
        rounded = np.round(values, decimals).astype(precision).astype(np.float64)
        if (rounded == values).all():
            return float(10.0**-decimals)
    return None


def _difference(ticks: NDArray[np.int64], origin: int) -> FloatArray:
    """Returns ticks - origin, computed in int64 unless that would overflow."""
    rough = ticks.astype(np.float64) - float(origin)
    return np.where(np.abs(rough) < 2**62, (ticks - np.int64(origin)).astype(np.float64), rough)


def _exact_integers(series: pd.Series, origin: int) -> FloatArray | None:
    """Returns large integers minus the origin, exactly; None if the dtype is not integer."""
    values = plain(series)
    if not types.is_integer_dtype(values.dtype) or types.is_unsigned_integer_dtype(values.dtype):
        return None
    gone = values.isna().to_numpy()
    ticks = values.fillna(origin).to_numpy(dtype=np.int64)
    return np.where(gone, np.nan, _difference(ticks, origin))


def _refuse_infinities(
    values: FloatArray, series: pd.Series, name: str, error: type[AnyOrderError]
) -> None:
    places = np.flatnonzero(np.isinf(values))
    if len(places):
        raise error(
            f'Column "{name}" must hold finite numbers; row {series.index[places[0]]} is '
            f"{values[places[0]]}. Replace it by NaN, or declare missing_values=[inf, -inf]."
        )
