"""Closed-form samplers of training edges for queries of uniform size.

Consider queries whose number of queried variables is uniform on 1..N, the variables themselves
being uniform given that number. An edge (i, e) of such a query is sampled target first: a target i,
an inclusion probability p ~ Beta(a, b), and then one Bernoulli(p) variable for each variable that
may be in e (`training_law.py` says why). This file holds the distributions of i and p for both
weightings, with and without cardinality reweighting (CR, the paper's D^CR). The number of variables
is n, and i counts from 1 in the canonical order:

    marginal queries: e holds the variables before i that are included
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(2, 1)
        path + CR    P(i) ~ i + 1     p ~ Beta(2, 1)                       Eq. 7 of the paper
        edge + CR    P(i) ~ 2i + 1    p ~ Beta(3, 1); a sure member with probability (i-1)/(2i+1)
    conditional queries: e holds all variables before i, and those after i that are included
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(1, 2)
        path + CR    P(i) ~ n + i     p ~ Beta(2, 1) with probability (n-i+2)/(n+i), or Beta(1, 1)
        edge + CR    P(i) ~ n + 2i    p ~ Beta(2, 2) with probability (n-i+3)/(n+2i), or Beta(1, 2)

Under `edge + CR`, |e| = t has mass (t+1)^2 given i, and (t+1)^2 = [(t+1)(t+2) + t(t+1)] / 2. The
first term is the law of a Beta(3, 1) set. The second is a member chosen uniformly, which is in e
for sure, and a Beta(3, 1) set of the others.

All P(i) are linear in i, so i is sampled by its inverse CDF (`sample_linear`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.lattice.random_sets import uniform
from anyorder.lattice.weighted_queries import Weighting


class EdgeParameters(NamedTuple):
    """Target and inclusion probability of one edge a row. All shapes are ``(batch,)``."""

    i: Tensor
    """Place of the target among the row's variables, counted from 1."""
    first: Tensor
    second: Tensor
    """Parameters of the inclusion probability p ~ Beta(first, second)."""
    sure: Tensor | None
    """Place, from 0, of a variable that is in e for sure; -1 for none, None if no row has one."""


def sample_marginal(
    n: Tensor, weighting: Weighting, reweight: bool, generator: torch.Generator | None
) -> EdgeParameters:
    """Samples the parameters of edges of marginal queries among `n (batch,)` variables."""
    one, edge = torch.ones_like(n), weighting == "edge"
    i = sample_linear(one, (1 + edge) * reweight * one, n, generator)
    if not (edge and reweight):
        return EdgeParameters(i, one + (edge or reweight), one, None)
    # One uniform number both decides (it is below i - 1 of 2i + 1) and chooses.
    sure = (uniform(n.shape, device=n.device, generator=generator) * (2 * i + 1)).long()
    return EdgeParameters(i, one + 2, one, torch.where(sure < i - 1, sure, -1))


def sample_conditional(
    n: Tensor, weighting: Weighting, reweight: bool, generator: torch.Generator | None
) -> EdgeParameters:
    """Samples the parameters of edges of conditional queries among `n (batch,)` variables."""
    one, edge = torch.ones_like(n), weighting == "edge"
    if not reweight:
        i = sample_linear(one, 0 * one, n, generator)
        return EdgeParameters(i, one, one + edge, None)
    slope = 1 + edge
    i = sample_linear(n, slope * one, n, generator)
    chance = uniform(n.shape, device=n.device, generator=generator)
    raised = chance * (n + slope * i) < n - i + 1 + slope
    return EdgeParameters(i, one + raised, one + edge, None)


def sample_linear(
    intercept: Tensor, slope: Tensor, n: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Samples i of 1..n with P(i) proportional to intercept + slope i, by the inverse CDF."""
    # The mass of 1..i is b i + slope i^2 / 2; solved for i in the form that survives slope = 0.
    b = intercept + slope.double() / 2
    mass = uniform(n.shape, device=n.device, generator=generator) * (b + slope * n / 2) * n
    i = 2 * mass / (b + (b * b + 2 * slope * mass).sqrt())
    return torch.minimum(i.long() + 1, n)
