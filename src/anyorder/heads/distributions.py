"""Contracts of distributions and heads, the categorical ones, and numerics that densities share.

Inverses, means, modes and entropies need a density, a CDF and its inverse only. All functions are
vectorised over the edges and work in the dtype that they are given.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from anyorder.errors import QueryError, SchemaError
from anyorder.lattice.masks import uniform
from anyorder.variables import Schema


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

    def log_prob(self, features: Tensor, variables: Tensor, *prior: Any, values: Tensor) -> Tensor:
        """Returns the log-likelihoods of values, for which a head may need less than `forward`.

        Args:
            features: Features of the edges. Shape ``(..., width)``.
            variables: Variable of each edge. Shape ``(...)``.
            prior: Message about the same edges, of heads beside a prior.
            values: Value of each edge. Shape ``(...)``.
        """
        return cast(Tensor, self(features, variables, *prior).log_prob(values))


@dataclass(frozen=True)
class Categorical:
    """Probabilities of the levels of one variable for each edge.

    Args:
        logits: Logits; -inf for levels that a variable does not have. Shape ``(..., levels)``.
    """

    logits: Tensor

    @property
    def log_probs(self) -> Tensor:
        """Log probability of each level. Shape ``(..., levels)``."""
        return self.logits.log_softmax(dim=-1)

    def log_prob(self, values: Tensor) -> Tensor:
        """Returns the log probability of codes; a leading axis may hold several for each edge."""
        logs = self.log_probs.expand(*values.shape, -1)
        return logs.gather(-1, values.long().unsqueeze(-1)).squeeze(-1)

    def cdf(self, values: Tensor) -> Tensor:
        """Returns the probability of a code of at most `values`: for levels with an order."""
        codes = torch.arange(self.logits.shape[-1], device=self.logits.device)
        beyond = codes > values.unsqueeze(-1)
        return torch.where(beyond, 0, self.log_probs.exp()).sum(dim=-1)

    def icdf(self, probability: Tensor) -> Tensor:
        """Returns the least code whose CDF reaches a probability."""
        below = self.logits.double().softmax(dim=-1).cumsum(dim=-1)
        wanted = (probability.double() * below[..., -1]).unsqueeze(-1)
        return (below < wanted).sum(dim=-1)

    def mean(self) -> Tensor:
        """Returns the mean code: for levels that are evenly spaced."""
        codes = torch.arange(self.logits.shape[-1], device=self.logits.device)
        return (self.log_probs.exp() * codes).sum(dim=-1)

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Samples a level for each edge. Shape ``(...)``."""
        # Doubles: a float32 uniform never falls below 2^-24, and rare levels never occur.
        shape, device = self.logits.shape[:-1], self.logits.device
        return self.icdf(uniform(shape, device=device, generator=generator))

    def mode(self) -> Tensor:
        """Returns the most probable level of each edge. Shape ``(...)``."""
        return self.logits.argmax(dim=-1)

    def entropy(self) -> Tensor:
        """Returns the entropy in nats. Shape ``(...)``."""
        return torch.special.entr(self.log_probs.exp()).sum(dim=-1)

    def tempered(self, temperature: float, top_k: int | None = None) -> "Categorical":
        """Returns the levels at a temperature, of the `top_k` most probable only."""
        logits = self.logits
        if top_k is not None and top_k < logits.shape[-1]:
            least = logits.topk(top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < least, -math.inf)
        return Categorical(tempered_logits(logits, temperature))


def tempered_logits(logits: Tensor, temperature: float) -> Tensor:
    """Returns logits divided by a temperature, the greatest at 0; a tiny one leaves only that.

    Example:
        >>> tempered_logits(torch.tensor([1.0, 3.0, 2.0]), 1e-300)
        tensor([-inf, 0., -inf])
    """
    below = logits - logits.amax(dim=-1, keepdim=True)
    # In doubles, because a float32 takes 1e-60 for zero and 1e60 for infinity; the greatest is set,
    # because denormals, which may be flushed, would make it 0/0.
    scaled = (below.double() / temperature).to(logits.dtype)
    return scaled.masked_fill(below == 0, 0)


UNSEEN = 0.5
"""Pseudo-count of each level: none is impossible."""


class CategoricalConditionals(Conditionals):
    """Projects the features of an edge to the levels of its variable.

    Variables that all have the same levels (the characters of a text) can share one projection.

    Args:
        schema: The variables.
        width: Size of the features.
        shared: If True, one projection serves all; by default, where they have the same levels.
            Columns of a table that happen to have the same levels should not share. A variable
            alone has one in any case: a matrix for all edges is faster than one for each.
    """

    beyond: Tensor

    def __init__(self, schema: Schema, *, width: int, shared: bool | None = None) -> None:
        super().__init__()
        self.schema, self.width = schema, width
        for variable in schema:
            if variable.kind != "categorical":
                raise SchemaError(
                    "CategoricalConditionals takes categorical variables; "
                    f'"{variable.name}" is {variable.kind}. Use MixedConditionals.'
                )
        sizes = [variable.num_levels for variable in schema]
        alike = len({variable.levels for variable in schema}) == 1
        self.shared = alike and (shared is not False or len(sizes) == 1)
        tables = 1 if self.shared else len(sizes)
        self.weight = nn.Parameter(torch.empty(tables, max(sizes), width))
        self.bias = nn.Parameter(torch.zeros(tables, max(sizes)))
        nn.init.normal_(self.weight, std=width**-0.5)
        beyond = torch.arange(max(sizes)) >= torch.tensor(sizes)[:, None]  # (vars, levels)
        self.register_buffer("beyond", beyond, persistent=False)

    def forward(self, features: Tensor, variables: Tensor) -> Categorical:
        """Returns the conditionals of edges; see `Conditionals.forward`."""
        weight = self.projection()
        if self.shared:
            return Categorical(nn.functional.linear(features, weight[0], self.bias[0]))
        logits = (weight[variables] @ features.unsqueeze(-1)).squeeze(-1) + self.bias[variables]
        return Categorical(logits.masked_fill(self.beyond[variables], -math.inf))

    def begin(self, variable: int, counts: Tensor) -> None:
        """Starts a variable from the counts of its levels. Shape ``(levels,)``."""
        shares = (counts + UNSEEN) / (counts + UNSEEN).sum()
        with torch.no_grad():
            self.bias[0 if self.shared else variable, : len(counts)] = shares.log().to(self.bias)

    def projection(self) -> Tensor:
        """Returns the weights from features to levels. Shape ``(1 or vars, levels, width)``."""
        return self.weight


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

MEAN_CELLS = 128
"""Number of cells of equal probability of a mean, a power of two."""

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


def mean_rule() -> tuple[Tensor, Tensor]:
    """Returns a quadrature rule for means: probabilities of quantiles and their weights, float64.

    Cells have equal probability, and at both ends ever smaller ones, each half of the one before:
    the mean of a skewed column is in its tail.
    """
    tail = 2.0 ** -torch.arange(MEAN_DEPTH, int(math.log2(MEAN_CELLS)), -1, dtype=torch.float64)
    bulk = torch.arange(1, MEAN_CELLS, dtype=torch.float64) / MEAN_CELLS
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
