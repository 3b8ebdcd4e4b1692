"""Discretised mixtures of logistics, for levels with an order such as brightness.

Level v has the probability that a continuous mixture gives to (v - 1/2, v + 1/2); the first and the
last level have all that lies beyond. Thirty parameters describe 256 levels, and neighbours are
alike from the start. It cannot learn sharp shapes, as one logit for each level would.

Reference: Salimans et al. (2017), PixelCNN++.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.errors import SchemaError, check_count
from anyorder.heads.distributions import Categorical, Conditionals
from anyorder.lattice.masks import uniform
from anyorder.variables import Schema

NARROWEST = 0.02
"""Least scale of a logistic, in levels: all of its mass is then in one cell, or in two."""


@dataclass(frozen=True)
class LogisticLevels:
    """Probabilities of the levels 0 .. levels - 1 of one variable for each edge.

    Args:
        logits: Weights before their softmax. Shape ``(..., components)``.
        means: Means in levels. Shape ``(..., components)``.
        log_scales: Log scales in levels. Shape ``(..., components)``.
        levels: Number of levels.
    """

    logits: Tensor
    means: Tensor
    log_scales: Tensor
    levels: int

    def log_prob(self, values: Tensor) -> Tensor:
        r"""Returns the log probability of codes; a leading axis may hold several for each edge.

        With a and b the standardised ends of the cell, sigma(a) - sigma(b) = sigma(a) sigma(-b)
        (1 - exp(b - a)): nothing cancels, however far the cell is from the mean.
        """
        codes = values.to(self.means.dtype).unsqueeze(-1)
        width = (-self.log_scales).exp()  # of a cell, in scales
        high, low = (codes + 0.5 - self.means) * width, (codes - 0.5 - self.means) * width
        inside = F.logsigmoid(high) + F.logsigmoid(-low) + (-(-width).expm1()).log()
        below, above = codes <= 0, codes >= self.levels - 1
        cell = torch.where(below, F.logsigmoid(high), inside)
        cell = torch.where(above, F.logsigmoid(-low), cell)
        if self.levels == 1:
            cell = torch.zeros_like(cell)
        return (self.logits.log_softmax(-1) + cell).logsumexp(-1)

    def cdf(self, values: Tensor) -> Tensor:
        """Returns the probability of a code of at most `values`."""
        codes = values.to(self.means.dtype).floor().unsqueeze(-1)
        below = ((codes + 0.5 - self.means) * (-self.log_scales).exp()).sigmoid()
        found = (self.logits.softmax(-1) * below).sum(-1)
        found = torch.where(values >= self.levels - 1, torch.ones_like(found), found)
        return torch.where(values < 0, torch.zeros_like(found), found)

    def icdf(self, probability: Tensor) -> Tensor:
        """Returns the least code whose CDF reaches a probability."""
        return self.table().icdf(probability)

    def mean(self) -> Tensor:
        """Returns the mean code."""
        return self.table().mean()

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Samples one code for each edge: a component, its quantile, and the cell of that."""
        shape, device = self.means.shape[:-1], self.means.device
        weights = self.logits.double().softmax(-1).cumsum(-1)
        which = uniform(shape, device=device, generator=generator) * weights[..., -1]
        chosen = (weights < which.unsqueeze(-1)).sum(-1, keepdim=True)
        mean, log_scale = (
            part.double().gather(-1, chosen).squeeze(-1) for part in (self.means, self.log_scales)
        )
        quantile = uniform(shape, device=device, generator=generator).logit()
        return (mean + log_scale.exp() * quantile).round().clamp(0, self.levels - 1).long()

    def mode(self) -> Tensor:
        """Returns the most probable level."""
        return self.table().mode()

    def entropy(self) -> Tensor:
        """Returns the entropy in nats."""
        return self.table().entropy()

    def tempered(self, temperature: float, top_k: int | None = None) -> Categorical:
        """Returns the levels at a temperature, of the `top_k` most probable only."""
        return self.table().tempered(temperature, top_k)

    def table(self) -> Categorical:
        """Returns the same distribution with a logit for each level."""
        codes = torch.arange(self.levels, device=self.means.device)
        several = codes.view(-1, *[1] * (self.means.ndim - 1)).expand(-1, *self.means.shape[:-1])
        return Categorical(self.log_prob(several).movedim(0, -1))


class LogisticLevelConditionals(Conditionals):
    """Projects the features of an edge to a mixture of logistics over its levels.

    Args:
        schema: Categorical variables, all with the same number of levels, which have an order.
        width: Size of the features.
        components: Number of components of each mixture.
    """

    def __init__(self, schema: Schema, *, width: int, components: int = 10) -> None:
        super().__init__()
        counts = {variable.num_levels for variable in schema}
        if len(counts) > 1 or any(variable.kind != "categorical" for variable in schema):
            raise SchemaError(
                "LogisticLevelConditionals takes categorical variables that all have the same "
                "number of levels. Use CategoricalConditionals or MixedConditionals."
            )
        self.schema, self.width = schema, width
        self.components = check_count("components", components)
        self.levels = counts.pop()
        self.project = nn.Linear(width, 3 * components)
        nn.init.normal_(self.project.weight, std=0.1 * width**-0.5)
        nn.init.zeros_(self.project.bias)
        # At first the components share the levels evenly among them.
        centres = (torch.arange(components) + 0.5) / components * 2 - 1
        self.register_buffer("centres", centres, persistent=False)

    def forward(self, features: Tensor, variables: Tensor) -> LogisticLevels:
        """Returns the conditionals of edges; see `Conditionals.forward`."""
        del variables  # all are alike; the features say whose they are
        logits, shift, scale = self.project(features).chunk(3, dim=-1)
        half = (self.levels - 1) / 2
        spread = math.log(max(half, 0.5) / self.components)
        log_scales = (scale + spread).clamp(min=math.log(NARROWEST))
        return LogisticLevels(logits, half * (1 + self.centres + shift), log_scales, self.levels)
