"""Contracts of distributions and heads, and one-dimensional numerics that densities share.

Inverses, means, modes and entropies need a density, a CDF and its inverse only. All functions are
vectorised over the edges and work in the dtype that they are given.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from anyorder.errors import QueryError
from anyorder.lattice.random_sets import uniform


class Distribution(Protocol):
    """One distribution of one variable an edge; all results have the shape of the edges."""

    def log_prob(self, values: Tensor) -> Tensor:
        """The log probability (or density) of values."""
        ...

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of at most `values`."""
        ...

    def icdf(self, probability: Tensor) -> Tensor:
        """The least value whose CDF reaches a probability."""
        ...

    def mean(self) -> Tensor:
        """The expectation; of codes, for categorical variables."""
        ...

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """One sample an edge."""
        ...

    def mode(self) -> Tensor:
        """The most probable value."""
        ...

    def entropy(self) -> Tensor:
        """In nats."""
        ...

    def tempered(self, temperature: float, top_k: int | None = None) -> "Distribution":
        """Sharper or flatter, and without all but the most probable values."""
        ...


class Conditionals(nn.Module, ABC):
    """Turns the features of edges into the distributions of their variables.

    Heads beside a prior take its `PriorMessage` about the same edges as a third argument.
    """

    width: int
    has_prior: bool = False

    @abstractmethod
    def forward(self, features: Tensor, variables: Tensor) -> Distribution:
        """The conditionals of edges.

        Args:
            features: Shape ``(..., width)``.
            variables: The variable of each edge. Shape ``(...)``.
        """


INITIAL_SCALE = 0.1
"""Scale of the projections: a head starts near a standard normal, whatever the features."""

LEAST_LOG_SCALE = math.log(1e-4)
"""Values are standardised: narrower components would be atoms, which have their own head."""

GREATEST_LOG_SCALE = math.log(1e3)


class VariableProjection(nn.Module):
    """Features to numbers, with a scale of the features and a bias for each variable.

    Args:
        num_variables: How many variables.
        width: Size of the features.
        start: The numbers at first.
    """

    def __init__(self, num_variables: int, *, width: int, start: Sequence[float]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(num_variables, width))
        self.weight = nn.Parameter(torch.empty(len(start), width))
        self.bias = nn.Parameter(torch.tensor(start).repeat(num_variables, 1))
        nn.init.normal_(self.weight, std=INITIAL_SCALE * width**-0.5)

    def forward(self, features: Tensor, variables: Tensor) -> Tensor:
        """Shape ``(..., numbers)``."""
        scaled = features * self.scale[variables]
        return nn.functional.linear(scaled, self.weight) + self.bias[variables]


def bounded(log_scales: Tensor) -> Tensor:
    """Log scales between the least and the greatest, with a gradient everywhere."""
    above = LEAST_LOG_SCALE + nn.functional.softplus(log_scales - LEAST_LOG_SCALE)
    return GREATEST_LOG_SCALE - nn.functional.softplus(GREATEST_LOG_SCALE - above)


BISECTIONS = 64
"""Halvings of a bracket: below the rounding of a double, whatever the bracket."""

NODES = 512
"""Quantiles that stand for a distribution in its entropy and the search for its mode."""

MEAN_DEPTH = 24
"""The outermost cells of a mean have this probability, as a power of one half."""

REFINEMENTS = 24
"""Golden sections of the bracket around the best candidate."""

GOLDEN = (math.sqrt(5) - 1) / 2


def invert(
    increasing: Callable[[Tensor], Tensor], wanted: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """The least argument at which an increasing function reaches `wanted`, by bisection.

    Args:
        increasing: Vectorised over the edges.
        wanted: What it shall reach. Shape ``(...)``.
        low: Where it is at or below that. Shape ``(...)``.
        high: Where it is at or above that. Shape ``(...)``.
    """
    for _ in range(BISECTIONS):
        middle = low + (high - low) / 2
        below = increasing(middle) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def quantile_nodes(like: Tensor) -> Tensor:
    """The middles of equally probable parts of (0, 1), ascending. Shape ``(nodes,)``."""
    return (torch.arange(NODES, dtype=like.dtype, device=like.device) + 0.5) / NODES


def mean_rule(cells: int = 128) -> tuple[Tensor, Tensor]:
    """Probabilities whose quantiles have the mean of a distribution, and their weights, float64.

    Cells of equal probability, and at both ends ever smaller ones, each half of the one before:
    the mean of a skewed column is in its tail.

    Args:
        cells: Of equal probability, a power of two; fewer do where many distributions are mixed.
    """
    tail = 2.0 ** -torch.arange(MEAN_DEPTH, int(math.log2(cells)), -1, dtype=torch.float64)
    bulk = torch.arange(1, cells, dtype=torch.float64) / cells
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    edges = torch.cat([ends[:1], tail, bulk, 1 - tail.flip(0), ends[1:]])
    return (edges[1:] + edges[:-1]) / 2, edges.diff()


def highest(log_density: Callable[[Tensor], Tensor], candidates: Tensor) -> Tensor:
    """Where a density is highest, from sorted candidates ``(count, ...)`` that span its mass.

    The bracket around the best candidate is narrowed by golden sections: a mode between two
    candidates is found, one that is narrower than their distance may be missed.
    """
    heights = log_density(candidates)
    best = heights.argmax(dim=0, keepdim=True)
    last = len(candidates) - 1
    low = candidates.gather(0, (best - 1).clamp(min=0))[0]
    high = candidates.gather(0, (best + 1).clamp(max=last))[0]
    for _ in range(REFINEMENTS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        is_left = log_density(left) > log_density(right)
        low, high = torch.where(is_left, low, left), torch.where(is_left, right, high)
    refined, found = low + (high - low) / 2, candidates.gather(0, best)[0]
    return torch.where(log_density(refined) > heights.gather(0, best)[0], refined, found)


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
        """One sample an edge, by inversion."""
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
        """The differential entropy in nats, from the log densities of many quantiles."""
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
