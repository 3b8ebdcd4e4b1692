"""Marginalisation: one variable summed out of a larger question, against the smaller question.

A model answers p(x_S) without the variable j, by construction. Summing p(x_S, x_j = v) over all v
should give the same. It does exactly where j is the last of its path; elsewhere it is one more
thing that a trained model has learnt more or less well.

Levels and atoms are summed one by one. A density is integrated by importance sampling without
chance: the nodes are quantiles of the mean of two densities of x_j, given what comes before it on
the path and given all of x_S. Where the integrand is much narrower than the first, it is like the
second. What is left to integrate over (0, 1) is a ratio that is smooth where both are, and at most
twice the integrand over either, and Gauss and Legendre's rule converges fast on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anyorder.diagnostics.gaps import Gap, log_prob_along, one_of, several, verdict, without
from anyorder.heads.atoms import AtomicDistribution
from anyorder.heads.distributions import ContinuousDistribution, invert
from anyorder.heads.mixed import MixedDistribution
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering
from anyorder.variables import Variable

NODES = 100
"""Quantiles that stand for a density, each a pass. On mixtures of several modes that disagree by
tenths of a nat the integral is then off by some thousandths, and by twice as much with 50."""

MOST_VALUES = 256
"""Variables of more levels or atoms are not summed out: every value is a pass."""

CELLS_AT_ONCE = 1_000_000
"""Cells of the rows with their supposed values that are in memory together."""


@answering
def marginalisation_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """The log of sum_v p(x_S, x_j = v) minus log p(x_S).

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, two variables or more. Shape ``(rows, vars)``.
        generator: The source of randomness: of S and j.

    Returns:
        A row for each in which there is a variable to sum out. Shape ``(at most rows,)``.
    """
    whole = several(have, least=2, generator=generator)
    rank = model.protocol.rank(whole, generator=generator)
    summable = torch.tensor([_num_values(v) <= MOST_VALUES for v in _asked(model)])
    # The last of a path sums out exactly, whatever the model has learnt.
    earlier = whole & (rank < whole.sum(dim=1, keepdim=True) - 1) & summable.to(whole.device)
    rows = earlier.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return torch.zeros(0, dtype=torch.float64, device=x.device)
    x, whole, rank, earlier = x[rows], whole[rows], rank[rows], earlier[rows]
    target = one_of(earlier, generator=generator)
    place = rank.gather(1, target[:, None])
    smaller = log_prob_along(
        model, x, query=without(whole, target), rank=rank - (rank > place).long()
    )
    total = torch.empty_like(smaller)
    for part in _alike(target, model, x.shape[1]):
        variable = int(target[part[0]])
        total[part] = _summed_out(model, x[part], whole[part], rank[part], variable)
    return total - smaller


def _asked(model: AnyOrderModel) -> tuple[Variable, ...]:
    return model.schema.variables[: model.num_variables]


def _num_values(variable: Variable) -> int:
    """How many values of a variable are supposed, besides the nodes of a density."""
    return max(variable.num_levels, len(variable.atoms))


def _alike(target: Tensor, model: AnyOrderModel, columns: int) -> Iterator[Tensor]:
    """Rows that sum out the same variable, as many as fit into memory."""
    for variable in target.unique().tolist():
        values = _num_values(_asked(model)[variable]) + NODES
        size = max(1, CELLS_AT_ONCE // (values * columns))
        yield from (target == variable).nonzero().squeeze(1).split(size)


def _summed_out(
    model: AnyOrderModel, x: Tensor, query: Tensor, rank: Tensor, variable: int
) -> Tensor:
    """The log of p(x_query) with one variable summed or integrated out. Shape ``(rows,)``."""
    supposed, log_weights = _values(model, x, query, rank, variable)  # (rows, values)
    rows, count = supposed.shape
    wide = x.repeat_interleave(count, dim=0)
    wide[:, variable] = supposed.flatten().to(x.dtype)
    sets, ranks = (part.repeat_interleave(count, dim=0) for part in (query, rank))
    logs = log_prob_along(model, wide, query=sets, rank=ranks).view(rows, count)
    return (logs + log_weights).logsumexp(dim=1)


def _values(
    model: AnyOrderModel, x: Tensor, query: Tensor, rank: Tensor, variable: int
) -> tuple[Tensor, Tensor]:
    """Values of a variable and the logs of their weights. Shapes ``(rows, values)``."""
    about = _asked(model)[variable]
    listed = range(about.num_levels) if about.kind == "categorical" else about.atoms
    values = torch.tensor(list(listed), dtype=torch.float64, device=x.device).expand(len(x), -1)
    if about.kind == "categorical":
        return values, torch.zeros_like(values)
    before = query & (rank < rank[:, variable, None])
    rest = query.clone()
    rest[:, variable] = False
    nodes, log_weights = _nodes(*(_density(model, x, known, variable) for known in (before, rest)))
    return (
        torch.cat([values, nodes], dim=1),
        torch.cat([torch.zeros_like(values), log_weights], dim=1),
    )


def _density(
    model: AnyOrderModel, x: Tensor, known: Tensor, variable: int
) -> ContinuousDistribution:
    """The density of a variable given evidence, apart from its atoms; one a row."""
    targets = torch.full((len(x), 1), variable, device=x.device)
    conditional = model.distribution(model.features(x, known, targets)[:, 0], targets[:, 0])
    part = conditional.only if isinstance(conditional, MixedDistribution) else conditional
    part = part.elsewhere if isinstance(part, AtomicDistribution) else part
    assert isinstance(part, ContinuousDistribution)
    return part


def _nodes(first: ContinuousDistribution, second: ContinuousDistribution) -> tuple[Tensor, Tensor]:
    """Quantiles of the mean of two densities, and the logs of the lengths that they stand for."""
    like = first.like
    points, parts = (
        torch.from_numpy(rule).to(like.device) for rule in np.polynomial.legendre.leggauss(NODES)
    )
    shares = ((points + 1) / 2)[:, None].expand(-1, len(like))
    ends = torch.stack([density.icdf(shares) for density in (first, second)])

    def mean_cdf(values: Tensor) -> Tensor:
        return (first.cdf(values) + second.cdf(values)) / 2

    # As the network will see them.
    nodes = invert(mean_cdf, shares, ends.amin(dim=0), ends.amax(dim=0)).to(like.dtype)
    logs = first.log_prob(nodes).double(), second.log_prob(nodes).double()
    # The parts of (-1, 1) sum to two, as the densities do.
    log_weights = parts.log()[:, None] - torch.logaddexp(*logs)
    # The second density integrates to one. What these nodes make of it instead is divided out, and
    # so is most of the error for integrands that are like it.
    log_weights = log_weights - (log_weights + logs[1]).logsumexp(dim=0)
    return nodes.double().T, log_weights.T


@dataclass(frozen=True)
class MarginalisationGap(Gap):
    """A variable summed out of a random set of each row, against the set without it."""

    @property
    def sentence(self) -> str:
        """What it means."""
        words = verdict(
            self.size.value,
            "leaving a column out is as good as summing it out",
            "leaving a column out is not quite the same as summing it out",
            "the answers with and without a column disagree, and longer training would help",
        )
        return (
            "Summing a column out of a larger question, instead of leaving it out, changes the "
            f"likelihood by {self}: {words}."
        )
