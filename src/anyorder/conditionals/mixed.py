"""Conditionals of mixed variables: each kind has its own head, and edges find theirs.

Variables of one kind and of similar size form a *group*, with one set of conditionals. A batch of
edges is split by group, and what the parts answer is put back in the order of the edges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from anyorder.conditionals.atomic import AtomicConditionals
from anyorder.conditionals.categorical import CategoricalConditionals
from anyorder.conditionals.contracts import Conditionals, Distribution
from anyorder.conditionals.guided import GuidedCategoricalConditionals, GuidedDensities
from anyorder.conditionals.heads import Head, continuous_conditionals
from anyorder.networks.guided import guided_features
from anyorder.networks.unit_scales import UnitScales
from anyorder.variables import Schema, Variable

Kind = Literal["categorical", "atomic", "continuous"]

SMALL = 16
"""Variables of up to so many levels or atoms share a padded table; larger ones have their own."""


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
        """A draw."""
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
        """What each part answers for its own edges, in the order of the edges."""
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
        head: Of densities.
        guided: Whether the last features are those of a guide; see `GuidedNetwork`.
    """

    def __init__(
        self, schema: Schema, *, width: int, head: Head = "mixture", guided: bool = False
    ) -> None:
        super().__init__()
        self.schema, self.width, self.head, self.guided = schema, width, head, guided
        said = guided_features(schema) if guided else 0
        asked = [variable for variable in schema if not variable.context]
        groups = _groups(asked)
        group, place = torch.zeros(2, len(asked), dtype=torch.long)
        self.groups = nn.ModuleList()
        for number, (kind, members) in enumerate(groups):
            self.groups.append(self._conditionals(kind, [asked[i] for i in members], said))
            group[members] = number
            place[members] = torch.arange(len(members))
        self.register_buffer("group", group, persistent=False)
        self.register_buffer("place", place, persistent=False)

    def _conditionals(self, kind: Kind, variables: list[Variable], said: int) -> Conditionals:
        part, width = Schema(tuple(variables)), self.width
        if kind == "categorical":
            if said:
                return GuidedCategoricalConditionals(part, width=width, said=said)
            return CategoricalConditionals(part, width=width, shared=False)
        if kind == "atomic":
            return AtomicConditionals(part, width=width, head=self.head, said=said)
        if said:
            return GuidedDensities(part, width=width, said=said, head=self.head)
        return continuous_conditionals(part, width=width, head=self.head)

    def count(self, x: Tensor, have: Tensor, weights: Tensor) -> None:
        """Has levels and atoms beside guides start from how often they are in some rows.

        Args:
            x: Values. Shape ``(rows, columns)``.
            have: Which are there. Shape ``(rows, vars)``.
            weights: Of the rows. Shape ``(rows,)``.
        """
        asked = [variable for variable in self.schema if not variable.context]
        for part, (_, members) in zip(self.groups, _groups(asked), strict=True):
            if isinstance(part, GuidedCategoricalConditionals | AtomicConditionals):
                part.count(x[:, members], have[:, members], weights)

    def measure(self, scales: UnitScales, alone: Tensor) -> None:
        """Has densities start from a guide of all numbers.

        Args:
            scales: Of the numbers.
            alone: The bells of each without evidence. Shape ``(numbers, 3 * normals)``.
        """
        asked = [variable for variable in self.schema if not variable.context]
        place = torch.tensor([v.kind == "continuous" for v in asked]).cumsum(dim=0) - 1
        for part, (_, members) in zip(self.groups, _groups(asked), strict=True):
            mine = place[members].to(alone.device)
            density = part.elsewhere if isinstance(part, AtomicConditionals) else part
            if isinstance(density, GuidedDensities):
                density.scales.load_state_dict(scales.at(mine).state_dict())
            if isinstance(part, AtomicConditionals):
                part.measure(scales.at(mine), alone[mine])

    def forward(self, features: Tensor, variables: Tensor) -> MixedDistribution:
        """The conditionals of edges; see `Conditionals.forward`."""
        variables = variables.expand(features.shape[:-1])
        flat, asked = features.flatten(0, -2), variables.flatten()
        parts: list[tuple[Tensor, Distribution]] = []
        for number, conditionals in enumerate(self.groups):
            places = (self.group[asked] == number).nonzero().squeeze(1)
            if len(places):
                mine = flat if len(places) == len(flat) else flat[places]
                parts.append((places, conditionals(mine, self.place[asked[places]])))
        return MixedDistribution(parts, features[..., 0])


def _groups(variables: list[Variable]) -> list[tuple[Kind, list[int]]]:
    """The groups, and their members: small variables of a kind together, each larger one alone."""
    small: dict[Kind, list[int]] = {}
    large: list[tuple[Kind, list[int]]] = []
    for index, variable in enumerate(variables):
        kind: Kind = variable.kind if not variable.atoms else "atomic"
        if max(variable.num_levels, len(variable.atoms)) > SMALL:
            large.append((kind, [index]))
        else:
            small.setdefault(kind, []).append(index)
    return [*small.items(), *large]
