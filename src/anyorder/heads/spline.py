"""Monotone rational-quadratic splines: densities of any shape, everything in closed form.

A value is shifted and scaled, bent by a monotone spline on [-BOUND, BOUND] that is the identity
outside, and then standard normal: p(v) = phi(g(s)) g'(s) / scale with s = (v - location) / scale.
So CDF and quantiles are closed forms, and the tails are Gaussian ones of the learned scale.

Reference: Gregory and Delbourgo (1982); Durkan et al. (2019), neural spline flows. zuko has this
spline as a flow; ours is these few lines because a head needs both directions and the derivative
for values with a leading axis, and one more dependency would save none of them.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.special import ndtr, ndtri

from anyorder.errors import check_count
from anyorder.heads.distributions import (
    HALF_LOG_TAU,
    Conditionals,
    ContinuousDistribution,
    VariableProjection,
    bounded,
)
from anyorder.variables import Schema

BOUND = 4.0
"""Ends of the spline, in standard deviations of the base."""

LEAST_BIN = 1e-3
"""Least width and height of a bin, as a share of the interval."""

LEAST_SLOPE = 1e-3
"""Least slope at a knot."""


@dataclass(frozen=True)
class Spline(ContinuousDistribution):
    """A spline on top of a normal distribution.

    Args:
        widths: Logits of the bins' widths. Shape ``(..., bins)``.
        heights: Logits of the bins' heights. Shape ``(..., bins)``.
        slopes: Slopes at inner knots, before softplus; 0 is slope 1. Shape ``(..., bins - 1)``.
        location: Location of the base. Shape ``(...)``.
        log_scale: Log scale of the base. Shape ``(...)``.
    """

    widths: Tensor
    heights: Tensor
    slopes: Tensor
    location: Tensor
    log_scale: Tensor

    @property
    def like(self) -> Tensor:
        """A tensor with the shape of the edges."""
        return self.location

    def log_prob(self, values: Tensor) -> Tensor:
        """Returns the log density."""
        bent, log_slope = self._bend((values - self.location) * (-self.log_scale).exp())
        return -0.5 * bent.square() - HALF_LOG_TAU + log_slope - self.log_scale

    def cdf(self, values: Tensor) -> Tensor:
        """Returns the probability of at most `values`."""
        return ndtr(self._bend((values - self.location) * (-self.log_scale).exp())[0])

    def icdf(self, probability: Tensor) -> Tensor:
        """Returns the quantile."""
        return self.location + self.log_scale.exp() * self._unbend(ndtri(probability))

    def moved(self, location: Tensor, log_scale: Tensor) -> "Spline":
        """Returns the distribution of location + exp(log_scale) * value."""
        location = location + log_scale.exp() * self.location
        return replace(self, location=location, log_scale=self.log_scale + log_scale)

    def _bend(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Returns g(s) and log g'(s)."""
        inside = s.clamp(-BOUND, BOUND)
        x, y, w, h, low, high = self._bin(inside, of_heights=False)
        rise, t = h / w, ((inside - x) / w).clamp(0, 1)
        both = t * (1 - t)
        below = rise + (low + high - 2 * rise) * both
        bent = y + h * (rise * t.square() + low * both) / below
        slope = rise.square() * (high * t.square() + 2 * rise * both + low * (1 - t).square())
        log_slope = slope.log() - 2 * below.log()
        out = s.abs() > BOUND
        return torch.where(out, s, bent), log_slope.masked_fill(out, 0)

    def _unbend(self, y: Tensor) -> Tensor:
        """Returns the inverse of g: the root in [0, 1] of a quadratic."""
        inside = y.clamp(-BOUND, BOUND)
        left, bottom, w, h, low, high = self._bin(inside, of_heights=True)
        rise, up = h / w, inside - bottom
        bend = low + high - 2 * rise
        a = h * (rise - low) + up * bend
        b = h * low - up * bend
        c = -rise * up
        root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
        t = (2 * c / (-b - root)).clamp(0, 1)
        return torch.where(y.abs() > BOUND, y, left + t * w)

    def _bin(self, places: Tensor, *, of_heights: bool) -> tuple[Tensor, ...]:
        """Returns the bin of each place: corner, width, height and the slopes at its two knots."""
        x, w = _knots(self.widths)
        y, h = _knots(self.heights)
        ends = math.log(math.expm1(1 - LEAST_SLOPE))  # softplus gives slope 1 where the tails begin
        slopes = LEAST_SLOPE + F.softplus(F.pad(self.slopes + ends, (1, 1), value=ends))
        inner = (y if of_heights else x)[..., 1:]
        index = (places.unsqueeze(-1) >= inner).sum(-1, keepdim=True)
        index = index.clamp(max=self.widths.shape[-1] - 1)

        def at(table: Tensor, place: Tensor) -> Tensor:
            return table.expand(*place.shape[:-1], -1).gather(-1, place)[..., 0]

        return (
            *(at(table, index) for table in (x, y, w, h)),
            at(slopes, index),
            at(slopes, index + 1),
        )


def _knots(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the starts and the sizes of bins, from logits. Shapes ``(..., bins)``."""
    bins = logits.shape[-1]
    sizes = 2 * BOUND * (LEAST_BIN + (1 - LEAST_BIN * bins) * logits.softmax(-1))
    return F.pad(sizes.cumsum(-1)[..., :-1], (1, 0)) - BOUND, sizes


class SplineConditionals(Conditionals):
    """Rational-quadratic splines on a normal base.

    Args:
        schema: The variables.
        width: Size of the features.
        bins: Number of pieces of a spline.
    """

    def __init__(self, schema: Schema, *, width: int, bins: int = 16) -> None:
        super().__init__()
        check_count("bins", bins, low=2, high=256)
        self.schema, self.width, self.bins = schema, width, bins
        self.projection = VariableProjection(len(schema), width=width, start=[0.0] * (3 * bins + 1))

    def forward(self, features: Tensor, variables: Tensor) -> Spline:
        """Returns the densities of edges; see `Conditionals.forward`."""
        numbers, bins = self.projection(features, variables), self.bins
        location, log_scale = numbers[..., -2], numbers[..., -1]
        return Spline(
            numbers[..., :bins],
            numbers[..., bins : 2 * bins],
            numbers[..., 2 * bins : 3 * bins - 1],
            location,
            bounded(log_scale),
        )
