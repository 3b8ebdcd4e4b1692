"""Many distributions of one kind at once, as curves on a few knots.

A distribution on a line is kept as the probability that is reached at each of some knots, and the
probabilities of its atoms. Its quantiles, mean, entropy and density are read from that: one
evaluation of the CDF for all of them, and for all requests of a batch. Between knots the density is
taken to be level; with 121 of them a quantile is off by about a thousandth of the spread.

Where draws stand for the evidence (intervals and sets of levels), a curve is the weighted mixture
of the curves of its draws.

The distributions of the columns of many requests, from one pass of the network.

What to measure next: the expected information about a target, of all columns at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.heads.atoms import AtomicDistribution
from anyorder.heads.categorical import Categorical
from anyorder.heads.distributions import Distribution
from anyorder.heads.mixed import MixedDistribution
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import GAIN_NODES
from anyorder.networks.contracts import Features
from anyorder.tables.engine import parts
from anyorder.tables.questions import Evidence

FloatArray = NDArray[np.float64]

REACH = 12.0
"""Codes are normal scores: farther out than this there is no probability worth drawing."""

COARSE, ROUNDS = 33, 2
"""Knots that find where the probability is, and how often they are drawn closer together."""

TAIL = 1e-4
"""Probability that may be beyond the first and the last knot."""


@dataclass(frozen=True)
class Mixing:
    """Which edges make up which curve, and how much each counts.

    Args:
        owner: The curve of each edge. Shape ``(edges,)``.
        weight: Its share; those of a curve sum to one. Shape ``(edges,)``, float64.
        count: How many curves there are.
    """

    owner: Tensor
    weight: Tensor
    count: int

    def mixed(self, values: Tensor) -> Tensor:
        """What edges answer, by curve. From shape ``(..., edges)`` to ``(..., count)``."""
        total = torch.zeros(*values.shape[:-1], self.count, dtype=torch.float64)
        return total.index_add_(-1, self.owner, values.double() * self.weight)


@dataclass(frozen=True)
class Curve:
    """A distribution on a line.

    Args:
        codes: Of the knots, ascending. Shape ``(knots,)``.
        reached: The probability of the density up to each knot; ends at `1 - atoms.sum()`.
        atom_codes: Ascending. Shape ``(atoms,)``.
        atoms: Their probabilities.
    """

    codes: FloatArray
    reached: FloatArray
    atom_codes: FloatArray
    atoms: FloatArray

    def quantiles(self, shares: FloatArray) -> FloatArray:
        """The codes below which shares of the probability lie; exactly an atom where it is one."""
        steps = np.concatenate([[0.0], self.atoms.cumsum()])
        before = np.interp(self.atom_codes, self.codes, self.reached)
        below = np.searchsorted(self.atom_codes, self.codes, side="right")
        codes = np.concatenate([self.codes, self.atom_codes, self.atom_codes])
        reached = np.concatenate(
            [self.reached + steps[below], before + steps[:-1], before + steps[1:]]
        )
        order = np.lexsort((reached, codes))
        reached = np.maximum.accumulate(reached[order])
        return np.interp(shares, reached / reached[-1], codes[order])

    def entropy(self) -> float:
        """In nats: of the atoms, and of the density of codes where it is drawn from."""
        masses = np.diff(self.reached)
        there = masses > 0
        heights = masses[there] / np.diff(self.codes)[there]
        atoms = self.atoms[self.atoms > 0]
        return float(-(masses[there] * np.log(heights)).sum() - (atoms * np.log(atoms)).sum())


def curves(
    distribution: Distribution, mixing: Mixing, *, knots: int, device: torch.device
) -> list[Curve]:
    """The curves of edges that are numbers.

    Args:
        distribution: Of flat edges, all with a density, with or without atoms.
        mixing: Which edges make up which curve.
        knots: Of each curve.
        device: Where the distribution is.
    """
    smooth, share = distribution, torch.ones(len(mixing.owner), dtype=torch.float64)
    atoms = torch.zeros(0, mixing.count, dtype=torch.float64)
    if isinstance(distribution, AtomicDistribution):
        masses = distribution.branches.log_probs.double().exp().cpu()
        smooth, share = distribution.elsewhere, masses[:, -1]
        atoms = mixing.mixed(masses[:, :-1].T)
    dense = Mixing(mixing.owner, mixing.weight * share, mixing.count)
    whole = dense.mixed(torch.ones_like(share))
    codes, reached = _reached(_Cdf(smooth, device), dense, whole, knots)
    places = _atom_places(distribution, mixing)
    found = zip(codes.T.numpy(), reached.T.numpy(), places, atoms.T.numpy(), strict=True)
    return [
        Curve(code, reach, at[np.isfinite(at)], mass[np.isfinite(at)])
        for code, reach, at, mass in found
    ]


def _atom_places(distribution: Distribution, mixing: Mixing) -> FloatArray:
    """The codes of the atoms of each curve, padded by infinity. Shape ``(count, atoms)``."""
    if not isinstance(distribution, AtomicDistribution):
        return np.zeros((mixing.count, 0))
    places = torch.zeros(mixing.count, distribution.atoms.shape[-1], dtype=torch.float64)
    places[mixing.owner] = distribution.atoms.double().cpu()  # all edges of a curve have the same
    return places.numpy()


@dataclass(frozen=True)
class _Cdf:
    """The CDF of edges that may be on a GPU, for codes that are not."""

    distribution: Distribution
    device: torch.device

    def __call__(self, codes: Tensor) -> Tensor:
        return self.distribution.cdf(codes.to(self.device, torch.float32)).cpu()


def _reached(cdf: _Cdf, mixing: Mixing, whole: Tensor, knots: int) -> tuple[Tensor, Tensor]:
    """Knots where the density is, and the probability up to each. Shapes ``(knots, count)``."""
    low = torch.full((mixing.count,), -REACH, dtype=torch.float64)
    high = -low
    for _ in range(ROUNDS):
        codes, reached = _evaluated(cdf, mixing, low, high, COARSE)
        share = reached / whole.clamp(min=1e-300)
        first = ((share < TAIL).sum(dim=0) - 1).clamp(min=0)
        last = (share <= 1 - TAIL).sum(dim=0).clamp(max=COARSE - 1)
        low, high = (codes.gather(0, place[None])[0] for place in (first, last))
    codes, reached = _evaluated(cdf, mixing, low, high, knots)
    # What is beyond the ends is put there, so that nothing is lost.
    reached[0], reached[-1] = 0.0, whole
    return codes, reached


def _evaluated(
    cdf: _Cdf, mixing: Mixing, low: Tensor, high: Tensor, knots: int
) -> tuple[Tensor, Tensor]:
    steps = torch.linspace(0, 1, knots, dtype=torch.float64)[:, None]
    codes = low + (high - low) * steps
    return codes, mixing.mixed(cdf(codes[:, mixing.owner]))


KNOTS = 121
"""Of a curve."""


@dataclass(frozen=True)
class Ask:
    """Which columns are asked, given what.

    Args:
        x: Values of the evidence, a row for each draw of it. Shape ``(draws, columns)``.
        known: What is given. Shape ``(vars,)``.
        weights: Of the draws; they sum to one. Shape ``(draws,)``.
        columns: The variables that are asked.
    """

    x: Tensor
    known: Tensor
    weights: Tensor
    columns: Sequence[int]


Found = Curve | FloatArray
"""A curve, or the probabilities of levels."""


@torch.inference_mode()
def distributions(
    model: AnyOrderModel, asks: Sequence[Ask], *, knots: int = KNOTS
) -> list[list[Found]]:
    """What is known about each column of each question, from one pass for all of them."""
    features, variables, owner, weight = _edges(model, asks)
    conditional = model.distribution(features, variables.to(features.device))
    assert isinstance(conditional, MixedDistribution)
    found: dict[int, Found] = {}
    for places, part in conditional.parts:
        mine = places.cpu()
        owners, own = owner[mine].unique(return_inverse=True)
        mixing = Mixing(own, weight[mine], len(owners))
        answers: Sequence[Found] = (
            list(mixing.mixed(part.log_probs.exp().T.cpu()).T.numpy())
            if isinstance(part, Categorical)
            else curves(part, mixing, knots=knots, device=features.device)
        )
        found |= dict(zip(owners.tolist(), answers, strict=True))
    listed = iter(found[place] for place in range(len(found)))
    return [[next(listed) for _ in ask.columns] for ask in asks]


def _edges(model: AnyOrderModel, asks: Sequence[Ask]) -> tuple[Features, Tensor, Tensor, Tensor]:
    """The features of all edges, their variables, the distribution of each, and its weight."""
    x = torch.cat([ask.x.cpu() for ask in asks])
    known = torch.cat([ask.known.cpu().expand(len(ask.x), -1) for ask in asks])
    widest = max(len(ask.columns) for ask in asks)
    targets, rows, places, owner, weight = (
        torch.zeros(len(x), widest, dtype=torch.long),
        [],
        [],
        [],
        [],
    )
    row = number = 0
    for ask in asks:
        draws, width = len(ask.x), len(ask.columns)
        asked = torch.tensor(list(ask.columns), dtype=torch.long)
        targets[row : row + draws, :width] = asked
        rows.append(torch.arange(row, row + draws).repeat_interleave(width))
        places.append(torch.arange(width).repeat(draws))
        owner.append(torch.arange(number, number + width).repeat(draws))
        weight.append(ask.weights.double().cpu().repeat_interleave(width))
        row, number = row + draws, number + width
    row_of, place_of = torch.cat(rows), torch.cat(places)
    x, known = x.to(model.device), known.to(model.device)
    parted = [
        model.features(x[some], known[some], targets[some].to(x.device))
        for some in parts(len(x), x.shape[1] + widest)
    ]
    features = Features.cat(parted)[row_of, place_of]
    return features, targets[row_of, place_of], torch.cat(owner), torch.cat(weight)


MOST_LEVELS = 32
"""Levels of a category that are supposed, the most probable."""

ALONE = torch.ones(1, dtype=torch.float64)


def information_gains(model: AnyOrderModel, evidence: Evidence, target: int) -> dict[int, float]:
    """How many nats learning each unknown variable is expected to tell about `target`.

    As `queries.information_gain`, in two passes for all candidates together, and with entropies
    that are read from curves.
    """
    others = [
        place
        for place in range(model.num_variables)
        if place != target and not evidence.given[place]
    ]
    if not others:
        return {}
    first = Ask(evidence.x, evidence.given, ALONE, [target, *others])
    ((before, *found),) = distributions(model, [first])
    asks, weights, owner = [], [], []
    for place, now in zip(others, found, strict=True):
        values, shares = _supposed(now)
        known = evidence.given.clone()
        known[place] = True
        for value in values:
            x = evidence.x.clone()
            x[0, place] = float(value)
            asks.append(Ask(x, known, ALONE, [target]))
        weights.extend(shares.tolist())
        owner.extend([place] * len(values))
    gains = dict.fromkeys(others, entropy(before))
    for place, weight, (after,) in zip(owner, weights, distributions(model, asks), strict=True):
        gains[place] -= weight * entropy(after)
    return gains


def entropy(found: Found) -> float:
    """In nats; numbers in normal scores."""
    if isinstance(found, Curve):
        return found.entropy()
    likely = found[found > 0]
    return float(-(likely * np.log(likely)).sum())


def _supposed(found: Found) -> tuple[FloatArray, FloatArray]:
    """Values that stand for what a variable may be, and their weights."""
    if isinstance(found, Curve):
        shares = (np.arange(GAIN_NODES) + 0.5) / GAIN_NODES
        return found.quantiles(shares), np.full(GAIN_NODES, 1 / GAIN_NODES)
    likely = np.argsort(-found)[:MOST_LEVELS]
    likely = likely[found[likely] > 0]
    return likely.astype(np.float64), found[likely] / found[likely].sum()
