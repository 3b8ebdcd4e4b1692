"""Heads beside guides: behind a network's own features stands what these say.

First a mean and a log deviation, or a logit of one of two levels; then the bells of a number given
what is known, in units: log shares, means, log deviations. Together they are a density, at which a
head starts; an atom becomes as many times more probable as that density is above the one without
evidence, as Bayes has it. How far to believe all that, the features say.

A density on another scale of the line than values are: of units, where values are scores.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.errors import check_choice
from anyorder.heads.categorical import Categorical, CategoricalConditionals
from anyorder.heads.distributions import (
    Conditionals,
    ContinuousDistribution,
    VariableProjection,
    bounded,
    highest,
)
from anyorder.heads.energy import EnergyConditionals
from anyorder.heads.mixture import Mixture, MixtureConditionals
from anyorder.heads.spline import Spline, SplineConditionals
from anyorder.priors.scales import UnitScales
from anyorder.variables import Schema

Head = Literal["mixture", "spline", "energy"]


@dataclass(frozen=True)
class OnScale(ContinuousDistribution):
    """The distribution of normal scores whose units have a density.

    A scale is a rising function, so probabilities stay, and a density is multiplied by its slope.

    Args:
        inner: The density of units.
        scales: Of all variables.
        variables: That of each edge, of which there is one row. Shape ``(edges,)``.
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
        """Where the density is highest; a narrow bell may lie between quantiles."""
        candidates = self._quantiles()
        if isinstance(self.inner, Mixture):
            middles = self._scores(self.inner.means.movedim(-1, 0))
            candidates = torch.cat([candidates, middles]).sort(dim=0).values
        return highest(self.log_prob, candidates)

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """A draw."""
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


HEADS: dict[str, type[Conditionals]] = {
    "mixture": MixtureConditionals,
    "spline": SplineConditionals,
    "energy": EnergyConditionals,
}


def continuous_conditionals(schema: Schema, *, width: int, head: Head) -> Conditionals:
    """The conditionals of continuous variables by the name of their head."""
    check_choice("head", head, get_args(Head))
    return HEADS[head](schema, width=width)


MOMENTS = 2
"""What guides say first."""

SLIP = 1e-4
"""Of numbers that are as if the guide had said nothing: it can be sure and wrong, and so can an
entry of a table."""

BELIEF, CAUTION = math.log(0.95 / 0.05), math.log(0.1 / 0.9)
"""What the logistic function makes the share of a guide's bells of, at first."""

FEWEST_BELLS, MOST_TILTS = 4, 2048
"""Bells by which atoms are tilted, if these are many, beside one that stands for all others, which
puts them off by about a tenth of a nat where nothing is known; and as many pairs of bells and atoms
as are no matter."""

LOOSE = 0.1
"""Of projections beside a guide that is believed: at first little is said beside it."""

BELIEVED = math.log(math.e - 1)
"""What softplus makes one of: at first the guide is believed."""

UNGUIDED, ENOUGH = 0.5, 100
"""Of the questions of two levels in training that the network answers without the guide, if there
are so many rows a column, and less if fewer: where it always has one to lean on it learns less
itself, and from few rows the guide knows more."""


class GuidedDensities(Conditionals):
    """Densities beside a guide, on its scale.

    A mixture has the guide's bells beside its own, and learns to weigh, to move and to widen each.
    A spline is moved to the guide's mean.

    Args:
        schema: Continuous variables.
        width: Size of the features, with those of the guide.
        said: How many the guide's are.
        head: Of the densities.
        cautious: Whether the guide counts little at first. Beside atoms it speaks of all values,
            and where no row teaches a density, because all values of training are atoms, it must
            not be followed.
    """

    def __init__(
        self, schema: Schema, *, width: int, said: int, head: Head, cautious: bool = False
    ) -> None:
        super().__init__()
        self.schema, self.width, self.said = schema, width, said
        self.head, self.cautious = head, cautious
        self.scales = UnitScales(len(schema))
        self.bare = continuous_conditionals(schema, width=width - said, head=head)
        bells = said - MOMENTS if head == "mixture" else 0
        self.changes = None
        if bells or cautious:
            start = [CAUTION if cautious else BELIEF] + [0.0] * bells
            self.changes = VariableProjection(len(schema), width=width - said, start=start)
            nn.init.zeros_(self.changes.weight)

    def forward(self, features: Tensor, variables: Tensor) -> OnScale:
        """The densities of edges; see `Conditionals.forward`."""
        own, mean, log_deviation, bells = _parted(features, self.said)
        found: Mixture | Spline = self.bare(own, variables)
        if self.changes is None:
            return OnScale(found.moved(mean, log_deviation), self.scales, variables)
        belief, changes = self.changes(own, variables).tensor_split([1], dim=-1)
        if self.cautious:
            share = belief.sigmoid().squeeze(-1)
            mean, log_deviation = share * mean, share * log_deviation
        moved = found.moved(mean, log_deviation)
        if isinstance(moved, Mixture) and changes.shape[-1]:
            moved = _slipping(_joined(belief, _changed(bells, changes), moved))
        return OnScale(moved, self.scales, variables)


def _changed(bells: Tensor, changes: Tensor) -> Mixture:
    """A guide's bells, each weighed anew, moved by parts of its deviation, and widened.

    Args:
        bells: As the guide says them. Shape ``(..., 3 * normals)``.
        changes: Of the logits of shares, of places and of log deviations. Shape of `bells`.
    """
    logits, means, logs = bells.unflatten(-1, (3, -1)).unbind(dim=-2)
    weights, moves, widths = changes.unflatten(-1, (3, -1)).unbind(dim=-2)
    return Mixture(logits + weights, means + logs.exp() * moves, bounded(logs + widths))


def _joined(belief: Tensor, guide: Mixture, own: Mixture) -> Mixture:
    """The guide's bells with a share, by the logit `belief`, and the head's own with the rest."""
    sides = (belief, guide), (-belief, own)
    logits = [F.logsigmoid(logit) + part.logits.log_softmax(dim=-1) for logit, part in sides]
    means, log_scales = (
        torch.cat([getattr(part, name) for part in (guide, own)], dim=-1)
        for name in ("means", "log_scales")
    )
    return Mixture(torch.cat(logits, dim=-1), means, log_scales)


def _slipping(found: Mixture) -> Mixture:
    """With a bell of what may slip: standard, as scores and units without evidence about are."""
    logits = found.logits.log_softmax(dim=-1) + math.log1p(-SLIP)
    return Mixture(
        F.pad(logits, (0, 1), value=math.log(SLIP)),
        F.pad(found.means, (0, 1)),
        F.pad(found.log_scales, (0, 1)),
    )


class AtomTilt(nn.Module):
    """How much more probable the guide makes each atom than it is without evidence.

    Args:
        num_variables: How many variables.
        width: Size of the features, with those of the guide.
        said: How many the guide's are.
    """

    def __init__(self, num_variables: int, *, width: int, said: int) -> None:
        super().__init__()
        self.said = said
        start = [0.0, 0.0, BELIEVED]
        self.numbers = VariableProjection(num_variables, width=width - said, start=start)

    def forward(self, features: Tensor, variables: Tensor, atoms: Tensor, usual: Tensor) -> Tensor:
        """Logs of ratios. Shape ``(..., atoms)``.

        Args:
            features: Shape ``(..., width)``.
            variables: Shape ``(...)``.
            atoms: Places of all variables' atoms in units; finite. Shape ``(vars, atoms)``.
            usual: Their log densities without evidence; see `bells_at`. Shape of `atoms`.
        """
        own, _, _, bells = _parted(features, self.said)
        shift, wider, belief = self.numbers(own, variables).unsqueeze(-1).unbind(dim=-2)
        logits, means, logs = _fewer(bells, max(FEWEST_BELLS, MOST_TILTS // atoms.shape[1]))
        told = bells_at(logits, means + logs.exp() * shift, logs + wider, atoms[variables])
        return (told - usual[variables]) * F.softplus(belief)


def bells_at(logits: Tensor, means: Tensor, logs: Tensor, places: Tensor) -> Tensor:
    """Log densities of bells at several places an edge. Shape ``(..., places)``."""
    mixture = Mixture(logits, means, bounded(logs))
    return mixture.log_prob(places.movedim(-1, 0)).movedim(0, -1)


def _fewer(bells: Tensor, count: int) -> list[Tensor]:
    """Log shares, means and log deviations of the greatest bells, and of all others as one."""
    logits, means, logs = bells.unflatten(-1, (3, -1)).unbind(dim=-2)
    if logits.shape[-1] <= count + 1:
        return [logits, means, logs]
    _, most = logits.topk(count, dim=-1)
    left = logits.scatter(-1, most, -torch.inf)
    shares = left.softmax(dim=-1)
    mean = (shares * means).sum(dim=-1, keepdim=True)
    variance = (shares * ((2 * logs).exp() + (means - mean).square())).sum(dim=-1, keepdim=True)
    others = left.logsumexp(dim=-1, keepdim=True), mean, 0.5 * variance.log()
    pairs = zip((logits, means, logs), others, strict=True)
    return [torch.cat([part.gather(-1, most), other], dim=-1) for part, other in pairs]


class GuidedCategoricalConditionals(Conditionals):
    """Levels beside a guide: what it says of two is believed at first, of several it is learnt.

    In training some questions are answered from the same features without it.

    Args:
        schema: Categorical variables.
        width: Size of the features, with those of the guide.
        said: How many the guide's are.
    """

    has_two: Tensor
    share: Tensor

    def __init__(self, schema: Schema, *, width: int, said: int) -> None:
        super().__init__()
        self.schema, self.width, self.said = schema, width, said
        self.bare = CategoricalConditionals(schema, width=width - said, shared=False)
        self.unguided = CategoricalConditionals(schema, width=width - said, shared=False)
        self.belief = VariableProjection(len(schema), width=width - said, start=[BELIEVED])
        sizes = torch.tensor([variable.num_levels for variable in schema])
        reading = torch.zeros(len(schema), int(sizes.max()), MOMENTS)
        reading[sizes == 2, 1:2, 0] = 1
        self.reading = nn.Parameter(reading)
        self.register_buffer("has_two", sizes == 2, persistent=False)
        self.register_buffer("share", torch.tensor(UNGUIDED))
        with torch.no_grad():
            self.bare.weight[sizes[: len(self.bare.weight)] == 2] *= LOOSE

    def count(self, codes: Tensor, have: Tensor, weights: Tensor) -> None:
        """Has columns of several levels start from how often these are; of two the guide knows.

        Fewer rows a column also leave more to the guide.

        Args:
            codes: Of the variables. Shape ``(rows, vars)``.
            have: Which are there.
            weights: Of the rows. Shape ``(rows,)``.
        """
        self.share.fill_(UNGUIDED * min(1.0, float(weights.sum()) / (ENOUGH * len(self.schema))))
        for place, variable in enumerate(self.schema):
            there = have[:, place]
            if variable.num_levels > 2:
                seen = codes[there, place].long()
                counts = seen.bincount(weights[there], minlength=variable.num_levels)
                self.bare.begin(place, counts)

    def forward(self, features: Tensor, variables: Tensor) -> Categorical:
        """The conditionals of edges; see `Conditionals.forward`."""
        own, *moments, _ = _parted(features, self.said)
        said = torch.stack(moments, dim=-1)
        read = (self.reading[variables] @ said.unsqueeze(-1)).squeeze(-1)
        belief = F.softplus(self.belief(own, variables))
        logits = self.bare(own, variables).logits + belief * read
        if self.training:
            chance = torch.rand(variables.shape, device=own.device)
            without = self.has_two[variables] & (chance < self.share)
            logits = logits.where(~without[..., None], self.unguided(own, variables).logits)
        return Categorical(logits)


def _parted(features: Tensor, said: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A network's own features; mean, log deviation and bells, which a guide says beside them."""
    own, moments, bells = features.split(
        [features.shape[-1] - said, MOMENTS, said - MOMENTS], dim=-1
    )
    return own, moments[..., 0], moments[..., 1], bells
