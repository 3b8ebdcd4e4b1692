"""Which codes of a column of numbers stand for the values from one to another.

Decoding rounds: every code within half a step of 500 is 500, and what is beyond a dtype's range is
at its end. So the codes of an interval are more than those between the codes of its two ends. They
are found by asking `decode`, which never falls, and dividing the numbers of float32. What is drawn
between them decodes into the interval, the atoms inside it are those that are asked for, and
intervals that touch, such as 1 to 3 and 4 to 6, leave nothing out between them.
"""

import numpy as np
from numpy.typing import NDArray

from anyorder.data.coercion import BoolArray
from anyorder.data.columns import NumberColumn
from anyorder.data.gaussianizer import FloatArray

OUTERMOST = int(np.float32(1e5).view(np.int32))
"""The place of a code beyond all others (see `Gaussianizer`) among the numbers of float32."""

AT_ONCE = 1024
"""Codes that are decoded together: hardly slower than one, and four times are enough for an end."""


def codes_up_to(column: NumberColumn, numbers: FloatArray) -> FloatArray:
    """The greatest code that decodes to each number or to less."""
    return _codes(_places(column, numbers, np.zeros(len(numbers), dtype=bool)))


def code_range(
    column: NumberColumn, low: float | None, high: float | None
) -> tuple[float, float] | None:
    """The least and the greatest code that decode to a number from `low` to `high`.

    None stands for no bound there, and as an answer for no value of the column in between.
    """
    ends = np.array([np.nan if end is None else end for end in (low, high)])
    before, last = _places(column, ends, np.array([True, False]))
    first, last = _codes(np.array([before + 1, last])).tolist()
    if low is not None and high is not None and first > last:
        return _between_codes(column, ends)
    return -np.inf if low is None else first, np.inf if high is None else last


def _between_codes(column: NumberColumn, ends: FloatArray) -> tuple[float, float] | None:
    """The codes of the ends, if they have some: steps of great numbers are finer than float32."""
    rounded = column.rounded(ends)
    inside = (rounded >= ends[0]) & (rounded <= ends[1])
    codes = column.encode(column.restore(ends))[0][inside]
    return (float(codes.min()), float(codes.max())) if len(codes) else None


def _places(column: NumberColumn, numbers: FloatArray, is_open: BoolArray) -> NDArray[np.int64]:
    """The place of the last code that decodes to less than each number, or to it if not open."""
    wanted = column.measurement.held(numbers)[:, None]
    low, high = np.full(len(numbers), -OUTERMOST), np.full(len(numbers), OUTERMOST)
    parts = max(2, AT_ONCE // max(1, len(numbers)))
    while (high - low > 1).any():
        edges = low[:, None] + (high - low)[:, None] * np.arange(parts + 1) // parts
        inner = edges[:, 1:-1]  # (numbers, parts - 1)
        decoded = column.rounded(column.numbers(_codes(inner.flatten()))).reshape(inner.shape)
        fits = np.where(is_open[:, None], decoded < wanted, decoded <= wanted)
        last = fits.sum(axis=1, keepdims=True)
        low, high = (np.take_along_axis(edges, last + i, axis=1)[:, 0] for i in (0, 1))
    return low


def _codes(places: NDArray[np.int64]) -> FloatArray:
    """The numbers of float32 by their places: 0 is at 0, the next ones at 1 and -1."""
    sizes = np.abs(places).astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(places < 0, -sizes, sizes)
