"""Consistency gaps: one quantity computed in two ways, and their difference in nats.

A model whose conditionals agree with each other has one answer however it is computed. A trained
model has not (Limitations of the paper); these gaps measure how far it is from that.

- `PathGap`, `OrderSpread`: a likelihood along other orders than the model's own. The chain rule
  gives a set of c variables c! paths. This library walks the canonical one, so that every query
  has one answer.
- `MarginalisationGap`: a variable summed out of a larger query, against the query without it.
- `RatioGap`: a conditional as a ratio of two likelihoods, against the walk from the evidence.
- `EncodingGap`: values given as evidence, against the same values along the path. A path network
  encodes the two differently: evidence sees all other evidence, a value on the path sees those
  before it.

Gaps are measured on random sets of the variables that a row has: `x` of shape ``(rows, columns)``
holds the values, `have` of shape ``(rows, vars)`` is True for the variables, two or more a row.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.heads.atoms import AtomicDistribution
from anyorder.heads.distributions import ContinuousDistribution, invert
from anyorder.heads.mixed import MixedDistribution
from anyorder.inference.model import AnyOrderModel, Factors
from anyorder.inference.queries import answering, log_prob
from anyorder.lattice.masks import subsets, uniform
from anyorder.lattice.protocols import RemoveRandom
from anyorder.variables import Variable

SMALL, LARGE = 0.05, 0.5
"""Nats: a probability that is 5% off hardly matters, one that is 65% off does."""

ROUNDING = 1e-4
"""Nats: error of sums of factors in float32, so that a certain value does not exceed 1."""

NODES = 100
"""Quadrature nodes of a density, each a pass. On mixtures of several modes that disagree by tenths
of a nat the integral is then off by some thousandths, and by twice as much with 50."""

MOST_VALUES = 256
"""Variables with more levels or atoms are not summed out: every value is a pass."""

CELLS_AT_ONCE = 1_000_000
"""Cells of the rows, repeated for every value to sum over, that are in memory together."""


@dataclass(frozen=True)
class Gap:
    """Log of one answer minus the log of the other, row by row."""

    rows: Tensor

    @property
    def size(self) -> Estimate:
        """The mean of the absolute differences."""
        return Estimate(self.rows.abs())

    @property
    def bias(self) -> Estimate:
        """The mean of the signed differences: positive if the first answer is larger."""
        return Estimate(self.rows)

    @property
    def quantile_90(self) -> float:
        """The 90% quantile of the absolute differences."""
        return float(self.rows.abs().quantile(0.9))

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "size": estimate_json(self.size),
            "quantile_90": self.quantile_90,
            "bias": estimate_json(self.bias),
        }

    def __str__(self) -> str:
        return (
            f"{nats(self.size)} nats on average, and by more than {self.quantile_90:.2g} in a "
            "tenth of the rows"
        )


def nats(estimate: Estimate) -> str:
    """Formats a mean, with its standard error if it has one."""
    places = 2 if abs(estimate.value) >= 0.1 else 3
    error = f" ± {estimate.se:.{places}f}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:.{places}f}{error}"


def percent(estimate: Estimate) -> str:
    """Formats a mean of fractions, with its standard error if it has one."""
    error = f" ± {estimate.se:.1%}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:.1%}{error}"


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """Returns a mean, its standard error (None for a single row) and the number of rows."""
    se = estimate.se if math.isfinite(estimate.se) else None
    return {"value": estimate.value, "se": se, "n": len(estimate.rows)}


def verdict(size: float, small: str, middle: str, large: str) -> str:
    """Chooses the words for a gap by its size."""
    if size < SMALL:
        return small
    return middle if size < LARGE else large


@answering
def path_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """Returns log p(x_S) along a random order minus the same along the model's own path."""
    query = random_subsets(have, least=2, generator=generator)
    own, other = order_log_probs(model, x, query, orders=1, generator=generator)
    return other - own


@answering
def order_log_probs(
    model: AnyOrderModel,
    x: Tensor,
    query: Tensor,
    *,
    orders: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Returns log p(x_query) along the model's own path, then along random orders.

    Returns:
        Shape ``(1 + orders, rows)``.
    """
    protocols = [model.protocol] + [RemoveRandom()] * orders
    walks = [log_prob(model, x, query=query, protocol=p, generator=generator) for p in protocols]
    return torch.stack(walks)


@dataclass(frozen=True)
class PathGap(Gap):
    """A random set of each row along a random order, against the model's own path."""

    @property
    def sentence(self) -> str:
        """The gap in a sentence for people."""
        words = verdict(
            self.size.value,
            "orders hardly matter",
            "orders matter a little",
            "orders matter, so compare only likelihoods that were walked along the same one",
        )
        return f"Asked in another order, the same likelihood changes by {self}: {words}."


@dataclass(frozen=True)
class OrderSpread:
    """Likelihoods of whole rows along several orders.

    The model's own path comes first, then random orders: ``(orders, rows)``.
    """

    log_probs: Tensor

    @property
    def spread(self) -> Estimate:
        """The standard deviation over the random orders of a row, in nats."""
        return Estimate(self.log_probs[1:].std(dim=0))

    @property
    def mixture_gain(self) -> Estimate:
        """The log-likelihood of the mixture of all these paths minus that of the model's own."""
        mixture = self.log_probs.logsumexp(dim=0) - math.log(len(self.log_probs))
        return Estimate(mixture - self.log_probs[0])

    @property
    def sentence(self) -> str:
        """The gap in a sentence for people."""
        orders, gain = len(self.log_probs), self.mixture_gain
        found = (
            f"Over {orders - 1} random orders the log-likelihood of a whole row varies by "
            f"{nats(self.spread)} nats (standard deviation), and a mixture of {orders} paths would "
        )
        if gain.value > max(0.01, 2 * gain.se):
            gained = f"gain {nats(gain)} nats over the one that is walked"
            return f"{found}{gained}, at {orders} times the cost."
        if gain.value < -max(0.01, 2 * gain.se):
            lost = Estimate(-gain.rows)
            return found + f"lose {nats(lost)} nats against the one that is walked: keep to it."
        return found + "gain nothing."

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "orders": len(self.log_probs) - 1,
            "spread": estimate_json(self.spread),
            "mixture_gain": estimate_json(self.mixture_gain),
        }


@answering
def marginalisation_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """Returns log sum_v p(x_S, x_j = v) minus log p(x_S).

    The model answers p(x_S) without the variable j by construction. The difference is zero if j is
    the last variable of its path; elsewhere it depends on what was learned. Levels and atoms are
    summed one by one, a density is integrated (`_nodes`).

    Returns:
        One difference for each row with a variable to sum out. Shape ``(at most rows,)``.
    """
    whole = random_subsets(have, least=2, generator=generator)
    rank = model.protocol.rank(whole, generator=generator)
    summable = torch.tensor([_num_values(v) <= MOST_VALUES for v in _query_variables(model)])
    # The last variable of a path sums out exactly, whatever the model has learned.
    earlier = whole & (rank < whole.sum(dim=1, keepdim=True) - 1) & summable.to(whole.device)
    rows = earlier.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return torch.zeros(0, dtype=torch.float64, device=x.device)
    x, whole, rank, earlier = x[rows], whole[rows], rank[rows], earlier[rows]
    target = random_members(earlier, generator=generator)
    place = rank.gather(1, target[:, None])
    smaller = log_prob_along(
        model, x, query=without(whole, target), rank=rank - (rank > place).long()
    )
    total = torch.empty_like(smaller)
    for part in _chunks(target, model, x.shape[1]):
        variable = int(target[part[0]])
        total[part] = _summed_out(model, x[part], whole[part], rank[part], variable)
    return total - smaller


def _query_variables(model: AnyOrderModel) -> tuple[Variable, ...]:
    return model.schema.variables[: model.num_variables]


def _num_values(variable: Variable) -> int:
    """Returns the number of values of a variable to sum over, besides the nodes of a density."""
    return max(variable.num_levels, len(variable.atoms))


def _chunks(target: Tensor, model: AnyOrderModel, columns: int) -> Iterator[Tensor]:
    """Yields rows that sum out the same variable, as many as fit into memory."""
    for variable in target.unique().tolist():
        values = _num_values(_query_variables(model)[variable]) + NODES
        size = max(1, CELLS_AT_ONCE // (values * columns))
        yield from (target == variable).nonzero().squeeze(1).split(size)


def _summed_out(
    model: AnyOrderModel, x: Tensor, query: Tensor, rank: Tensor, variable: int
) -> Tensor:
    """Returns log p(x_query) with one variable summed or integrated out. Shape ``(rows,)``."""
    values, log_weights = _values(model, x, query, rank, variable)  # (rows, values)
    rows, count = values.shape
    wide = x.repeat_interleave(count, dim=0)
    wide[:, variable] = values.flatten().to(x.dtype)
    sets, ranks = (part.repeat_interleave(count, dim=0) for part in (query, rank))
    logs = log_prob_along(model, wide, query=sets, rank=ranks).view(rows, count)
    return (logs + log_weights).logsumexp(dim=1)


def _values(
    model: AnyOrderModel, x: Tensor, query: Tensor, rank: Tensor, variable: int
) -> tuple[Tensor, Tensor]:
    """Returns values of a variable and the logs of their weights. Shapes ``(rows, values)``."""
    about = _query_variables(model)[variable]
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
    """Returns the density of a variable given evidence, without its atoms; one a row."""
    targets = torch.full((len(x), 1), variable, device=x.device)
    conditional = model.distribution(model.features(x, known, targets)[:, 0], targets[:, 0])
    part = conditional.only if isinstance(conditional, MixedDistribution) else conditional
    part = part.elsewhere if isinstance(part, AtomicDistribution) else part
    assert isinstance(part, ContinuousDistribution)
    return part


def _nodes(first: ContinuousDistribution, second: ContinuousDistribution) -> tuple[Tensor, Tensor]:
    """Returns quadrature nodes and the logs of their weights, for importance sampling.

    The first density is that of x_j given what comes before it on the path, the second given all of
    x_S. The nodes are quantiles of the mean of the two, at the points of Gauss and Legendre's rule.
    What is left to integrate over (0, 1) is the ratio of the integrand to the mean: smooth where
    both are, and at most twice the integrand over either. Where the integrand is much narrower than
    the first density, it is like the second.
    """
    like = first.like
    points, parts = (
        torch.from_numpy(rule).to(like.device) for rule in np.polynomial.legendre.leggauss(NODES)
    )
    shares = ((points + 1) / 2)[:, None].expand(-1, len(like))
    ends = torch.stack([density.icdf(shares) for density in (first, second)])

    def mean_cdf(values: Tensor) -> Tensor:
        return (first.cdf(values) + second.cdf(values)) / 2

    # In the precision that the network sees.
    nodes = invert(mean_cdf, shares, ends.amin(dim=0), ends.amax(dim=0)).to(like.dtype)
    logs = first.log_prob(nodes).double(), second.log_prob(nodes).double()
    # The weights on (-1, 1) sum to two, as the two densities do.
    log_weights = parts.log()[:, None] - torch.logaddexp(*logs)
    # The second density integrates to one. Dividing by its integral on these nodes removes most of
    # the error for integrands that are like it.
    log_weights = log_weights - (log_weights + logs[1]).logsumexp(dim=0)
    return nodes.double().T, log_weights.T


@dataclass(frozen=True)
class MarginalisationGap(Gap):
    """A variable summed out of a random set of each row, against the set without it."""

    @property
    def sentence(self) -> str:
        """The gap in a sentence for people."""
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


@answering
def walk_and_ratio(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log p(x_i | x_e) by a walk from e, and as log p(x_i, x_e) - log p(x_e).

    i is a cell with a probability rather than a density, where a row has one.

    Returns:
        The walks, the ratios, and True for those that are probabilities. Shapes ``(rows,)``.
    """
    masses = have & has_mass(model, x)
    is_mass = masses.any(dim=1)
    target = random_members(torch.where(is_mass[:, None], masses, have), generator=generator)
    given = random_subsets(without(have, target), least=1, generator=generator)
    query = torch.zeros_like(have).scatter(1, target[:, None], True)
    walk, ratio = (
        log_prob(model, x, query=query, given=given, method=method, generator=generator)
        for method in ("walk", "ratio")
    )
    return walk, ratio, is_mass


@dataclass(frozen=True)
class RatioGap(Gap):
    """Conditionals of one cell as ratios, against walks from the evidence.

    Args:
        rows: Log of the ratio minus that of the walk. Shape ``(rows,)``.
        log_probabilities: Logs of the ratios that are probabilities: a density may exceed 1.
            Shape ``(probabilities,)``.
    """

    log_probabilities: Tensor

    @property
    def share_above_one(self) -> Estimate | None:
        """The fraction of the probabilities that exceed 1; None if there are only densities."""
        logs = self.log_probabilities
        return Estimate((logs > ROUNDING).double()) if len(logs) else None

    @property
    def sentence(self) -> str:
        """The gap in a sentence for people."""
        share = self.share_above_one
        by_hand = f"Formed by hand, as a ratio p(a, b) / p(b), it would differ by {self}"
        if share is None:
            return f"A conditional is answered directly here. {by_hand}."
        return (
            f"A conditional probability is answered directly here, and never exceeds 1. {by_hand}, "
            f"and {percent(share)} of such probabilities would exceed 1."
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        share = self.share_above_one
        counted = None if share is None else estimate_json(share)
        return {**super().to_json(), "share_above_one": counted}


@answering
def encoding_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """Returns log p(x_i | x_e) with e as evidence minus the same with e along the path.

    i is the last variable of a random set on the model's own path and e the rest of it, so that a
    model is trained for both. A masked network sees sets: there is no difference.
    """
    query = random_subsets(have, least=2, generator=generator)
    rank = model.protocol.rank(query, generator=generator)
    target = last_of_path(query, rank)
    factors = factors_along(model, x, query=query, rank=rank)
    on_path = factors.log_prob[factors.target == target[factors.row]].double()
    single = torch.zeros_like(query).scatter(1, target[:, None], True)
    return log_prob(model, x, query=single, given=without(query, target)) - on_path


@dataclass(frozen=True)
class EncodingGap(Gap):
    """Values given as evidence, against the same values along the path.

    Args:
        rows: The first log-likelihood of a cell minus the second. Shape ``(rows,)``.
        is_one_pass: True for a path network; a masked network encodes both alike.
    """

    is_one_pass: bool

    @property
    def sentence(self) -> str:
        """The gap in a sentence for people."""
        if not self.is_one_pass:
            return "Evidence is read in one way only by a masked network: there is no encoding gap."
        words = verdict(
            self.size.value,
            "both encodings say the same",
            "they differ a little",
            "they differ, and more training on conditional questions would help",
        )
        better = "better" if self.bias.value > 0 else "worse"
        apart = nats(Estimate(self.bias.rows * (1 if self.bias.value > 0 else -1)))
        return (
            f"Read as evidence rather than along the path, the same values change the prediction "
            f"of a cell by {self}: {words}; as evidence, cells are predicted {apart} nats {better}."
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {**super().to_json(), "by_construction": not self.is_one_pass}


def random_subsets(have: Tensor, *, least: int, generator: torch.Generator | None) -> Tensor:
    """Samples a subset of the variables of each row, with uniform size from `least` up."""
    available = have.sum(dim=1)
    share = uniform(available.shape, device=have.device, generator=generator)
    sizes = least + (share * (available - least + 1)).long()
    return subsets(sizes, have, generator=generator)


def random_members(members: Tensor, *, generator: torch.Generator | None) -> Tensor:
    """Samples a member of each set, none of which is empty. Shape ``(rows,)``."""
    keys = uniform(members.shape, device=members.device, generator=generator)
    return keys.masked_fill(~members, -1.0).argmax(dim=1)


def last_of_path(members: Tensor, rank: Tensor) -> Tensor:
    """Returns the last variable on the path of each set. Shape ``(rows,)``."""
    return rank.masked_fill(~members, -1).argmax(dim=1)


def without(members: Tensor, variables: Tensor) -> Tensor:
    """Returns each set without one of its variables."""
    return members.scatter(1, variables[:, None], False)


def log_prob_along(model: AnyOrderModel, x: Tensor, *, query: Tensor, rank: Tensor) -> Tensor:
    """Returns log p(x_query) along the paths of `rank`. Shape ``(rows,)``, float64."""
    return factors_along(model, x, query=query, rank=rank).totals(len(x))


def factors_along(model: AnyOrderModel, x: Tensor, *, query: Tensor, rank: Tensor) -> Factors:
    """Returns the factors of p(x_query), nothing given, along the paths of `rank`."""
    return model.factors(x, query=query, given=torch.zeros_like(query), rank=rank)


def has_mass(model: AnyOrderModel, x: Tensor) -> Tensor:
    """Marks the values with a probability, not a density: levels and atoms. ``(rows, vars)``."""
    columns = []
    for place, variable in enumerate(model.schema.variables[: model.num_variables]):
        atoms = torch.tensor(variable.atoms, dtype=torch.float32, device=x.device)
        is_level = torch.full((len(x),), variable.kind == "categorical", device=x.device)
        columns.append(is_level | torch.isin(x[:, place].float(), atoms))
    return torch.stack(columns, dim=1)
