"""How the edges of uniform queries are tossed: the laws of the target and of its coins.

`lattice.py` says why an edge can be drawn target first: i, then a probability p, then a coin for
each variable that may be observed. Here are the laws of i and p for queries that ask each number of
variables equally often, under both weightings, with and without cardinality reweighting (CR). With
n for the number of variables and i counted from 1:

    marginal queries: e holds those of the variables before i whose coins are heads
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(2, 1)
        path + CR    P(i) ~ i + 1     p ~ Beta(2, 1)                              the paper's D^CR
        edge + CR    P(i) ~ 2i + 1    p ~ Beta(3, 1); a sure member with probability (i-1)/(2i+1)
    conditional queries: e holds all variables before i, and those after it whose coins are heads
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(1, 2)
        path + CR    P(i) ~ n + i     p ~ Beta(2, 1) with probability (n-i+2)/(n+i), or Beta(1, 1)
        edge + CR    P(i) ~ n + 2i    p ~ Beta(2, 2) with probability (n-i+3)/(n+2i), or Beta(1, 2)

Under `edge + CR`, |e| = t has mass (t+1)^2 given i, and (t+1)^2 = [(t+1)(t+2) + t(t+1)] / 2: the
first term is Beta(3, 1) coins, the second a sure member, chosen uniformly, and Beta(3, 1) coins.

All P(i) are linear in i.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from anyorder.lattice.random_sets import uniform

Weighting = Literal["path", "edge"]
"""What counts once: a query, or each of its edges."""


class Toss(NamedTuple):
    """What a row tosses its coins for."""

    i: Tensor
    """The place of the target among the row's variables, from 1."""
    first: Tensor
    second: Tensor
    """The coins have probability p ~ Beta(first, second)."""
    sure: Tensor | None
    """The place, from 0, of a sure member; -1 for none in a row, None for none in any."""


def marginal_toss(
    n: Tensor, weighting: Weighting, reweight: bool, generator: torch.Generator | None
) -> Toss:
    """Of marginal queries among `n` variables, a row each."""
    one, edge = torch.ones_like(n), weighting == "edge"
    i = linear(one, (1 + edge) * reweight * one, n, generator)
    if not (edge and reweight):
        return Toss(i, one + (edge or reweight), one, None)
    # One uniform number both decides (it is below i - 1 of 2i + 1) and chooses.
    sure = (uniform(n.shape, device=n.device, generator=generator) * (2 * i + 1)).long()
    return Toss(i, one + 2, one, torch.where(sure < i - 1, sure, -1))


def conditional_toss(
    n: Tensor, weighting: Weighting, reweight: bool, generator: torch.Generator | None
) -> Toss:
    """Of conditional queries among `n` variables, a row each."""
    one, edge = torch.ones_like(n), weighting == "edge"
    if not reweight:
        return Toss(linear(one, 0 * one, n, generator), one, one + edge, None)
    slope = 1 + edge
    i = linear(n, slope * one, n, generator)
    raised = (
        uniform(n.shape, device=n.device, generator=generator) * (n + slope * i) < n - i + 1 + slope
    )
    return Toss(i, one + raised, one + edge, None)


def linear(
    intercept: Tensor, slope: Tensor, n: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draws i of 1..n with P(i) proportional to intercept + slope i, by its inverse CDF."""
    # The mass of 1..i is b i + slope i^2 / 2; solved for i in the form that survives slope = 0.
    b = intercept + slope.double() / 2
    mass = uniform(n.shape, device=n.device, generator=generator) * (b + slope * n / 2) * n
    i = 2 * mass / (b + (b * b + 2 * slope * mass).sqrt())
    return torch.minimum(i.long() + 1, n)
