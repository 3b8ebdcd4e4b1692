"""What distributions on the real line share, given a density, a CDF and its inverse."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from anyorder.conditionals.quadrature import highest, mean_rule, quantile_nodes
from anyorder.errors import QueryError
from anyorder.random_sets import uniform

HALF_LOG_TAU = math.log(2 * math.pi) / 2
"""Minus the log density of a standard normal at zero."""

DRAWN_EDGE = 2.0**-53
"""Uniform numbers are kept this far from 0 and 1, whose quantiles are infinite."""


class ContinuousDistribution(ABC):
    """One density an edge. Subclasses are exactly normalised."""

    @abstractmethod
    def log_prob(self, values: Tensor) -> Tensor:
        """The log density. Shape ``(...)``, or ``(count, ...)`` for several values an edge."""

    @abstractmethod
    def cdf(self, values: Tensor) -> Tensor:
        """The probability of at most `values`; shapes as `log_prob`."""

    @abstractmethod
    def icdf(self, probability: Tensor) -> Tensor:
        """The quantile of a probability in (0, 1); shapes as `log_prob`."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor with the shape, the dtype and the device of the edges."""

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """A draw, by inversion."""
        like = self.like
        u = uniform(like.shape, device=like.device, generator=generator)
        # Doubles: a float32 near one rounds to one, and its quantile is infinite.
        return self.icdf(u.clamp(DRAWN_EDGE, 1 - DRAWN_EDGE)).to(like.dtype)

    def nodes(self) -> tuple[Tensor, Tensor]:
        """Values and weights by which expectations are sums. Shapes ``(nodes, ...)``.

        Many quantiles here; families that have something better overrule it.
        """
        like = self.like
        shape = (-1, *[1] * like.ndim)
        shares, weights = (part.to(like.device).view(shape) for part in mean_rule())
        quantiles = self.icdf(shares.expand(-1, *like.shape))
        return quantiles, weights.expand_as(quantiles)

    def mean(self) -> Tensor:
        """The expectation."""
        values, weights = self.nodes()
        return (weights * values).sum(dim=0).to(self.like.dtype)

    def mode(self) -> Tensor:
        """Where the density is highest."""
        return highest(self.log_prob, self._quantiles())

    def entropy(self) -> Tensor:
        """The differential entropy in nats, from the surprise of many quantiles."""
        return -self.log_prob(self._quantiles()).mean(dim=0)

    def tempered(self, temperature: float, top_k: int | None = None) -> "ContinuousDistribution":
        """Sharper or flatter, where the family allows it."""
        del temperature, top_k
        raise QueryError("This distribution has no temperature: use a mixture, or temperature 1.")

    def _quantiles(self) -> Tensor:
        """Equally probable quantiles ``(nodes, ...)`` that span the distribution."""
        like = self.like
        nodes = quantile_nodes(like).view(-1, *[1] * like.ndim)
        return self.icdf(nodes.expand(-1, *like.shape))


def stacked(parts: Sequence[Any]) -> Any:
    """Distributions of one family and shape as one, with a leading axis for the parts.

    What is asked of it is computed for all of them at once, which is faster where each is small.
    """
    first = parts[0]
    names = [
        field.name for field in fields(first) if isinstance(getattr(first, field.name), Tensor)
    ]
    columns = {name: torch.stack([getattr(part, name) for part in parts]) for name in names}
    return replace(first, **columns)
