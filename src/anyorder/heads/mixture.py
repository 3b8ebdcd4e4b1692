"""Mixtures of Gaussians or logistics: a density, a CDF and a mean in closed form."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor
from torch.nn import functional as F
from torch.special import ndtr, ndtri

from anyorder.errors import QueryError, check_choice, check_count
from anyorder.heads.distributions import (
    DRAWN_EDGE,
    HALF_LOG_TAU,
    Conditionals,
    ContinuousDistribution,
    VariableProjection,
    bounded,
    highest,
    invert,
    mean_rule,
    tempered_logits,
)
from anyorder.lattice.masks import uniform
from anyorder.variables import Schema

Component = Literal["gaussian", "logistic"]

COMPONENT_NODES = 32
"""Quadrature nodes of a component: enough for many digits of the mean of a log-normal value."""

MODE_POINTS = 64
"""Points between the least and the greatest mean of the components, beside the means, from which a
mode is searched for: all modes are there."""

EXTREME_LOG_SCALE = 40.0
"""Bound of log scales under temperatures: a float32 holds the square of its exp."""


@cache
def component_rule(component: Component) -> tuple[Tensor, Tensor]:
    """Returns a quadrature rule for a standard component: values and weights, float64.

    It is Gauss-Hermite for Gaussians; logistic tails are too long for that.
    """
    if component == "gaussian":
        z, weights = (torch.from_numpy(part) for part in hermegauss(COMPONENT_NODES))
        return z, weights / weights.sum()
    shares, weights = mean_rule()
    return shares.logit(), weights


@dataclass(frozen=True)
class Mixture(ContinuousDistribution):
    """A weighted sum of components.

    Args:
        logits: Weights before their softmax. Shape ``(..., components)``.
        means: Means of the components. Shape ``(..., components)``.
        log_scales: Log scales of the components. Shape ``(..., components)``.
        component: Family of the components.
    """

    logits: Tensor
    means: Tensor
    log_scales: Tensor
    component: Component = "gaussian"

    @property
    def like(self) -> Tensor:
        """A tensor with the shape of the edges."""
        return self.means[..., 0]

    def log_prob(self, values: Tensor) -> Tensor:
        """Returns the log density."""
        z, logs = self._standard(values), self.logits.log_softmax(-1) - self.log_scales
        if self.component == "gaussian":
            return torch.addcmul(logs - HALF_LOG_TAU, z, z, value=-0.5).logsumexp(-1)
        return (logs + F.logsigmoid(z) + F.logsigmoid(-z)).logsumexp(-1)

    def cdf(self, values: Tensor) -> Tensor:
        """Returns the probability of at most `values`."""
        z = self._standard(values)
        below = ndtr(z) if self.component == "gaussian" else z.sigmoid()
        return (self.logits.softmax(-1) * below).sum(-1)

    def icdf(self, probability: Tensor) -> Tensor:
        """Returns the quantile, which lies between the least and the greatest of the components."""
        p = probability.unsqueeze(-1)
        z = ndtri(p) if self.component == "gaussian" else p.logit()
        ends = self.means + self.log_scales.exp() * z
        return invert(self.cdf, probability, ends.amin(-1), ends.amax(-1))

    def mean(self) -> Tensor:
        """Returns the expectation."""
        return (self.logits.softmax(-1) * self.means).sum(-1)

    def nodes(self) -> tuple[Tensor, Tensor]:
        """Returns the nodes of each component; see `ContinuousDistribution.nodes`."""
        z, weights = (part.to(self.like.device) for part in component_rule(self.component))
        shape = (-1, *[1] * self.means.ndim)
        values = self.means + self.log_scales.exp() * z.view(shape)  # (nodes, ..., components)
        shares = self.logits.double().softmax(-1) * weights.view(shape)
        return tuple(part.movedim(-1, 0).flatten(0, 1) for part in (values, shares))  # type: ignore[return-value]

    def mode(self) -> Tensor:
        """Returns the mode of the density, near the mean of a component or between some."""
        means = self.means.movedim(-1, 0)
        shares = torch.linspace(0, 1, MODE_POINTS, dtype=means.dtype, device=means.device)
        between = torch.lerp(
            means.amin(dim=0), means.amax(dim=0), shares.view(-1, *[1] * self.like.ndim)
        )
        return highest(self.log_prob, torch.cat([means, between]).sort(dim=0).values)

    def mode_at(self, edges: Tensor) -> Tensor:
        """Returns the modes of some edges."""
        return self.at(edges).mode()

    def at(self, edges: Tensor) -> "Mixture":
        """Selects edges."""
        logits, means, log_scales = self.logits[edges], self.means[edges], self.log_scales[edges]
        return Mixture(logits, means, log_scales, self.component)

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Samples one value for each edge: a component, then its quantile."""
        shape, device = self.like.shape, self.like.device
        weights = self.logits.double().softmax(-1).cumsum(-1)
        which = uniform(shape, device=device, generator=generator) * weights[..., -1]
        chosen = (weights < which.unsqueeze(-1)).sum(-1, keepdim=True)
        u = uniform(shape, device=device, generator=generator).clamp(DRAWN_EDGE, 1 - DRAWN_EDGE)
        z = ndtri(u) if self.component == "gaussian" else u.logit()
        mean, log_scale = (
            part.gather(-1, chosen)[..., 0] for part in (self.means, self.log_scales)
        )
        return mean + log_scale.exp() * z.to(mean.dtype)

    def tempered(self, temperature: float, top_k: int | None = None) -> "Mixture":
        """Tempers each component and the weights: exact for one Gaussian."""
        if top_k is not None:
            raise QueryError("`top_k` is for categorical variables; leave it out.")
        wider = self.log_scales + 0.5 * math.log(temperature)
        wider = wider.clamp(-EXTREME_LOG_SCALE, EXTREME_LOG_SCALE)
        logits = tempered_logits(self.logits, temperature)
        return Mixture(logits, self.means, wider, self.component)

    def moved(self, location: Tensor, log_scale: Tensor) -> "Mixture":
        """Returns the distribution of location + exp(log_scale) * value."""
        location, log_scale = location.unsqueeze(-1), log_scale.unsqueeze(-1)
        means = location + log_scale.exp() * self.means
        return Mixture(self.logits, means, self.log_scales + log_scale, self.component)

    def _standard(self, values: Tensor) -> Tensor:
        return (values.unsqueeze(-1) - self.means) * (-self.log_scales).exp()


class MixtureConditionals(Conditionals):
    """Mixtures of Gaussians or logistics.

    Args:
        schema: The variables.
        width: Size of the features.
        components: Number of components.
        component: Family of the components.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        width: int,
        components: int = 12,
        component: Component = "gaussian",
    ) -> None:
        super().__init__()
        check_count("components", components)
        check_choice("component", component, get_args(Component))
        self.schema, self.width = schema, width
        self.components, self.component = components, component
        spread = torch.special.ndtri((torch.arange(components) + 0.5) / components)
        narrow = -0.5 * math.log(components)
        start = [0.0] * components + spread.tolist() + [narrow] * components
        self.projection = VariableProjection(len(schema), width=width, start=start)

    def forward(self, features: Tensor, variables: Tensor) -> Mixture:
        """Returns the densities of edges; see `Conditionals.forward`."""
        numbers = self.projection(features, variables).unflatten(-1, (3, -1))
        logits, means, log_scales = numbers.unbind(dim=-2)
        return Mixture(logits, means, bounded(log_scales), self.component)


class MeanConditionals(Conditionals):
    """Gaussians of unit variance: the log-likelihood is the squared error.

    Args:
        schema: The variables.
        width: Size of the features.
    """

    def __init__(self, schema: Schema, *, width: int) -> None:
        super().__init__()
        self.schema, self.width = schema, width
        self.projection = VariableProjection(len(schema), width=width, start=[0.0])

    def forward(self, features: Tensor, variables: Tensor) -> Mixture:
        """Returns the densities of edges; see `Conditionals.forward`."""
        means = self.projection(features, variables)
        return Mixture(torch.zeros_like(means), means, torch.zeros_like(means))
