"""Atoms beside a density: variables that take some values with positive probability.

A draw is one of the atoms, or *elsewhere*: then it has a density. The log-likelihood of an atom is
the log of its probability, that of any other value the log of P(elsewhere) times the density: one
number each, with respect to one measure, so that it adds up along a path.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.heads.categorical import Categorical, CategoricalConditionals
from anyorder.heads.distributions import HALF_LOG_TAU, Conditionals, ContinuousDistribution
from anyorder.heads.with_prior import (
    LOOSE,
    MOMENTS,
    SLIP,
    AtomTilt,
    GuidedDensities,
    Head,
    bells_at,
    continuous_conditionals,
)
from anyorder.networks.embedding import Line
from anyorder.priors.scales import UnitScales
from anyorder.variables import Schema, Variable

NO_CHANCE = -1e4
"""The logit of an atom that is not there, as long as sums of it are to have a gradient."""

OUTLINE_SCALE = 0.5
"""Of what atoms have in common, at first; what each has of its own starts at nothing."""


@dataclass(frozen=True)
class AtomicDistribution:
    """Some atoms and a density; the edges are flat.

    Args:
        branches: The probability of each atom, and last of elsewhere. Its edges have shape
            ``(edges,)``; atoms that an edge does not have are impossible.
        atoms: Ascending, padded at the end by infinity. Shape ``(edges, atoms)``.
        elsewhere: The density. Its edges have shape ``(edges,)``.
    """

    branches: Categorical
    atoms: Tensor
    elsewhere: ContinuousDistribution

    def log_prob(self, values: Tensor) -> Tensor:
        """The log probability of atoms, the log density elsewhere."""
        hit = values.unsqueeze(-1).float() == self.atoms
        is_atom = hit.any(dim=-1)
        log_branches = self.branches.log_probs
        log_mass = torch.where(hit, log_branches[..., :-1], -torch.inf).amax(dim=-1)
        # Zero is inside every support: the density of an atom's place is not asked, and its
        # gradient, which may be no number, is kept out.
        smooth = self.elsewhere.log_prob(values.masked_fill(is_atom, 0)) + log_branches[..., -1]
        return torch.where(is_atom, log_mass, smooth)

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
        atom = self.atoms.gather(-1, best)[..., 0]
        return torch.where(masses[..., -1] < 0.5, atom.to(masses), self.elsewhere.mode())

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """A draw."""
        branch = self.branches.sample(generator=generator)
        smooth = self.elsewhere.sample(generator=generator)
        is_atom = branch < self.atoms.shape[-1]
        atom = self.atoms.gather(-1, branch.clamp(max=self.atoms.shape[-1] - 1)[..., None])[..., 0]
        return torch.where(is_atom, atom.to(smooth), smooth)

    def entropy(self) -> Tensor:
        """Of the branches, and of the density where it is drawn from; in nats."""
        smooth = self.branches.log_probs[..., -1].exp() * self.elsewhere.entropy()
        return self.branches.entropy() + smooth

    def tempered(self, temperature: float, top_k: int | None = None) -> "AtomicDistribution":
        """Sharper or flatter branches, and density."""
        branches = self.branches.tempered(temperature)
        return AtomicDistribution(branches, self.atoms, self.elsewhere.tempered(temperature, top_k))


def _tilted(logits: Tensor, tilt: Tensor) -> Tensor:
    """By a guide, but for what may slip: that stays as it was."""
    sides = (logits + tilt, math.log1p(-SLIP)), (logits, math.log(SLIP))
    return torch.logaddexp(*(part.log_softmax(dim=-1) + share for part, share in sides))


class AtomLevels(CategoricalConditionals):
    """The probability of each atom, and last of elsewhere: atoms that are near start out alike.

    The logit of an atom is a piecewise linear function of its place on the line plus a number of
    its own, both from the features. The function is what a few rows teach; the rest is learned
    where there are many.

    Args:
        variables: With atoms.
        width: Size of the features.
    """

    seen: Tensor

    def __init__(self, variables: Schema, *, width: int) -> None:
        most = max(len(variable.atoms) for variable in variables)
        # Elsewhere is the last level of every variable, so that one padded table has it last.
        levels = [Variable.categorical(v.name, range(most + 1)) for v in variables]
        super().__init__(Schema(tuple(levels)), width=width, shared=False)
        nn.init.zeros_(self.weight)
        self.outline = nn.Parameter(torch.empty(len(variables), Line.features, width))
        nn.init.normal_(self.outline, std=OUTLINE_SCALE * width**-0.5)
        padded = [[*v.atoms] + [0.0] * (most - len(v.atoms)) for v in variables]
        seen = nn.functional.pad(Line()(torch.tensor(padded)), (0, 0, 0, 1))
        self.register_buffer("seen", seen, persistent=False)

    def projection(self) -> Tensor:
        """From features to levels. Shape ``(vars, levels, width)``."""
        return self.weight + self.seen @ self.outline


class AtomicConditionals(Conditionals):
    """Atoms beside a density, for continuous variables that have atoms.

    Args:
        schema: The variables.
        width: Size of the features.
        head: Of the density.
        said: How many of the features, the last ones, are those of a guide; see `guided`.
    """

    atoms: Tensor
    units: Tensor
    usual: Tensor

    def __init__(
        self, schema: Schema, *, width: int, head: Head = "mixture", said: int = 0
    ) -> None:
        super().__init__()
        self.schema, self.width, self.head, self.said = schema, width, head, said
        most = max(len(variable.atoms) for variable in schema)
        self.branches = AtomLevels(schema, width=width - said)
        if said:
            with torch.no_grad():
                self.branches.outline.mul_(LOOSE)
        has_bells = said > MOMENTS
        self.tilt = AtomTilt(len(schema), width=width, said=said) if has_bells else None
        self.elsewhere: Conditionals = (
            GuidedDensities(schema, width=width, said=said, head=head, cautious=True)
            if said
            else continuous_conditionals(schema, width=width, head=head)
        )
        padded = [[*v.atoms] + [torch.inf] * (most - len(v.atoms)) for v in schema]
        self.register_buffer("atoms", torch.tensor(padded), persistent=False)
        # Until there is a guide, its units are normal scores, and these standard normal.
        units = self.atoms.masked_fill(self.atoms.isinf(), 0)
        self.register_buffer("units", units, persistent=bool(said))
        self.register_buffer("usual", -0.5 * units.square() - HALF_LOG_TAU, persistent=bool(said))

    def count(self, values: Tensor, have: Tensor, weights: Tensor) -> None:
        """Has atoms, and elsewhere, start from how often they are.

        Args:
            values: Of the variables. Shape ``(rows, vars)``.
            have: Which are there.
            weights: Of the rows. Shape ``(rows,)``.
        """
        elsewhere = self.atoms.shape[1]
        for place, atoms in enumerate(self.atoms.unbind()):
            there = have[:, place]
            own = values[there, place].float().contiguous()
            level = torch.searchsorted(atoms, own).clamp(max=elsewhere - 1)
            level = level.masked_fill(atoms[level] != own, elsewhere)
            self.branches.begin(place, level.bincount(weights[there], minlength=elsewhere + 1))

    def measure(self, scales: UnitScales, alone: Tensor) -> None:
        """Takes the scales of a guide, and what it says without evidence.

        Args:
            scales: Of the variables.
            alone: Their bells. Shape ``(vars, 3 * normals)``.
        """
        finite = self.atoms.masked_fill(self.atoms.isinf(), 0)
        self.units.copy_(scales.to_units(finite.T).T)
        logits, means, logs = alone.unflatten(-1, (3, -1)).unbind(dim=-2)
        self.usual.copy_(bells_at(logits, means, logs, self.units))

    def forward(self, features: Tensor, variables: Tensor) -> AtomicDistribution:
        """The conditionals of edges; see `Conditionals.forward`."""
        atoms = self.atoms[variables]
        absent = nn.functional.pad(atoms.isinf(), (0, 1), value=False)
        logits = self.branches(features[..., : self.branches.width], variables).logits
        if self.tilt is not None:
            tilt = self.tilt(features, variables, self.units, self.usual)
            tilt = tilt.masked_fill(atoms.isinf(), 0)  # what is not there is not looked at
            logits = _tilted(logits.masked_fill(absent, NO_CHANCE), nn.functional.pad(tilt, (0, 1)))
        logits = logits.masked_fill(absent, -torch.inf)
        return AtomicDistribution(Categorical(logits), atoms, self.elsewhere(features, variables))
