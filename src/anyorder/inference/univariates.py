"""Univariate distributions, many at once, from which a batch of questions is answered.

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
from anyorder.heads.distributions import NODES, Categorical, ContinuousDistribution, Distribution
from anyorder.heads.mixed import AveragedConditionals, MixedDistribution
from anyorder.heads.mixture import Mixture
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import Features

Bracket = tuple[Tensor, Tensor]

POINTS_AT_ONCE = 65_536
"""Evaluations of densities at once: bounds memory where many samples stand for evidence."""

KNOTS = 121
"""Points of a plotted density."""

REACH = 12.0
"""Greatest code of a plot: beyond this normal score probabilities are negligible."""

COARSE, ROUNDS, FEWEST = 65, 2, 4
"""Points that locate the probability, rounds, and fewest intervals that it must span."""

TAIL = 1e-4
"""Greatest probability beyond the first and the last knot."""

CLOSE = 1e-7
"""Greatest error of a quantile, in normal scores of the share: about the resolution of float32.
The error of the share itself is at most 4e-8."""

ENTROPY_CLOSE = 1e-5
"""The same for an entropy, to which the errors of hundreds of quantiles add less than 1e-6."""

LOOSE = 1e-6
"""Least tolerance for which float32 suffices."""

LEAST, EPSILON = 1e-300, torch.finfo(torch.float64).eps
"""Least distances of shares from 0 and 1, whose normal scores are infinite."""

FARTHEST = 1e4
"""Greatest code; see `Gaussianizer`."""

SECANTS, BISECTIONS = 16, 64
"""Secant steps before brackets are halved instead, and halvings, enough for float64."""


@dataclass(frozen=True)
class Edges:
    """Features of edges that make up distributions: the samples of one evidence are a mixture.

    Args:
        features: Shape ``(edges, width)``.
        variables: Variable of each edge. Shape ``(edges,)``.
        owner: Distribution of each edge; ascending. Shape ``(edges,)``.
        weight: Weight in its distribution, where weights sum to one. Shape ``(edges,)``, float64.
    """

    features: Features
    variables: Tensor
    owner: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, features: Sequence[Features], variables: Sequence[int], weights: Sequence[Tensor]
    ) -> "Edges":
        """Joins the features of some variables, from `answer`, and the weights of the samples."""
        sizes = torch.tensor([len(part) for part in features])
        return cls(
            Features.cat(list(features)),
            torch.tensor(variables, dtype=torch.long).repeat_interleave(sizes),
            torch.arange(len(sizes)).repeat_interleave(sizes),
            torch.cat([part.cpu().double() for part in weights]),
        )

    @torch.no_grad()
    def groups(self, model: AnyOrderModel) -> "Iterator[tuple[list[int], Levelled | Numbers]]":
        """Yields the distributions by kind: their numbers, and the distributions."""
        yield from self._grouped(model.distribution(self.features, self._on_device))

    @torch.no_grad()
    def member_groups(
        self, model: AnyOrderModel
    ) -> "list[list[tuple[list[int], Levelled | Numbers]]]":
        """Returns the same by each ensemble member apart; nothing for a single model."""
        conditionals = model.conditionals
        if not isinstance(conditionals, AveragedConditionals):
            return []
        apart = conditionals.apart(self.features, self._on_device)
        return [list(self._grouped(mixed)) for mixed in apart]

    @property
    def _on_device(self) -> Tensor:
        return self.variables.to(self.features.device)

    def _grouped(self, mixed: Distribution) -> "Iterator[tuple[list[int], Levelled | Numbers]]":
        assert isinstance(mixed, MixedDistribution)
        device = self.features.device
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
        count: Number of distributions.
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
    """Distributions of categories, many at once."""

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
        device: Device of `part`.
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

    def quantiles(self, shares: Tensor, close: float | Tensor = CLOSE) -> Tensor:
        """Returns the codes below which shares lie; atoms exactly.

        Args:
            shares: Probabilities between 0 and 1. Shape ``(shares,)``, float64.
            close: Tolerance; see `CLOSE`; may differ by share.

        Returns:
            Shape ``(shares, count)``, float64.
        """
        wanted = shares.double()[:, None].expand(-1, self.mixing.count)
        if not self.masses.shape[1]:
            return self._inverse(wanted, close=close)
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
        smooth = self._inverse(left.clamp(EPSILON, 1 - EPSILON).T, ~is_atom.T, close=close)
        return torch.where(is_atom.T, atom.T, smooth)

    def entropy(self) -> Tensor:
        """Returns entropies in nats, of atoms and of the density beside them. Shape ``(count,)``.

        That of a density is the mean negative log-likelihood of many quantiles, as in heads.
        """
        nodes = (torch.arange(NODES, dtype=torch.float64) + 0.5) / NODES
        codes = self._inverse(nodes[:, None].expand(-1, self.mixing.count), close=ENTROPY_CLOSE)
        heights = self._beside(self._at(self.smooth, "log_prob", codes).exp())
        smooth = -heights.log().mean(dim=0)
        branches = torch.special.entr(self.masses).sum(dim=1) + torch.special.entr(self.share)
        return branches + self.share * smooth

    @cached_property
    def knots(self) -> tuple[Tensor, Tensor]:
        """Codes where the density is, and its CDF there. Shapes ``(knots, count)``."""
        low = torch.full((self.mixing.count,), -REACH, dtype=torch.float64)
        high, narrow = -low, torch.ones_like(low, dtype=torch.bool)
        for _ in range(ROUNDS):
            codes = _between(low, high, COARSE)
            reached = self._beside(self._at(self.smooth, "cdf", codes.float()))
            first = ((reached < TAIL).sum(dim=0) - 1).clamp(min=0)
            last = (reached <= 1 - TAIL).sum(dim=0).clamp(max=COARSE - 1)
            ends = (codes.gather(0, place[None])[0] for place in (first, last))
            low, high = (torch.where(narrow, *pair) for pair in zip(ends, (low, high), strict=True))
            narrow = narrow & (last - first < FEWEST)  # whatever else is in the batch
            if not narrow.any():
                break
        codes = _between(low, high, KNOTS)
        return codes, self._below(codes.float()).cummax(dim=0).values

    @cached_property
    def _whole(self) -> Tensor:
        """Limit of the CDF of the density: 1 but for the rounding of its weights."""
        ends = torch.full((1, self.mixing.count), FARTHEST, dtype=torch.float64)
        return self._beside(self._at(self.smooth, "cdf", ends))[0]

    def _below(self, codes: Tensor) -> Tensor:
        """Returns the CDF of the density beside atoms, in the precision of codes. Same shape."""
        return (self._beside(self._at(self.smooth, "cdf", codes)) / self._whole).clamp(0, 1)

    def _at(self, part: Distribution, method: str, codes: Tensor) -> Tensor:
        """Returns a method of edges at codes of their distributions. Shape ``(points, edges)``."""
        wanted = codes if self._is_single else codes[:, self.mixing.owner]
        size, function = max(1, POINTS_AT_ONCE // wanted.shape[1]), getattr(part, method)
        found = [function(some.to(self.device)).cpu() for some in wanted.split(size)]
        return found[0] if len(found) == 1 else torch.cat(found)

    @property
    def _is_single(self) -> bool:
        """True if each distribution is one edge."""
        return len(self.mixing.owner) == self.mixing.count

    def _inverse(
        self, wanted: Tensor, needed: Tensor | None = None, *, close: float | Tensor = CLOSE
    ) -> Tensor:
        """Returns where the CDF of the density reaches `wanted`. Shapes ``(shares, count)``.

        Args:
            wanted: Shares of the density, in (0, 1).
            needed: Entries to compute; all by default.
            close: Tolerance; see `CLOSE`; may differ by share, of shape ``(shares,)``.
        """
        if self._is_single and not isinstance(getattr(self.smooth, "inner", self.smooth), Mixture):
            return self._at(self.smooth, "icdf", wanted).double()  # it has its own inverse
        score, (low, high), (last, off_last), code = self._start(wanted)
        close = close if isinstance(close, Tensor) else torch.tensor([close])
        found, rows, close = code.clone(), torch.arange(len(code)), close.expand(len(code))[:, None]
        active = torch.ones_like(found, dtype=torch.bool) if needed is None else needed
        for step in range(SECANTS + BISECTIONS):
            left = active.any(dim=1)
            if not left.any():
                break
            if not left.all():  # tails take more steps than the rest
                rows, active, close, score, low, high, last, off_last, code = (
                    state[left]
                    for state in (rows, active, close, score, low, high, last, off_last, code)
                )
            off = _score(self._below(code if step else code.float())) - score
            if step:
                low, high = torch.where(off < 0, code, low), torch.where(off < 0, high, code)
            following = code - off * (code - last) / (off - off_last)
            inside = (following >= low) & (following <= high) & (step < SECANTS)
            following = torch.where(inside, following, (low + high) / 2)
            # Where a density is steep beside a flat one, a step from an exact root leads away.
            best = torch.where(off.abs() > close, following, code)
            found[rows] = torch.where(active, best, found[rows])
            # A first step is in float32: it is the last one only where that is close enough.
            off_enough = (off.abs() > close) | ((step == 0) & (close < LOOSE))
            active = active & off_enough & (low < high)
            last, off_last, code = code, off, following
        return found

    def _start(self, wanted: Tensor) -> tuple[Tensor, Bracket, Bracket, Tensor]:
        """Returns scores, brackets, a point beside each root and its error there, first iterates.

        An iterate is the cubic through the four knots around it, with codes in terms of scores.
        """
        (knots, reached), score = self.knots, ndtri(wanted)
        scores, count = _score(reached), len(knots)
        place = torch.searchsorted(reached.T.contiguous(), wanted.T.contiguous()).T
        right = place.clamp(1, count - 1)
        around = torch.stack([right - 2, right - 1, right, right + 1]).clamp(0, count - 1)
        x, off = (part.gather(0, around.flatten(0, 1)).view_as(around) for part in (knots, scores))
        off = off - score
        # Wider by a knot on both sides: knots are in float32.
        low = x[0].masked_fill(right <= 1, -FARTHEST)
        high = x[3].masked_fill(right >= count - 1, FARTHEST)
        lines = _through(x, off, 1)
        cubic = _through(_through(lines, off, 2), off, 3)[0]
        first = torch.where((cubic > x[1]) & (cubic < x[2]) & (right == place), cubic, lines[1])
        first = torch.where((first >= low) & (first <= high), first, (low + high) / 2)
        nearer = off[1].abs() > off[2].abs()  # not the nearer one: a secant needs some distance
        beside = torch.where(nearer, x[1], x[2]), torch.where(nearer, off[1], off[2])
        return score, (low, high), beside, first


def _through(values: Tensor, at: Tensor, degree: int) -> Tensor:
    """Returns polynomials of a degree at 0, from those of one degree less (Neville's scheme)."""
    left, right = at[:-degree], at[degree:]
    return (right * values[:-1] - left * values[1:]) / (right - left)


def _between(low: Tensor, high: Tensor, points: int) -> Tensor:
    """Returns evenly spaced codes. Shape ``(points, count)``."""
    return low + (high - low) * torch.linspace(0, 1, points, dtype=torch.float64)[:, None]


def _score(shares: Tensor) -> Tensor:
    """Returns the normal scores of shares of a density."""
    return ndtri(shares.clamp(LEAST, 1 - EPSILON))
