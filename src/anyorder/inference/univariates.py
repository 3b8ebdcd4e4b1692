"""Univariate distributions, many at once: what a batch of questions is answered from.

Features of edges become distributions, one for each question and variable. Where weighted samples
stand for the evidence, a distribution is the mixture over their edges.

Quantiles of numbers are exact. A CDF on a few knots brackets each one, then secant steps find where
ndtri(CDF), nearly a line for nearly normal distributions, meets ndtri(share). That takes two or
three evaluations of the CDF for all quantiles of all distributions, where halving takes sixty.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.special import ndtri

from anyorder.heads.atoms import AtomicDistribution
from anyorder.heads.categorical import Categorical
from anyorder.heads.distributions import NODES, ContinuousDistribution, Distribution
from anyorder.heads.mixed import MixedDistribution
from anyorder.heads.mixture import Mixture
from anyorder.inference.model import AnyOrderModel

POINTS_AT_ONCE = 65_536
"""Evaluations of densities in one go: keeps memory flat where many samples stand for evidence."""

KNOTS = 121
"""Points of a density that is drawn."""

REACH = 12.0
"""Codes are normal scores: farther out than this there is no probability worth drawing."""

COARSE, ROUNDS = 33, 2
"""Knots that find where the probability is, and how often they are drawn closer together."""

TAIL = 1e-4
"""Probability that may be beyond the first and the last knot."""

CLOSE = 1e-7
"""A secant step below this, relative to 1 + |code|, is the last one: float32 tells no less apart.
Steps shrink faster than geometrically, so that a quantile is far closer than the step itself."""

ENTROPY_CLOSE = 1e-4
"""The same for an entropy, to which the errors of hundreds of quantiles add less than 1e-6."""

LEAST, EPSILON = 1e-300, torch.finfo(torch.float64).eps
"""Shares are kept this far from 0 and 1, whose normal scores are infinite."""

FARTHEST = 1e4
"""No code is farther out; see `Gaussianizer`."""

SECANTS, BISECTIONS = 16, 64
"""Secant steps before brackets are halved instead, and halvings, which go below rounding."""


@dataclass(frozen=True)
class Edges:
    """Features of edges that make up distributions: the samples of one evidence are a mixture.

    Args:
        features: Shape ``(edges, width)``.
        variables: Variable of each edge. Shape ``(edges,)``.
        owner: Distribution of each edge; ascending. Shape ``(edges,)``.
        weight: Weight in its distribution, where weights sum to one. Shape ``(edges,)``, float64.
    """

    features: Tensor
    variables: Tensor
    owner: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, features: Sequence[Tensor], variables: Sequence[int], weights: Sequence[Tensor]
    ) -> "Edges":
        """Joins what `answer` gave for some variables, and the weights of the samples."""
        sizes = torch.tensor([len(part) for part in features])
        return cls(
            torch.cat(list(features)),
            torch.tensor(variables, dtype=torch.long).repeat_interleave(sizes),
            torch.arange(len(sizes)).repeat_interleave(sizes),
            torch.cat([part.cpu().double() for part in weights]),
        )

    def groups(self, model: AnyOrderModel) -> "Iterator[tuple[list[int], Levelled | Numbers]]":
        """Yields the distributions by kind: their numbers, and their answers."""
        device = self.features.device
        mixed = model.conditionals(self.features, self.variables.to(device))
        assert isinstance(mixed, MixedDistribution)
        for places, part in mixed.parts:
            mine = places.cpu()
            owners, own = self.owner[mine].unique(return_inverse=True)
            mixing = Mixing(own, self.weight[mine], len(owners))
            kind = Levelled if isinstance(part, Categorical) else Numbers
            yield owners.tolist(), kind(part, mixing, device)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Mixing:
    """Weights by which edges are mixed into distributions.

    Args:
        owner: Distribution of each edge. Shape ``(edges,)``.
        weight: Its weight; those of a distribution sum to one. Shape ``(edges,)``, float64.
        count: How many distributions there are.
    """

    owner: Tensor
    weight: Tensor
    count: int

    def __call__(self, values: Tensor) -> Tensor:
        """Returns weighted sums over edges. From shape ``(..., edges)`` to ``(..., count)``."""
        weighted = values.double().cpu() * self.weight
        if len(self.owner) == self.count:  # one edge each, in order
            return weighted
        total = torch.zeros(*values.shape[:-1], self.count, dtype=torch.float64)
        return total.index_add_(-1, self.owner, weighted)


@dataclass(frozen=True)
class Levelled:
    """Distributions of categories, many at once.

    Args:
        part: Distributions of flat edges.
        mixing: Weights of the edges.
        device: Where `part` is.
    """

    part: Categorical
    mixing: Mixing
    device: torch.device

    @cached_property
    def probabilities(self) -> Tensor:
        """Probabilities of the levels, padded by zeros. Shape ``(count, levels)``."""
        return self.mixing(self.part.log_probs.exp().T).T

    def entropy(self) -> Tensor:
        """Returns entropies in nats. Shape ``(count,)``."""
        return torch.special.entr(self.probabilities).sum(dim=1)


@dataclass(frozen=True)
class Numbers:
    """Distributions of numbers, many at once: in codes, that is in normal scores.

    Args:
        part: Distributions of flat edges, all with a density, with or without atoms.
        mixing: Weights of the edges.
        device: Where `part` is.
    """

    part: AtomicDistribution | ContinuousDistribution
    mixing: Mixing
    device: torch.device

    @cached_property
    def smooth(self) -> ContinuousDistribution:
        """Densities of the edges, without atoms."""
        return self.part.elsewhere if isinstance(self.part, AtomicDistribution) else self.part

    @cached_property
    def masses(self) -> Tensor:
        """Probabilities of the atoms. Shape ``(count, atoms)``."""
        if not isinstance(self.part, AtomicDistribution):
            return torch.zeros(self.mixing.count, 0, dtype=torch.float64)
        return self.mixing(self._branches[:, :-1].T).T

    @cached_property
    def atoms(self) -> Tensor:
        """Codes of the atoms, ascending, padded by infinity. Shape ``(count, atoms)``."""
        places = torch.zeros_like(self.masses)
        if isinstance(self.part, AtomicDistribution):  # all edges of a distribution have the same
            places[self.mixing.owner] = self.part.atoms.double().cpu()
        return places

    @cached_property
    def share(self) -> Tensor:
        """Probability of all but atoms. Shape ``(count,)``."""
        if not isinstance(self.part, AtomicDistribution):
            return torch.ones(self.mixing.count, dtype=torch.float64)
        return self.mixing(self._branches[:, -1])

    @cached_property
    def _branches(self) -> Tensor:
        assert isinstance(self.part, AtomicDistribution)
        return self.part.branches.logits.double().softmax(dim=-1).cpu()

    @cached_property
    def _beside(self) -> Mixing:
        """Weights of the edges where no atom is; those of a distribution sum to one."""
        if not isinstance(self.part, AtomicDistribution):
            return self.mixing
        mixing, elsewhere = self.mixing, self._branches[:, -1]
        whole = mixing(elsewhere)[mixing.owner].clamp(min=LEAST)
        return Mixing(mixing.owner, mixing.weight * elsewhere / whole, mixing.count)

    def pdf(self, codes: Tensor) -> Tensor:
        """Returns densities of codes; at atoms, probabilities. Shapes ``(points, count)``."""
        return self.mixing(self._at(self.part, "log_prob", codes.float()).double().exp())

    def cdf(self, codes: Tensor) -> Tensor:
        """Returns the probabilities of at most each code. Shapes ``(points, count)``."""
        return self.mixing(self._at(self.part, "cdf", codes.float())).clamp(0, 1)

    def quantiles(self, shares: Tensor) -> Tensor:
        """Returns the codes below which shares lie; exactly an atom where it is one.

        Args:
            shares: Between 0 and 1. Shape ``(shares,)``, float64.

        Returns:
            Shape ``(shares, count)``, float64.
        """
        wanted = shares.double()[:, None].expand(-1, self.mixing.count)
        if not self.masses.shape[1]:
            return self._inverse(wanted)
        steps = self.masses.cumsum(dim=1)
        below = self._below(self.atoms.clamp(max=FARTHEST).T).T
        reached = steps + self.share[:, None] * below  # (count, atoms), at each atom
        following = torch.searchsorted(reached, wanted.T.contiguous())  # (count, shares)
        last = following.clamp(max=self.masses.shape[1] - 1)
        atom, mass, step, reach = (
            t.gather(1, last) for t in (self.atoms, self.masses, steps, reached)
        )
        beyond = following > last
        is_atom = (reach - mass < wanted.T) & ~beyond & atom.isfinite()
        before = torch.where(beyond, step, step - mass)
        left = (wanted.T - before) / self.share.clamp(min=LEAST)[:, None]
        smooth = self._inverse(left.clamp(EPSILON, 1 - EPSILON).T, ~is_atom.T)
        return torch.where(is_atom.T, atom.T, smooth)

    def entropy(self) -> Tensor:
        """Returns entropies in nats, of atoms and of the density beside them. Shape ``(count,)``.

        That of a density is the mean negative log-likelihood of many quantiles, as heads have it.
        """
        nodes = (torch.arange(NODES, dtype=torch.float64) + 0.5) / NODES
        codes = self._inverse(nodes[:, None].expand(-1, self.mixing.count), close=ENTROPY_CLOSE)
        heights = self._beside(self._at(self.smooth, "log_prob", codes.float()).double().exp())
        smooth = -heights.log().mean(dim=0)
        branches = torch.special.entr(self.masses).sum(dim=1) + torch.special.entr(self.share)
        return branches + self.share * smooth

    @cached_property
    def knots(self) -> tuple[Tensor, Tensor]:
        """Codes where the density is, and its CDF there. Shapes ``(knots, count)``."""
        low = torch.full((self.mixing.count,), -REACH, dtype=torch.float64)
        high = -low
        for _ in range(ROUNDS):
            codes, reached = self._evaluated(low, high, COARSE)
            first = ((reached < TAIL).sum(dim=0) - 1).clamp(min=0)
            last = (reached <= 1 - TAIL).sum(dim=0).clamp(max=COARSE - 1)
            low, high = (codes.gather(0, place[None])[0] for place in (first, last))
            if bool((last - first > COARSE // 4).all()):
                break
        return self._evaluated(low, high, KNOTS)

    def _evaluated(self, low: Tensor, high: Tensor, knots: int) -> tuple[Tensor, Tensor]:
        steps = torch.linspace(0, 1, knots, dtype=torch.float64)[:, None]
        codes = low + (high - low) * steps
        return codes, self._below(codes)

    @cached_property
    def _whole(self) -> Tensor:
        """What the CDF of the density comes to: 1 but for the rounding of its weights."""
        ends = torch.full((1, self.mixing.count), FARTHEST, dtype=torch.float64)
        return self._beside(self._at(self.smooth, "cdf", ends))[0]

    def _below(self, codes: Tensor) -> Tensor:
        """Returns the CDF of the density beside atoms, in doubles. Shapes ``(points, count)``."""
        return (self._beside(self._at(self.smooth, "cdf", codes)) / self._whole).clamp(0, 1)

    def _at(self, part: Distribution, method: str, codes: Tensor) -> Tensor:
        """Returns what edges answer for codes of their distributions. Shape ``(points, edges)``."""
        wanted = codes if self._is_single else codes[:, self.mixing.owner]
        size, asked = max(1, POINTS_AT_ONCE // wanted.shape[1]), getattr(part, method)
        found = [asked(some.to(self.device)).cpu() for some in wanted.split(size)]
        return found[0] if len(found) == 1 else torch.cat(found)

    @property
    def _is_single(self) -> bool:
        """Whether each distribution is one edge."""
        return len(self.mixing.owner) == self.mixing.count

    def _inverse(
        self, wanted: Tensor, asked: Tensor | None = None, *, close: float = CLOSE
    ) -> Tensor:
        """Returns where the CDF of the density reaches `wanted`. Shapes ``(shares, count)``.

        Args:
            wanted: Shares of the density, in (0, 1).
            asked: Where the answer matters; everywhere by default.
            close: Secant step that is the last one.
        """
        if self._is_single and not isinstance(getattr(self.smooth, "inner", self.smooth), Mixture):
            return self._at(self.smooth, "icdf", wanted).double()  # it has an inverse of its own
        (knots, reached), score = self.knots, ndtri(wanted)
        scores = ndtri(reached.clamp(LEAST, 1 - EPSILON))
        place = torch.searchsorted(reached.T.contiguous(), wanted.T.contiguous()).T
        right = place.clamp(1, len(knots) - 1)
        a, b = knots.gather(0, right - 1), knots.gather(0, right)
        off_a, off_b = (scores.gather(0, at) - score for at in (right - 1, right))
        low = torch.where(place == len(knots), b, a).masked_fill(place == 0, -FARTHEST)
        high = torch.where(place == 0, a, b).masked_fill(place == len(knots), FARTHEST)
        found, rows = torch.zeros_like(wanted), torch.arange(len(wanted))
        active = torch.ones_like(found, dtype=torch.bool) if asked is None else asked
        for step in range(SECANTS + BISECTIONS):
            code = b - off_b * (b - a) / (off_b - off_a)
            inside = (code > low) & (code < high) & (step < SECANTS)
            code = torch.where(inside, code, (low + high) / 2)
            found[rows] = torch.where(active, code, found[rows])
            active = active & ((code - b).abs() > close * (1 + code.abs()))
            left = active.any(dim=1)
            if not left.any():
                break
            if not left.all():  # tails take more steps: the others are done with
                rows, active, score, low, high, b, off_b, code = (
                    state[left] for state in (rows, active, score, low, high, b, off_b, code)
                )
            off = ndtri(self._below(code).clamp(LEAST, 1 - EPSILON)) - score
            low, high = torch.where(off < 0, code, low), torch.where(off < 0, high, code)
            a, off_a, b, off_b = b, off_b, code, off
        return found
