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
from anyorder.lattice.masks import uniform


class Distribution(Protocol):
    """One distribution of one variable for each edge; results have the shape of the edges."""

    def log_prob(self, values: Tensor) -> Tensor:
        """Returns the log probability (or density) of values."""
        ...

    def cdf(self, values: Tensor) -> Tensor:
        """Returns the probability of at most `values`."""
        ...

    def icdf(self, probability: Tensor) -> Tensor:
        """Returns the least value whose CDF reaches a probability."""
        ...

    def mean(self) -> Tensor:
        """Returns the expectation; of codes, for categorical variables."""
        ...

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Samples one value for each edge."""
        ...

    def mode(self) -> Tensor:
        """Returns the most probable value."""
        ...

    def entropy(self) -> Tensor:
        """Returns the entropy in nats."""
        ...

    def tempered(self, temperature: float, top_k: int | None = None) -> "Distribution":
        """Returns the distribution at a temperature, of the `top_k` most probable values only."""
        ...


class Conditionals(nn.Module, ABC):
    """Turns the features of edges into the distributions of their variables.

    Heads beside a prior take its `PriorMessage` about the same edges as a third argument.
    """

    width: int
    has_prior: bool = False

    @abstractmethod
    def forward(self, features: Tensor, variables: Tensor) -> Distribution:
        """Returns the conditionals of edges.

        Args:
            features: Features of the edges. Shape ``(..., width)``.
            variables: Variable of each edge. Shape ``(...)``.
        """


INITIAL_SCALE = 0.1
"""Scale of the projections: a head starts near a standard normal, whatever the features."""

LEAST_LOG_SCALE = math.log(1e-4)
"""Values are standardised: narrower components would be atoms, which have their own head."""

GREATEST_LOG_SCALE = math.log(1e3)


class VariableProjection(nn.Module):
    """Linear projection of features, with a scale of the features and a bias for each variable.

    Args:
        num_variables: Number of variables.
        width: Size of the features.
        start: Initial biases, one for each output.
    """

    def __init__(self, num_variables: int, *, width: int, start: Sequence[float]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(num_variables, width))
        self.weight = nn.Parameter(torch.empty(len(start), width))
        self.bias = nn.Parameter(torch.tensor(start).repeat(num_variables, 1))
        nn.init.normal_(self.weight, std=INITIAL_SCALE * width**-0.5)

    def forward(self, features: Tensor, variables: Tensor) -> Tensor:
        """Returns the projections. Shape ``(..., numbers)``."""
        scaled = features * self.scale[variables]
        return nn.functional.linear(scaled, self.weight) + self.bias[variables]


def bounded(log_scales: Tensor) -> Tensor:
    """Bounds log scales smoothly, with a gradient everywhere."""
    above = LEAST_LOG_SCALE + nn.functional.softplus(log_scales - LEAST_LOG_SCALE)
    return GREATEST_LOG_SCALE - nn.functional.softplus(GREATEST_LOG_SCALE - above)


BISECTIONS = 64
"""Halvings of a bracket: below the rounding of a double, whatever the bracket."""

NODES = 512
"""Quantiles that represent a distribution in its entropy and the search for its mode."""

MEAN_DEPTH = 24
"""Probability of the outermost cells of a mean, as a power of one half."""

REFINEMENTS = 24
"""Golden sections of the bracket around the best candidate."""

GOLDEN = (math.sqrt(5) - 1) / 2


def invert(
    increasing: Callable[[Tensor], Tensor], wanted: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """Returns the least argument at which an increasing function reaches `wanted`, by bisection.

    Args:
        increasing: Function, vectorised over the edges.
        wanted: Value to reach. Shape ``(...)``.
        low: Argument at which the function is at or below it. Shape ``(...)``.
        high: Argument at which the function is at or above it. Shape ``(...)``.
    """
    for _ in range(BISECTIONS):
        middle = low + (high - low) / 2
        below = increasing(middle) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def quantile_nodes(like: Tensor) -> Tensor:
    """Returns the midpoints of equal parts of (0, 1), ascending. Shape ``(nodes,)``."""
    return (torch.arange(NODES, dtype=like.dtype, device=like.device) + 0.5) / NODES


def mean_rule(cells: int = 128) -> tuple[Tensor, Tensor]:
    """Returns a quadrature rule for means: probabilities of quantiles and their weights, float64.

    Cells have equal probability, and at both ends ever smaller ones, each half of the one before:
    the mean of a skewed column is in its tail.

    Args:
        cells: Number of cells of equal probability, a power of two; fewer suffice for mixtures.
    """
    tail = 2.0 ** -torch.arange(MEAN_DEPTH, int(math.log2(cells)), -1, dtype=torch.float64)
    bulk = torch.arange(1, cells, dtype=torch.float64) / cells
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    edges = torch.cat([ends[:1], tail, bulk, 1 - tail.flip(0), ends[1:]])
    return (edges[1:] + edges[:-1]) / 2, edges.diff()


def highest(log_density: Callable[[Tensor], Tensor], candidates: Tensor) -> Tensor:
    """Returns the mode of a density, from sorted candidates ``(count, ...)`` that span its mass.

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
"""Least distance of uniform numbers from 0 and 1, whose quantiles are infinite."""


class ContinuousDistribution(ABC):
    """One density for each edge. Subclasses are exactly normalised."""

    @abstractmethod
    def log_prob(self, values: Tensor) -> Tensor:
        """Returns the log density ``(...)``, or ``(count, ...)`` for several values an edge."""

    @abstractmethod
    def cdf(self, values: Tensor) -> Tensor:
        """Returns the probability of at most `values`; shapes as `log_prob`."""

    @abstractmethod
    def icdf(self, probability: Tensor) -> Tensor:
        """Returns the quantile of a probability in (0, 1); shapes as `log_prob`."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor with the shape, the dtype and the device of the edges."""

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Samples one value for each edge, by inversion."""
        like = self.like
        u = uniform(like.shape, device=like.device, generator=generator)
        # Doubles: a float32 near one rounds to one, and its quantile is infinite.
        return self.icdf(u.clamp(DRAWN_EDGE, 1 - DRAWN_EDGE)).to(like.dtype)

    def nodes(self) -> tuple[Tensor, Tensor]:
        """Returns a quadrature rule: values and weights of expectations. Shapes ``(nodes, ...)``.

        It has many quantiles; families with a better rule override it.
        """
        like = self.like
        shape = (-1, *[1] * like.ndim)
        shares, weights = (part.to(like.device).view(shape) for part in mean_rule())
        quantiles = self.icdf(shares.expand(-1, *like.shape))
        return quantiles, weights.expand_as(quantiles)

    def mean(self) -> Tensor:
        """Returns the expectation."""
        values, weights = self.nodes()
        return (weights * values).sum(dim=0).to(self.like.dtype)

    def mode(self) -> Tensor:
        """Returns the mode of the density."""
        return highest(self.log_prob, self._quantiles())

    def mode_at(self, edges: Tensor) -> Tensor:
        """Returns the modes of some edges; families that can leave out the others override it."""
        return self.mode()[edges]

    def entropy(self) -> Tensor:
        """Returns the differential entropy in nats, from the log densities of many quantiles."""
        return -self.log_prob(self._quantiles()).mean(dim=0)

    def tempered(self, temperature: float, top_k: int | None = None) -> "ContinuousDistribution":
        """Returns the distribution at a temperature, where the family allows it."""
        del temperature, top_k
        raise QueryError("This distribution has no temperature: use a mixture, or temperature 1.")

    def _quantiles(self) -> Tensor:
        """Returns equally probable quantiles ``(nodes, ...)`` that span the distribution."""
        like = self.like
        nodes = quantile_nodes(like).view(-1, *[1] * like.ndim)
        return self.icdf(nodes.expand(-1, *like.shape))


def stacked(parts: Sequence[Any]) -> Any:
    """Stacks distributions of one family and shape along a leading axis.

    Results are computed for all of them at once, which is faster where each is small.
    """
    first = parts[0]
    names = [
        field.name for field in fields(first) if isinstance(getattr(first, field.name), Tensor)
    ]
    columns = {name: torch.stack([getattr(part, name) for part in parts]) for name in names}
    return replace(first, **columns)
