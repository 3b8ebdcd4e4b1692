"""Evidence: the same question by ways that treat it differently.

A conditional can be walked from the evidence, or taken as a ratio of two likelihoods. And a path
network reads values that are given in one way (all see each other) and values along its own path in
another (each sees those before it), so that p(x_i | x_e) has two answers.

Two ways to one number, and how far apart they come out, in nats.

The random sets that diagnostics ask about, and the paths along which they are walked.

Orders: the same likelihood along other paths than the model's own.

The chain rule gives a set of c variables c! paths. A model whose conditionals agree with each
other has one likelihood along all of them; a trained one has not (Limitations of the paper). This
library walks the canonical path, so that every question has one answer; how far the others are from
it tells how far the conditionals agree.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.inference.model import AnyOrderModel, Factors
from anyorder.inference.queries import answering, log_prob
from anyorder.lattice.protocols import RemoveRandom
from anyorder.lattice.random_sets import subsets, uniform

SMALL, LARGE = 0.05, 0.5
"""Nats: a probability that is 5% off hardly matters, one that is 65% off does."""


@dataclass(frozen=True)
class Gap:
    """The log of one answer minus the log of the other, row by row.

    Args:
        rows: Signed differences. Shape ``(rows,)``.
    """

    rows: Tensor

    @property
    def size(self) -> Estimate:
        """How far apart the answers are: the mean of the absolute differences."""
        return Estimate(self.rows.abs())

    @property
    def bias(self) -> Estimate:
        """Which answer is larger: the mean of the signed differences."""
        return Estimate(self.rows)

    @property
    def quantile_90(self) -> float:
        """Nine rows in ten are no further apart."""
        return float(self.rows.abs().quantile(0.9))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
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
    """A mean for people, with its standard error if it has one."""
    places = 2 if abs(estimate.value) >= 0.1 else 3
    error = f" ± {estimate.se:.{places}f}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:.{places}f}{error}"


def percent(estimate: Estimate) -> str:
    """A mean of shares for people, with its standard error if it has one."""
    error = f" ± {estimate.se:.1%}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:.1%}{error}"


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """A mean, its standard error (None of a single row) and the number of rows."""
    se = estimate.se if math.isfinite(estimate.se) else None
    return {"value": estimate.value, "se": se, "n": len(estimate.rows)}


def verdict(size: float, small: str, middle: str, large: str) -> str:
    """Words for a gap, by its size."""
    if size < SMALL:
        return small
    return middle if size < LARGE else large


def several(have: Tensor, *, least: int, generator: torch.Generator | None) -> Tensor:
    """A random set of what each row has, each size from `least` to all of it as often.

    Args:
        have: What the rows have, `least` variables or more. Shape ``(rows, vars)``.
        least: The smallest size.
        generator: The source of randomness.
    """
    available = have.sum(dim=1)
    share = uniform(available.shape, device=have.device, generator=generator)
    sizes = least + (share * (available - least + 1)).long()
    return subsets(sizes, have, generator=generator)


def one_of(members: Tensor, *, generator: torch.Generator | None) -> Tensor:
    """A random member of each set, none of them empty. Shape ``(rows,)``."""
    keys = uniform(members.shape, device=members.device, generator=generator)
    return keys.masked_fill(~members, -1.0).argmax(dim=1)


def last_of(members: Tensor, rank: Tensor) -> Tensor:
    """The last variable of the path of each set. Shape ``(rows,)``."""
    return rank.masked_fill(~members, -1).argmax(dim=1)


def without(members: Tensor, variables: Tensor) -> Tensor:
    """Each set without one variable."""
    return members.scatter(1, variables[:, None], False)


def log_prob_along(model: AnyOrderModel, x: Tensor, *, query: Tensor, rank: Tensor) -> Tensor:
    """The log of p(x_query) along the paths that `rank` tells. Shape ``(rows,)``, float64."""
    return factors_along(model, x, query=query, rank=rank).totals(len(x))


def factors_along(model: AnyOrderModel, x: Tensor, *, query: Tensor, rank: Tensor) -> Factors:
    """The factors of p(x_query), nothing given, along the paths that `rank` tells."""
    return model.factors(x, query=query, given=torch.zeros_like(query), rank=rank)


def has_mass(model: AnyOrderModel, x: Tensor) -> Tensor:
    """Which values have a probability, not a density: levels and atoms. Shape ``(rows, vars)``."""
    columns = []
    for place, variable in enumerate(model.schema.variables[: model.num_variables]):
        atoms = torch.tensor(variable.atoms, dtype=torch.float32, device=x.device)
        is_level = torch.full((len(x),), variable.kind == "categorical", device=x.device)
        columns.append(is_level | torch.isin(x[:, place].float(), atoms))
    return torch.stack(columns, dim=1)


@answering
def path_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """The log of p(x_S) along a random order minus the same along the model's own path.

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, two variables or more. Shape ``(rows, vars)``.
        generator: The source of randomness: of S, a set of two or more, and of the order.

    Returns:
        Shape ``(rows,)``.
    """
    query = several(have, least=2, generator=generator)
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
    """The log of p(x_query) along the model's own path, then along random orders.

    Returns:
        Shape ``(1 + orders, rows)``.
    """
    protocols = [model.protocol] + [RemoveRandom()] * orders
    walks = [log_prob(model, x, query=query, protocol=p, generator=generator) for p in protocols]
    return torch.stack(walks)


@dataclass(frozen=True)
class PathGap(Gap):
    """A random set of each row, along a random order against the model's own path."""

    @property
    def sentence(self) -> str:
        """What it means."""
        words = verdict(
            self.size.value,
            "orders hardly matter",
            "orders matter a little",
            "orders matter, so compare only likelihoods that were walked along the same one",
        )
        return f"Asked in another order, the same likelihood changes by {self}: {words}."


@dataclass(frozen=True)
class OrderSpread:
    """The likelihoods of whole rows along several orders.

    Args:
        log_probs: Along the model's own path, then along random orders. Shape ``(orders, rows)``.
    """

    log_probs: Tensor

    @property
    def spread(self) -> Estimate:
        """The standard deviation over the random orders of a row, in nats."""
        return Estimate(self.log_probs[1:].std(dim=0))

    @property
    def mixture_gain(self) -> Estimate:
        """What the mean of the likelihoods of all these paths has over the model's own, in nats."""
        mixture = self.log_probs.logsumexp(dim=0) - math.log(len(self.log_probs))
        return Estimate(mixture - self.log_probs[0])

    @property
    def sentence(self) -> str:
        """What it means."""
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
        """Plain values."""
        return {
            "orders": len(self.log_probs) - 1,
            "spread": estimate_json(self.spread),
            "mixture_gain": estimate_json(self.mixture_gain),
        }


ROUNDING = 1e-4
"""Nats: what sums of factors in float32 may be off, so that a certain value does not count."""


@answering
def walk_and_ratio(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The log of p(x_i | x_e) by a walk from e, and by log p(x_i, x_e) - log p(x_e).

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, two variables or more. Shape ``(rows, vars)``.
        generator: The source of randomness: of i, a cell with a probability rather than a density
            where a row has one, and of e, one or more of the others.

    Returns:
        The walks, the ratios, and whether each is a probability. Shapes ``(rows,)``.
    """
    masses = have & has_mass(model, x)
    is_mass = masses.any(dim=1)
    target = one_of(torch.where(is_mass[:, None], masses, have), generator=generator)
    given = several(without(have, target), least=1, generator=generator)
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
        rows: The log of the ratio minus that of the walk. Shape ``(rows,)``.
        log_probabilities: The logs of the ratios that are probabilities: a density may well exceed
            1. Shape ``(probabilities,)``.
    """

    log_probabilities: Tensor

    @property
    def share_above_one(self) -> Estimate | None:
        """Of the probabilities, how many exceed 1; None if there are only densities."""
        logs = self.log_probabilities
        return Estimate((logs > ROUNDING).double()) if len(logs) else None

    @property
    def sentence(self) -> str:
        """What it means."""
        share = self.share_above_one
        by_hand = f"Formed by hand, as a ratio p(a, b) / p(b), it would differ by {self}"
        if share is None:
            return f"A conditional is answered directly here. {by_hand}."
        return (
            f"A conditional probability is answered directly here, and never exceeds 1. {by_hand}, "
            f"and {percent(share)} of such probabilities would exceed 1."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        share = self.share_above_one
        counted = None if share is None else estimate_json(share)
        return {**super().to_json(), "share_above_one": counted}


@answering
def encoding_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """The log of p(x_i | x_e) with e as evidence minus the same with e along the path.

    i is the last of a random set on the model's own path and e the rest of it, so that both are
    questions that a model is trained for. A masked network sees sets: there is no difference.

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, two variables or more. Shape ``(rows, vars)``.
        generator: The source of randomness: of the set.

    Returns:
        Shape ``(rows,)``.
    """
    query = several(have, least=2, generator=generator)
    rank = model.protocol.rank(query, generator=generator)
    target = last_of(query, rank)
    factors = factors_along(model, x, query=query, rank=rank)
    told = factors.log_prob[factors.target == target[factors.row]].double()
    asked = torch.zeros_like(query).scatter(1, target[:, None], True)
    return log_prob(model, x, query=asked, given=without(query, target)) - told


@dataclass(frozen=True)
class EncodingGap(Gap):
    """Evidence as evidence, against the same values along the path.

    Args:
        rows: The first log-likelihood of a cell minus the second. Shape ``(rows,)``.
        is_one_pass: Whether the network is one for which there are two ways.
    """

    is_one_pass: bool

    @property
    def sentence(self) -> str:
        """What it means."""
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
        """Plain values."""
        return {**super().to_json(), "by_construction": not self.is_one_pass}
