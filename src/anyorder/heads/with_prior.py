"""Heads beside a prior: (features, message) -> p(x_i | x_e).

A head starts from the prior's message, and a network comes in with the number k of variables that
are known: its share is

    gate(k) = 1 - exp(-((k - 1) b)^2),    gate(0) = gate(1) = 0,

with b learned for each variable. Where nothing is known, or one variable, the answer is that of the
latent tree, or of counted pairs, whatever the network has learned: that is what a user can check,
and what a network gets wrong on small tables. Of a number, another number tells more than a tree
can say: then gate = 1.

- Levels (`GatedLevels`): logits = log tree + gate(k) network. The network begins at zero.
- Densities (`DensitiesWithPrior`): (1 - s) tree + s network, where s is the gate times a learned
  share, 0.8 at first, and "network" is a mixture of the components of the joint normals, weighed,
  moved and widened by the network, and of its own. It is on the scale of the normals; where that is
  of units, the tree's normals are moved there by the slope at their means, an approximation.
- Repeated values (`atoms.py`): a geometric mean of the tree and of the network, in which a value v
  is p(v | x_e) / p(v) times as probable, both by the joint normals (Bayes' rule), and by a learned
  power of the same ratio by the tree, a half at first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.errors import check_choice
from anyorder.heads.distributions import (
    Categorical,
    CategoricalConditionals,
    Conditionals,
    ContinuousDistribution,
    VariableProjection,
    bounded,
    highest,
)
from anyorder.heads.energy import EnergyConditionals
from anyorder.heads.mixture import Mixture, MixtureConditionals
from anyorder.heads.spline import Spline, SplineConditionals
from anyorder.networks.contracts import PriorMessage
from anyorder.priors.contract import UnitScales
from anyorder.variables import Schema

Head = Literal["mixture", "spline", "energy"]


@dataclass(frozen=True)
class OnScale(ContinuousDistribution):
    """Distribution of normal scores, from a density of their units.

    A scale is a rising function, so probabilities stay, and a density is multiplied by its slope.

    Args:
        inner: Density of units.
        scales: Scales of all variables.
        variables: Variable of each edge. Shape ``(edges,)``.
    """

    inner: Mixture | Spline
    scales: UnitScales
    variables: Tensor

    @property
    def like(self) -> Tensor:
        """A tensor with the shape of the edges."""
        return self.inner.like

    def log_prob(self, values: Tensor) -> Tensor:
        """The log density."""
        units, log_slopes = self.scales.measured(values, self.variables.expand(values.shape))
        return self.inner.log_prob(units) + log_slopes

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of at most `values`."""
        return self.inner.cdf(self.scales.to_units(values, self.variables.expand(values.shape)))

    def icdf(self, probability: Tensor) -> Tensor:
        """The quantile."""
        return self._scores(self.inner.icdf(probability))

    def mode(self) -> Tensor:
        """Returns the point of greatest density, of a mixture by the pieces of its scale.

        A scale is linear between its knots, so that the density is smooth there and jumps at them.
        """
        if not isinstance(self.inner, Mixture):
            return highest(self.log_prob, self._quantiles())
        knots = self.scales.units[self.variables].T.to(self.inner.means)  # (points, edges)
        slopes = (knots.diff(dim=0) / self.scales.step[self.variables]).log()
        means = self.inner.means.movedim(-1, 0)
        least, most = means.amin(0).minimum(knots[0]), means.amax(0).maximum(knots[-1])
        ends = torch.cat([least[None], knots[1:-1], most[None]])
        heights = self.inner.log_prob(ends)
        middles = self.inner.log_prob((ends[1:] + ends[:-1]) / 2)
        own = torch.searchsorted(knots[1:-1].T.contiguous(), means.T.contiguous()).T
        tops = torch.maximum(torch.maximum(heights[1:], heights[:-1]), middles)
        tops = tops.scatter_reduce(0, own, self.inner.log_prob(means), "amax") + slopes
        best = tops.topk(PIECES, dim=0).indices
        low, high = ends.gather(0, best), ends.gather(0, best + 1)
        margin = INSIDE * (high - low)
        low, high = low + margin, high - margin  # (pieces, edges)
        inside = means[:, None].clamp(low, high)
        tried = torch.cat([low[None], ((low + high) / 2)[None], high[None], inside])
        found = highest(self.inner.log_prob, tried.sort(dim=0).values)
        reached = self.inner.log_prob(found) + slopes.gather(0, best)
        return self._scores(found.gather(0, reached.argmax(dim=0, keepdim=True))[0])

    def mode_at(self, edges: Tensor) -> Tensor:
        """Returns the modes of some edges."""
        if not isinstance(self.inner, Mixture):
            return super().mode_at(edges)
        return replace(self, inner=self.inner.at(edges), variables=self.variables[edges]).mode()

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """One sample an edge."""
        return self._scores(self.inner.sample(generator=generator))

    def nodes(self) -> tuple[Tensor, Tensor]:
        """See `ContinuousDistribution.nodes`: those of the units."""
        values, weights = self.inner.nodes()
        return self._scores(values), weights

    def tempered(self, temperature: float, top_k: int | None = None) -> "OnScale":
        """Sharper or flatter in units."""
        inner = self.inner.tempered(temperature, top_k)
        assert isinstance(inner, Mixture | Spline)
        return replace(self, inner=inner)

    def _scores(self, units: Tensor) -> Tensor:
        return self.scales.to_scores(units, self.variables)


INSIDE = 1e-4
"""Distance from the knots of a scale, in pieces, at which a mode is searched for: a density jumps
there."""

PIECES = 3
"""Pieces of a scale that are searched for a mode: those of the greatest densities at their ends, in
their middle and at the means of components."""

SLIP = 1e-4
"""Share of values as if there were no prior: it can be sure and wrong, and so can a table."""

TRUSTED, CAUTIOUS = math.log(0.95 / 0.05), math.log(0.1 / 0.9)
"""Logit of the share of the prior's components at first."""

FEWEST_COMPONENTS, MOST_TILTS = 4, 512
"""Components by which atoms are tilted, if there are many, beside one that stands for all others,
which is off by about a tenth of a nat without evidence; and pairs of components and atoms that
cost little."""

LOOSE = 0.1
"""Scale of the projections beside a trusted prior: at first they add little to it."""

ONE = math.log(math.e - 1)
"""Softplus of this is one: at first the prior counts in full."""

MOSTLY_NETWORK, LEAST_SHARE = math.log(0.8 / 0.2), 1e-30
"""Logit of the network's share beside a tree at first, where the gate is open; least share of the
tree, whose logarithm is finite."""

SOON = 0.1
"""Rate of the gate at first: given five variables a seventh of the network counts, given twenty
nearly all."""

EAGER = 5.0
"""Rates are learned so many times as fast as weights: they are few, and decide much."""

HEADS: dict[str, type[Conditionals]] = {
    "mixture": MixtureConditionals,
    "spline": SplineConditionals,
    "energy": EnergyConditionals,
}


def continuous_conditionals(
    schema: Schema,
    *,
    width: int,
    head: Head,
    components: int | None = None,
    cautious: bool = False,
    gated: bool = False,
) -> Conditionals:
    """Conditionals of continuous variables by the name of their head.

    See `DensitiesWithPrior` for the arguments; without `components` there is no prior.
    """
    if components is not None:
        return DensitiesWithPrior(
            schema, width=width, head=head, components=components, cautious=cautious, gated=gated
        )
    check_choice("head", head, get_args(Head))
    return HEADS[head](schema, width=width)


class DensitiesWithPrior(Conditionals):
    """Densities beside a prior, on its scale.

    A mixture has the components of the joint normals beside its own, and learns to weigh, move and
    widen each. A spline is moved to their mean.

    Args:
        schema: Continuous variables.
        width: Size of the features.
        head: Kind of density.
        components: Components of the joint normals.
        cautious: True for normals that count little at first. Beside atoms their density is of all
            values, and must not be followed where all values of training are atoms.
        gated: True for a mixture beside a latent tree.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        width: int,
        head: Head,
        components: int,
        cautious: bool = False,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.schema, self.width, self.components = schema, width, components
        self.head, self.cautious = head, cautious
        self.gated = gated and head == "mixture"
        self.scales = UnitScales(len(schema))
        self.bare = continuous_conditionals(schema, width=width, head=head)
        changes = 3 * components if head == "mixture" else 0
        self.changes = None
        if changes or cautious:
            start = [CAUTIOUS if cautious else TRUSTED] + [0.0] * changes
            self.changes = VariableProjection(len(schema), width=width, start=start)
            nn.init.zeros_(self.changes.weight)
        if self.gated:
            self.gate = Gate(len(schema))
            self.share = VariableProjection(len(schema), width=width, start=[MOSTLY_NETWORK])

    def forward(
        self, features: Tensor, variables: Tensor, prior: PriorMessage | None = None
    ) -> OnScale | Mixture:
        """The densities of edges; see `Conditionals.forward`."""
        assert prior is not None
        if self.gated and prior.known is None:  # no network: the tree alone, on normal scores
            assert prior.states is not None
            logs, means, log_scales = prior.states.unbind(dim=-2)
            return Mixture(logs, means, log_scales)
        found = self._beside_normals(features, variables, prior)
        if self.gated:
            assert isinstance(found, Mixture)
            found = self._beside_tree(found, features, variables, prior)
        return OnScale(found, self.scales, variables)

    def _beside_normals(
        self, features: Tensor, variables: Tensor, prior: PriorMessage
    ) -> Mixture | Spline:
        found: Mixture | Spline = self.bare(features, variables)
        location, log_scale = prior.location, prior.log_scale
        if self.changes is None:
            return found.moved(location, log_scale)
        gate, changes = self.changes(features, variables).tensor_split([1], dim=-1)
        if self.cautious:
            share = gate.sigmoid().squeeze(-1)
            location, log_scale = share * location, share * log_scale
        moved = found.moved(location, log_scale)
        if isinstance(moved, Mixture) and changes.shape[-1]:
            moved = _slipping(_joined(gate, _changed(prior, changes), moved))
        return moved

    def _beside_tree(
        self, found: Mixture, features: Tensor, variables: Tensor, prior: PriorMessage
    ) -> Mixture:
        assert prior.states is not None
        logs, means, log_scales = prior.states.unbind(dim=-2)
        means, log_slopes = self.scales.measured(means, variables[..., None].expand(means.shape))
        assert prior.known is not None
        gate = SLIP + (1 - SLIP) * self.gate(prior.known, variables)
        share = gate[..., None] * self.share(features, variables).sigmoid()
        logits = [
            (1 - share).clamp(min=LEAST_SHARE).log() + logs,
            share.log() + found.logits.log_softmax(dim=-1),
        ]
        return Mixture(
            torch.cat(logits, dim=-1),
            torch.cat([means, found.means], dim=-1),
            torch.cat([log_scales + log_slopes, found.log_scales], dim=-1),
        )


def _changed(prior: PriorMessage, changes: Tensor) -> Mixture:
    """The prior's components, each weighed anew, moved by parts of its deviation, and widened.

    Args:
        prior: The message.
        changes: Changes of logits, of means in deviations, and of log deviations.
            Shape ``(..., 3 * components)``.
    """
    logits, means, logs = prior.components
    weights, moves, widths = changes.unflatten(-1, (3, -1)).unbind(dim=-2)
    return Mixture(logits + weights, means + logs.exp() * moves, bounded(logs + widths))


def _joined(gate: Tensor, prior: Mixture, own: Mixture) -> Mixture:
    """The prior's components with a share, whose logit is `gate`, and the head's with the rest."""
    sides = (gate, prior), (-gate, own)
    logits = [F.logsigmoid(logit) + part.logits.log_softmax(dim=-1) for logit, part in sides]
    means, log_scales = (
        torch.cat([getattr(part, name) for part in (prior, own)], dim=-1)
        for name in ("means", "log_scales")
    )
    return Mixture(torch.cat(logits, dim=-1), means, log_scales)


def _slipping(found: Mixture) -> Mixture:
    """Adds a standard normal for slips: scores and units are about that without evidence."""
    logits = found.logits.log_softmax(dim=-1) + math.log1p(-SLIP)
    return Mixture(
        F.pad(logits, (0, 1), value=math.log(SLIP)),
        F.pad(found.means, (0, 1)),
        F.pad(found.log_scales, (0, 1)),
    )


class AtomTilt(nn.Module):
    """Log ratio by which evidence changes the probability of each atom, by the prior.

    Args:
        num_variables: Number of variables.
        width: Size of the features.
    """

    def __init__(self, num_variables: int, *, width: int) -> None:
        super().__init__()
        self.numbers = VariableProjection(num_variables, width=width, start=[0.0, 0.0, ONE])

    def forward(
        self,
        features: Tensor,
        variables: Tensor,
        prior: PriorMessage,
        *,
        atoms: Tensor,
        usual: Tensor,
    ) -> Tensor:
        """Log ratios. Shape ``(..., atoms)``.

        Args:
            features: Shape ``(..., width)``.
            variables: Shape ``(...)``.
            prior: Message about the same edges.
            atoms: Places of all variables' atoms in units; finite. Shape ``(vars, atoms)``.
            usual: Their log densities without evidence; see `mixture_at`. Shape of `atoms`.
        """
        shift, wider, gate = self.numbers(features, variables).unsqueeze(-1).unbind(dim=-2)
        count = max(FEWEST_COMPONENTS, MOST_TILTS // atoms.shape[1])
        logits, means, logs = _fewer(prior.components, count)
        found = mixture_at(logits, means + logs.exp() * shift, logs + wider, atoms[variables])
        return (found - usual[variables]) * F.softplus(gate)


def mixture_at(logits: Tensor, means: Tensor, logs: Tensor, places: Tensor) -> Tensor:
    """Log densities of mixtures at several places an edge. Shape ``(..., places)``."""
    mixture = Mixture(logits, means, bounded(logs))
    return mixture.log_prob(places.movedim(-1, 0)).movedim(0, -1)


def _fewer(components: Sequence[Tensor], count: int) -> Sequence[Tensor]:
    """The greatest components, and all others as one with their moments; see `PriorMessage`."""
    logits, means, logs = components
    if logits.shape[-1] <= count + 1:
        return components
    _, most = logits.topk(count, dim=-1)
    left = logits.scatter(-1, most, -torch.inf)
    shares = left.softmax(dim=-1)
    mean = (shares * means).sum(dim=-1, keepdim=True)
    variance = (shares * ((2 * logs).exp() + (means - mean).square())).sum(dim=-1, keepdim=True)
    others = left.logsumexp(dim=-1, keepdim=True), mean, 0.5 * variance.log()
    pairs = zip(components, others, strict=True)
    return [torch.cat([part.gather(-1, most), other], dim=-1) for part, other in pairs]


class Gate(nn.Module):
    """Share of a network by the number of known variables; see the module.

    Args:
        num_variables: Number of variables.
    """

    def __init__(self, num_variables: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((num_variables,), math.log(SOON) / EAGER))

    def forward(self, known: Tensor, variables: Tensor) -> Tensor:
        """Shares. Shape of `known`."""
        beyond_one = (known - 1).clamp(min=0)
        return -torch.expm1(-(beyond_one * (EAGER * self.rate[variables]).exp()).square())


class GatedLevels(Conditionals):
    """Levels by a latent tree and a network.

    Args:
        schema: Categorical variables.
        width: Size of the features.
    """

    def __init__(self, schema: Schema, *, width: int) -> None:
        super().__init__()
        self.schema, self.width = schema, width
        self.bare = CategoricalConditionals(schema, width=width, shared=False)
        nn.init.zeros_(self.bare.weight)
        self.gate = Gate(len(schema))

    def forward(
        self, features: Tensor, variables: Tensor, prior: PriorMessage | None = None
    ) -> Categorical:
        """The conditionals of edges; see `Conditionals.forward`."""
        assert prior is not None
        assert prior.levels is not None
        beyond = self.bare.beyond[variables]
        logits = prior.levels[..., : beyond.shape[-1]]
        if prior.known is not None:
            own = self.bare(features, variables).logits.masked_fill(beyond, 0)
            logits = logits + self.gate(prior.known, variables)[..., None] * own
        return Categorical(logits.masked_fill(beyond, -math.inf))


class CategoricalWithPrior(Conditionals):
    """Levels beside the prior of version 0.1.0: bare + gate * reading @ (location, log scale).

    Args:
        schema: Categorical variables.
        width: Size of the features.
    """

    def __init__(self, schema: Schema, *, width: int) -> None:
        super().__init__()
        self.schema, self.width = schema, width
        self.bare = CategoricalConditionals(schema, width=width, shared=False)
        self.without_prior = CategoricalConditionals(schema, width=width, shared=False)
        self.gate = VariableProjection(len(schema), width=width, start=[ONE])
        sizes = torch.tensor([variable.num_levels for variable in schema])
        self.reading = nn.Parameter(torch.zeros(len(schema), int(sizes.max()), 2))
        with torch.no_grad():
            self.reading[sizes == 2, 1:2, 0] = 1
        self.register_buffer("share", torch.zeros(()))  # read in training only

    def forward(
        self, features: Tensor, variables: Tensor, prior: PriorMessage | None = None
    ) -> Categorical:
        """The conditionals of edges; see `Conditionals.forward`."""
        assert prior is not None
        moments = torch.stack([prior.location, prior.log_scale], dim=-1)
        read = (self.reading[variables] @ moments.unsqueeze(-1)).squeeze(-1)
        gate = F.softplus(self.gate(features, variables))
        return Categorical(self.bare(features, variables).logits + gate * read)
