"""Atoms beside a density: variables that take some values with positive probability.

A sample is one of the atoms, or *elsewhere*: then it has a density. The log-likelihood of an atom
is the log of its probability, that of any other value the log of P(elsewhere) times the density:
one number each, with respect to one measure, so that it adds up along a path.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.heads.distributions import (
    HALF_LOG_TAU,
    Categorical,
    CategoricalConditionals,
    Conditionals,
    ContinuousDistribution,
    VariableProjection,
)
from anyorder.heads.with_prior import (
    LOOSE,
    SLIP,
    AtomTilt,
    Gate,
    Head,
    continuous_conditionals,
    mixture_at,
)
from anyorder.networks.blocks import PiecewiseLinear
from anyorder.networks.contracts import Features, PriorMessage
from anyorder.priors.contract import UnitScales
from anyorder.variables import Schema, Variable

HALF = 0.0
"""Logit of the share of a tree's log ratios at first, where the gate is open."""

NO_CHANCE = -1e4
"""Logit of an atom that is not there, where sums of it need a gradient."""

OUTLINE_SCALE = 0.5
"""Scale of the common projection of atoms at first; that of each atom starts at 0."""


@dataclass(frozen=True)
class AtomicDistribution:
    """Some atoms and a density; the edges are flat.

    Args:
        branches: Probability of each atom, and last of elsewhere. Its edges have shape
            ``(edges,)``; atoms that an edge does not have are impossible.
        atoms: Ascending, padded at the end by infinity. Shape ``(edges, atoms)``.
        elsewhere: The density. Its edges have shape ``(edges,)``.
    """

    branches: Categorical
    atoms: Tensor
    elsewhere: ContinuousDistribution

    def log_prob(self, values: Tensor) -> Tensor:
        """The log probability of atoms, the log density elsewhere."""
        log_masses, is_atom = log_masses_at(values, self.branches, self.atoms)
        # Zero is inside every support: the density of an atom's place is not asked, and its
        # gradient, which may be no number, is kept out.
        density = self.elsewhere.log_prob(values.masked_fill(is_atom, 0))
        return torch.where(is_atom, log_masses, density + self.branches.log_probs[..., -1])

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of at most `values`."""
        probability = self.branches.log_probs.exp()
        reached = self.atoms <= values.unsqueeze(-1)
        steps = torch.where(reached, probability[..., :-1], 0).sum(dim=-1)
        return steps + probability[..., -1] * self.elsewhere.cdf(values)

    def icdf(self, probability: Tensor) -> Tensor:
        """The least value whose CDF reaches a probability: often exactly an atom."""
        if probability.ndim >= self.atoms.ndim:
            return torch.stack([self.icdf(one) for one in probability])
        # Doubles: masses of float32 need not reach a probability close to one.
        probability = probability.double()
        probabilities = self.branches.logits.double().softmax(dim=-1)
        elsewhere = probabilities[..., -1]
        # One more atom, at infinity and without mass, so that there is always a next one.
        atoms = nn.functional.pad(self.atoms, (0, 1), value=torch.inf)
        masses = nn.functional.pad(probabilities[..., :-1], (0, 1))
        steps = masses.cumsum(dim=-1)
        reached = steps + elsewhere.unsqueeze(-1) * self.elsewhere.cdf(
            atoms.movedim(-1, 0)
        ).movedim(0, -1)
        following = (reached < probability.unsqueeze(-1)).sum(dim=-1, keepdim=True)
        following = following.clamp(max=atoms.shape[-1] - 1)
        atom, mass, step, reach = (
            table.gather(-1, following)[..., 0] for table in (atoms, masses, steps, reached)
        )
        is_atom = (probability > reach - mass) & atom.isfinite()
        share = (probability - (step - mass)) / elsewhere.clamp(min=torch.finfo(step.dtype).tiny)
        least = torch.finfo(step.dtype).eps
        smooth = self.elsewhere.icdf(share.clamp(least, 1 - least))
        return torch.where(is_atom, atom.to(smooth), smooth)

    def nodes(self) -> tuple[Tensor, Tensor]:
        """See `ContinuousDistribution.nodes`: the atoms, and those of the density."""
        masses = self.branches.logits.double().softmax(dim=-1).movedim(-1, 0)
        atoms = self.atoms.masked_fill(self.atoms.isinf(), 0).movedim(-1, 0)  # without mass
        values, weights = self.elsewhere.nodes()
        return torch.cat([atoms.to(values), values]), torch.cat([masses[:-1], masses[-1] * weights])

    def mean(self) -> Tensor:
        """The expectation."""
        masses = self.branches.log_probs.exp()
        atoms = (masses[..., :-1] * self.atoms.masked_fill(self.atoms.isinf(), 0)).sum(dim=-1)
        return atoms + masses[..., -1] * self.elsewhere.mean()

    def mode(self) -> Tensor:
        """The most probable atom where atoms weigh most, else where the density is highest."""
        masses = self.branches.log_probs.exp()
        best = masses[..., :-1].argmax(dim=-1, keepdim=True)
        found = self.atoms.gather(-1, best)[..., 0].to(masses)
        smooth = (masses[..., -1] >= 0.5).nonzero().squeeze(1)
        if not len(smooth):
            return found
        return found.index_copy(0, smooth, self.elsewhere.mode_at(smooth).to(found))

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """One sample an edge."""
        branch = self.branches.sample(generator=generator)
        smooth = self.elsewhere.sample(generator=generator)
        is_atom = branch < self.atoms.shape[-1]
        atom = self.atoms.gather(-1, branch.clamp(max=self.atoms.shape[-1] - 1)[..., None])[..., 0]
        return torch.where(is_atom, atom.to(smooth), smooth)

    def entropy(self) -> Tensor:
        """Entropy of the branches, and of the density by its share, in nats."""
        smooth = self.branches.log_probs[..., -1].exp() * self.elsewhere.entropy()
        return self.branches.entropy() + smooth

    def tempered(self, temperature: float, top_k: int | None = None) -> "AtomicDistribution":
        """Sharper or flatter branches, and density."""
        branches = self.branches.tempered(temperature)
        return AtomicDistribution(branches, self.atoms, self.elsewhere.tempered(temperature, top_k))


def log_masses_at(values: Tensor, branches: Categorical, atoms: Tensor) -> tuple[Tensor, Tensor]:
    """Log probability of values that are atoms, and which are. Shape of `values`, both."""
    hit = values.unsqueeze(-1).float() == atoms
    return torch.where(hit, branches.log_probs[..., :-1], -torch.inf).amax(dim=-1), hit.any(dim=-1)


def _tilted(logits: Tensor, tilt: Tensor) -> Tensor:
    """Tilts logits by a prior, except for the share of slips, which stays as it was."""
    sides = (logits + tilt, math.log1p(-SLIP)), (logits, math.log(SLIP))
    return torch.logaddexp(*(part.log_softmax(dim=-1) + share for part, share in sides))


class AtomLevels(CategoricalConditionals):
    """Probability of each atom, and last of elsewhere: atoms that are near start out alike.

    The logit of an atom is a piecewise-linear function of its place plus a number of its own, both
    from the features. The function is learned from few rows, the rest where there are many.

    Args:
        variables: Variables with atoms.
        width: Size of the features.
    """

    seen: Tensor

    def __init__(self, variables: Schema, *, width: int) -> None:
        most = max(len(variable.atoms) for variable in variables)
        # Elsewhere is the last level of every variable, so that one padded table has it last.
        levels = [Variable.categorical(v.name, range(most + 1)) for v in variables]
        super().__init__(Schema(tuple(levels)), width=width, shared=False)
        nn.init.zeros_(self.weight)
        self.outline = nn.Parameter(torch.empty(len(variables), PiecewiseLinear.features, width))
        nn.init.normal_(self.outline, std=OUTLINE_SCALE * width**-0.5)
        padded = [[*v.atoms] + [0.0] * (most - len(v.atoms)) for v in variables]
        seen = nn.functional.pad(PiecewiseLinear()(torch.tensor(padded)), (0, 0, 0, 1))
        self.register_buffer("seen", seen, persistent=False)

    def projection(self) -> Tensor:
        """From features to levels. Shape ``(vars, levels, width)``."""
        return self.weight + self.seen @ self.outline


class AtomicConditionals(Conditionals):
    """Atoms beside a density, for continuous variables that have atoms.

    Args:
        schema: The variables.
        width: Size of the features.
        head: Kind of density.
        components: Components of the joint normals of the prior; None without a prior.
        gated: True for a prior with a latent tree.
    """

    atoms: Tensor
    units: Tensor
    usual: Tensor
    usual_levels: Tensor

    def __init__(
        self,
        schema: Schema,
        *,
        width: int,
        head: Head = "mixture",
        components: int | None = None,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.schema, self.width, self.head, self.components = schema, width, head, components
        most = max(len(variable.atoms) for variable in schema)
        self.branches = AtomLevels(schema, width=width)
        has_prior = components is not None
        if has_prior:
            with torch.no_grad():
                self.branches.outline.mul_(LOOSE)
        self.tilt = AtomTilt(len(schema), width=width) if components else None
        self.gated = gated
        if gated:
            self.gate = Gate(len(schema))
            self.follow = VariableProjection(len(schema), width=width, start=[HALF])
            nn.init.zeros_(self.follow.weight)
            usual_levels = torch.zeros(len(schema), most + 1)
            self.register_buffer("usual_levels", usual_levels)
        self.elsewhere = continuous_conditionals(
            schema, width=width, head=head, components=components, cautious=True, gated=gated
        )
        padded = [[*v.atoms] + [torch.inf] * (most - len(v.atoms)) for v in schema]
        self.register_buffer("atoms", torch.tensor(padded), persistent=False)
        # Until a prior is fitted, units are normal scores, and these standard normal.
        units = self.atoms.masked_fill(self.atoms.isinf(), 0)
        self.register_buffer("units", units, persistent=has_prior)
        self.register_buffer("usual", -0.5 * units.square() - HALF_LOG_TAU, persistent=has_prior)

    def count(self, values: Tensor, have: Tensor, weights: Tensor) -> None:
        """Starts atoms, and elsewhere, from their frequencies.

        Args:
            values: Shape ``(rows, vars)``.
            have: False for missing values.
            weights: Weights of the rows. Shape ``(rows,)``.
        """
        elsewhere = self.atoms.shape[1]
        for place, atoms in enumerate(self.atoms.unbind()):
            there = have[:, place]
            own = values[there, place].float().contiguous()
            level = torch.searchsorted(atoms, own).clamp(max=elsewhere - 1)
            level = level.masked_fill(atoms[level] != own, elsewhere)
            self.branches.begin(place, level.bincount(weights[there], minlength=elsewhere + 1))

    def measure(self, scales: UnitScales | None, alone: PriorMessage) -> None:
        """Takes over the scales of a prior, and what it says without evidence.

        Args:
            scales: Scales of the variables; None if the prior has none.
            alone: Messages about them without evidence. Shape ``(vars,)``.
        """
        if self.gated:
            self.usual_levels.copy_(self._levels(alone))
        if scales is not None:
            finite = self.atoms.masked_fill(self.atoms.isinf(), 0)
            self.units.copy_(scales.to_units(finite.T).T)
            self.usual.copy_(mixture_at(*alone.components, self.units))

    def forward(
        self, features: Tensor, variables: Tensor, prior: PriorMessage | None = None
    ) -> AtomicDistribution:
        """The conditionals of edges; see `Conditionals.forward`."""
        branches = self._branches(features, variables, prior)
        elsewhere = Features(features, prior).read_by(self.elsewhere, variables)
        return AtomicDistribution(branches, self.atoms[variables], elsewhere)

    def log_prob(self, features: Tensor, variables: Tensor, *prior: Any, values: Tensor) -> Tensor:
        """The log-likelihoods of values: of atoms, no density is made. The edges are flat."""
        branches = self._branches(features, variables, *prior)
        logs, is_atom = log_masses_at(values, branches, self.atoms[variables])
        edges = (~is_atom).nonzero().squeeze(1)
        mine = Features(features, *prior)[edges]
        smooth = mine.read_by(
            partial(self.elsewhere.log_prob, values=values[edges]), variables[edges]
        )
        return logs.to(smooth.dtype).index_copy(0, edges, smooth + branches.log_probs[edges, -1])

    def _branches(
        self, features: Tensor, variables: Tensor, prior: PriorMessage | None = None
    ) -> Categorical:
        """Probability of each atom, and last of elsewhere."""
        atoms = self.atoms[variables]
        absent = nn.functional.pad(atoms.isinf(), (0, 1), value=False)
        logits = self.branches(features, variables).logits
        if self.tilt is not None:
            tilt = self.tilt(features, variables, prior, atoms=self.units, usual=self.usual)
            tilt = tilt.masked_fill(atoms.isinf(), 0)
            logits = _tilted(logits.masked_fill(absent, NO_CHANCE), nn.functional.pad(tilt, (0, 1)))
        if self.gated:
            assert prior is not None
            tree = self._levels(prior)
            if prior.known is None:
                logits = tree
            else:
                share = self.follow(features, variables).sigmoid()
                own = logits + share * (tree - self.usual_levels[variables])
                own = own.masked_fill(absent, NO_CHANCE).log_softmax(dim=-1)
                logits = tree.lerp(own, self.gate(prior.known, variables)[..., None])
        return Categorical(logits.masked_fill(absent, -torch.inf))

    def _levels(self, prior: PriorMessage) -> Tensor:
        """Log probability of each atom, and last of elsewhere, by a latent tree."""
        assert prior.levels is not None
        return prior.levels[..., : self.atoms.shape[1] + 1].roll(-1, dims=-1)
