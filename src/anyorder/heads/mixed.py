"""Conditionals of mixed variables: each kind has its own head, and edges find theirs.

Variables of one kind and of similar size form a *group*, with one set of conditionals. A batch of
edges is split by group, and the answers of the parts are put back in the order of the edges.

`AveragedConditionals` mixes those of several ensemble members, edge by edge, in closed form.
Averaged at every edge of a path, conditionals are conditionals again: likelihoods sum to one, and
every question of a single model can be asked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError
from anyorder.heads.atoms import AtomicConditionals, AtomicDistribution
from anyorder.heads.distributions import (
    Categorical,
    CategoricalConditionals,
    Conditionals,
    Distribution,
)
from anyorder.heads.mixture import Mixture
from anyorder.heads.with_prior import (
    CategoricalWithPrior,
    DensitiesWithPrior,
    GatedLevels,
    Head,
    OnScale,
    continuous_conditionals,
)
from anyorder.networks.contracts import Features, PriorMessage
from anyorder.priors.contract import Prior
from anyorder.variables import Schema, Variable

Kind = Literal["categorical", "atomic", "continuous"]

SMALL = 16
"""Most levels or atoms of variables that share a padded table; larger ones have their own."""


@dataclass(frozen=True)
class MixedDistribution:
    """Distributions of several kinds, edge by edge.

    Args:
        parts: Places among the flat edges, and their distributions.
        like: A tensor with the shape, the dtype and the device of the edges.
    """

    parts: list[tuple[Tensor, Distribution]]
    like: Tensor

    @property
    def only(self) -> Distribution:
        """The distribution of flat edges that are all of one kind: takes several values an edge."""
        ((_, part),) = self.parts
        return part

    def log_prob(self, values: Tensor) -> Tensor:
        """The log probability or density."""
        return self._of(lambda part, v: part.log_prob(v), values)

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of at most `values`."""
        return self._of(lambda part, v: part.cdf(v), values)

    def icdf(self, probability: Tensor) -> Tensor:
        """The least value whose CDF reaches a probability."""
        return self._of(lambda part, p: part.icdf(p), probability)

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """One sample an edge."""
        return self._of(lambda part: part.sample(generator=generator))

    def mean(self) -> Tensor:
        """The expectation; of codes, for categorical variables."""
        return self._of(lambda part: part.mean())

    def mode(self) -> Tensor:
        """The most probable value."""
        return self._of(lambda part: part.mode())

    def entropy(self) -> Tensor:
        """In nats."""
        return self._of(lambda part: part.entropy())

    def tempered(self, temperature: float, top_k: int | None = None) -> "MixedDistribution":
        """Sharper or flatter."""
        parts = [(places, part.tempered(temperature, top_k)) for places, part in self.parts]
        return MixedDistribution(parts, self.like)

    def _of(self, answer: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Answer of each part for its own edges, in the order of the edges."""
        flat = [tensor.expand(self.like.shape).flatten() for tensor in inputs]
        found = [
            (places, answer(part, *(tensor[places] for tensor in flat)))
            for places, part in self.parts
        ]
        if len(found) == 1:
            return found[0][1].view(self.like.shape)
        kind = torch.promote_types(self.like.dtype, inputs[0].dtype) if inputs else self.like.dtype
        result = torch.zeros(self.like.numel(), dtype=kind, device=self.like.device)
        for places, part in found:
            result = result.index_copy(0, places, part.to(kind))
        return result.view(self.like.shape)


class MixedConditionals(Conditionals):
    """Conditionals of the columns of a table.

    Args:
        schema: The variables; those of the context are never asked and have none.
        width: Size of the features.
        head: Kind of densities.
        components: Components of the joint normals of the prior; None without a prior.
        gated: True for a prior with a latent tree, whose is the answer where little is known. A
            prior without one is that of a model of version 0.1.0, or of numbers alone.
    """

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
        self.gated, self.has_prior = gated, components is not None
        asked = [variable for variable in schema if not variable.context]
        groups = _groups(asked)
        group, place = torch.zeros(2, len(asked), dtype=torch.long)
        self.groups = nn.ModuleList()
        for number, (kind, members) in enumerate(groups):
            self.groups.append(self._conditionals(kind, [asked[i] for i in members]))
            group[members] = number
            place[members] = torch.arange(len(members))
        self.register_buffer("group", group, persistent=False)
        self.register_buffer("place", place, persistent=False)

    def _conditionals(self, kind: Kind, variables: list[Variable]) -> Conditionals:
        part, width, components = Schema(tuple(variables)), self.width, self.components
        if kind == "categorical":
            if self.gated:
                return GatedLevels(part, width=width)
            if components is not None:
                return CategoricalWithPrior(part, width=width)
            return CategoricalConditionals(part, width=width, shared=False)
        build = AtomicConditionals if kind == "atomic" else continuous_conditionals
        head, gated = self.head, self.gated
        return build(part, width=width, head=head, components=components, gated=gated)

    def count(self, x: Tensor, have: Tensor, weights: Tensor) -> None:
        """Starts atoms from their frequencies.

        Args:
            x: Values. Shape ``(rows, columns)``.
            have: False for missing values. Shape ``(rows, vars)``.
            weights: Weights of the rows. Shape ``(rows,)``.
        """
        asked = [variable for variable in self.schema if not variable.context]
        for part, (_, members) in zip(self.groups, _groups(asked), strict=True):
            if isinstance(part, AtomicConditionals):
                part.count(x[:, members], have[:, members], weights)

    def measure(self, prior: Prior) -> None:
        """Starts numbers from a prior that is fitted."""
        scales, alone = prior.number_scales, prior.alone()
        asked = [variable for variable in self.schema if not variable.context]
        place = torch.tensor([v.kind == "continuous" for v in asked]).cumsum(dim=0) - 1
        for part, (_, members) in zip(self.groups, _groups(asked), strict=True):
            mine = None if scales is None else scales.at(place[members].to(scales.start.device))
            density = part.elsewhere if isinstance(part, AtomicConditionals) else part
            if isinstance(density, DensitiesWithPrior) and mine is not None:
                density.scales.load_state_dict(mine.state_dict())
            if isinstance(part, AtomicConditionals):
                part.measure(mine, alone[members])

    def forward(
        self, features: Tensor, variables: Tensor, prior: PriorMessage | None = None
    ) -> MixedDistribution:
        """The conditionals of edges; see `Conditionals.forward`."""
        groups = self._split(Features(features, prior), variables)
        parts = [(places, mine.read_by(group, which)) for places, group, mine, which in groups]
        return MixedDistribution(parts, features[..., 0])

    def log_prob(self, features: Tensor, variables: Tensor, *prior: Any, values: Tensor) -> Tensor:
        """The log-likelihoods of values; see `Conditionals.log_prob`."""
        flat, like = values.flatten(), features[..., 0]
        logs = like.new_zeros(like.numel(), dtype=torch.promote_types(like.dtype, values.dtype))
        for places, group, mine, which in self._split(Features(features, *prior), variables):
            part = mine.read_by(partial(group.log_prob, values=flat[places]), which)
            logs = logs.index_copy(0, places, part.to(logs.dtype))
        return logs.view(like.shape)

    def _split(
        self, features: Features, variables: Tensor
    ) -> Iterator[tuple[Tensor, Conditionals, Features, Tensor]]:
        """Yields flat places, conditionals, features and variables in it, of each group."""
        variables = variables.expand(features.own.shape[:-1])
        edges = features.map(lambda part: part.flatten(0, variables.ndim - 1))
        asked = variables.flatten()
        group = self.group[asked]
        # In training all of them, on no edges too: DDP waits for the gradient of every weight.
        for number in range(len(self.groups)) if self.training else group.unique().tolist():
            conditionals = self.groups[number]
            assert isinstance(conditionals, Conditionals)
            places = (group == number).nonzero().squeeze(1)
            mine = edges if len(places) == len(edges) else edges[places]
            yield places, conditionals, mine, self.place[asked[places]]


def _groups(variables: list[Variable]) -> list[tuple[Kind, list[int]]]:
    """Groups and their variables: small ones of a kind together, each larger one alone."""
    small: dict[Kind, list[int]] = {}
    large: list[tuple[Kind, list[int]]] = []
    for index, variable in enumerate(variables):
        kind: Kind = variable.kind if not variable.atoms else "atomic"
        if max(variable.num_levels, len(variable.atoms)) > SMALL:
            large.append((kind, [index]))
        else:
            small.setdefault(kind, []).append(index)
    return [*small.items(), *large]


class AveragedConditionals(Conditionals):
    """Reads the features of each ensemble member by its own conditionals, and averages.

    Args:
        schema: The variables.
        members: Conditionals of categories, mixtures and atoms, all of one kind.
    """

    def __init__(self, schema: Schema, members: Sequence[Conditionals]) -> None:
        super().__init__()
        self.schema = schema
        self.parts = nn.ModuleList(members)
        self.widths = [member.width for member in members]
        self.width = sum(self.widths)
        self.has_prior = any(member.has_prior for member in members)

    @property
    def members(self) -> list[Any]:
        """The members, in order."""
        return list(self.parts)

    def forward(
        self, features: Tensor, variables: Tensor, prior: PriorMessage | None = None
    ) -> Distribution:
        """The conditionals of edges; see `Conditionals.forward`."""
        return averaged(self.apart(Features(features, prior), variables))

    def apart(self, features: Features, variables: Tensor) -> list[Any]:
        """Returns the distributions of each member, which `forward` averages."""
        shares = (Features(own, features.prior) for own in features.own.split(self.widths, dim=-1))
        pairs = zip(self.parts, shares, strict=True)
        return [own.read_by(member, variables) for member, own in pairs]


def averaged(parts: Sequence[Any], log_weights: Tensor | None = None) -> Distribution:
    """The mixture of distributions of one kind.

    Args:
        parts: Distribution of each member; all have the shape of the same edges.
        log_weights: Weight of each at each edge, up to a factor; equal by default.
            Shape ``(members, ...)``.
    """
    first = parts[0]
    if isinstance(first, MixedDistribution):
        groups = zip(*(part.parts for part in parts), strict=True)
        mixed = [(group[0][0], averaged([part for _, part in group])) for group in groups]
        return MixedDistribution(mixed, first.like)
    if isinstance(first, AtomicDistribution):
        branches = averaged([part.branches for part in parts])
        assert isinstance(branches, Categorical)
        # Elsewhere, a member counts by how probable it holds it to be there.
        beside = torch.stack([part.branches.log_probs[..., -1] for part in parts])
        elsewhere = averaged([part.elsewhere for part in parts], beside)
        assert isinstance(elsewhere, Mixture | OnScale)
        return AtomicDistribution(branches, first.atoms, elsewhere)
    if isinstance(first, Categorical) and log_weights is None:
        return Categorical(torch.stack([part.log_probs for part in parts]).logsumexp(dim=0))
    if isinstance(first, OnScale):  # members have one prior, and so one scale
        inner = averaged([part.inner for part in parts], log_weights)
        assert isinstance(inner, Mixture)
        return replace(first, inner=inner)
    if isinstance(first, Mixture):
        logits = [part.logits.log_softmax(dim=-1) for part in parts]
        if log_weights is not None:
            logits = [
                own + weight[..., None] for own, weight in zip(logits, log_weights, strict=True)
            ]
        means, scales = (
            torch.cat([getattr(p, f) for p in parts], dim=-1) for f in ("means", "log_scales")
        )
        return Mixture(torch.cat(logits, dim=-1), means, scales, first.component)
    raise ConfigError(
        f'{type(first).__name__} has no average in closed form: take head="mixture", or one member.'
    )
