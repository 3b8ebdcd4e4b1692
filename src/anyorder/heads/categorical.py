"""Conditionals of categorical variables: features -> a probability of each level."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.errors import SchemaError
from anyorder.heads.distributions import Conditionals
from anyorder.lattice.masks import uniform
from anyorder.variables import Schema


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
