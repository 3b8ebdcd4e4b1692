"""A path network beside joint normal distributions of the columns, which it need not learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PathFeatures, PathNetwork
from anyorder.priors.levels import LevelGuide
from anyorder.priors.normals import Belief, NormalGuide, most_normals
from anyorder.priors.scales import Units
from anyorder.variables import Schema

MOST_GUIDED = 1200
"""Columns of a guide: a decomposition of their covariance for each row takes their number cubed."""


@dataclass
class GuidedState:
    """What the network remembers, and what each guide believes."""

    inner: Any
    beliefs: list[Belief]
    draws: int = 1

    def expand(self, draws: int) -> "GuidedState":
        """See `State.expand`."""
        beliefs = [belief.at(belief.rows.repeat_interleave(draws)) for belief in self.beliefs]
        return GuidedState(self.inner.expand(draws), beliefs, self.draws * draws)

    def select(self, rows: Tensor) -> "GuidedState":
        """See `State.select`."""
        places = rows[:, None] * self.draws + torch.arange(self.draws, device=rows.device)
        beliefs = [belief.at(places.flatten()) for belief in self.beliefs]
        return GuidedState(self.inner.select(rows), beliefs, self.draws)


def guide_kinds(schema: Schema) -> list[type[NormalGuide] | type[LevelGuide]]:
    """Which guides a table has: of numbers, if there are several; of categories beside any else."""
    asked = [variable for variable in schema if not variable.context]
    numbers = sum(variable.kind == "continuous" for variable in asked)
    found: list[type[NormalGuide] | type[LevelGuide]] = []
    if 2 <= numbers <= MOST_GUIDED:
        found.append(NormalGuide)
    if 2 <= len(asked) <= MOST_GUIDED and numbers < len(asked):
        found.append(LevelGuide)
    return found


def guided_features(schema: Schema) -> int:
    """Features that the guides of a table say beside a network's own.

    A mean or a logit, and the log of a deviation; and where numbers are guided, their bells.
    """
    numbers = sum(v.kind == "continuous" for v in schema if not v.context)
    kinds = guide_kinds(schema)
    return 2 * bool(kinds) + 3 * most_normals(numbers) * (NormalGuide in kinds)


class GuidedNetwork(PathNetwork[GuidedState]):
    """Features of a path network, and behind them what guides say of each factor.

    Every guide says 0 of what it does not know, so that what they say adds up.

    Args:
        schema: The variables; see `guide_kinds`.
        network: Learns what the guides do not know.
    """

    def __init__(self, schema: Schema, network: PathNetwork[Any]) -> None:
        super().__init__()
        self.schema, self.network = schema, network
        self.guides = nn.ModuleList(kind(schema) for kind in guide_kinds(schema))
        self.width = network.width + guided_features(schema)
        self.asks_many = network.asks_many

    @property
    def numbers(self) -> NormalGuide | None:
        """The guide of numbers, if there is one."""
        return next((guide for guide in self.guides if isinstance(guide, NormalGuide)), None)

    def learn(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        units: Units | None = None,
    ) -> None:
        """Has the guides read rows; see `NormalGuide.learn`."""
        for guide in self.guides:
            guide.learn(x, have, weights, units)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Features of every factor; see `PathNetwork.forward`."""
        path = self.network(x, query, given, rank)
        said = [g.along(x, query=query, given=given, rank=rank) for g in self.guides]
        here = [part[path.row, path.target] for part in said]
        return path._replace(features=self._beside(path.features, here))

    def encode(self, x: Tensor, given: Tensor) -> GuidedState:
        """Encodes the evidence; see `PathNetwork.encode`."""
        beliefs = [guide.believe(x, given) for guide in self.guides]
        return GuidedState(self.network.encode(x, given), beliefs)

    def ask(self, state: GuidedState, variables: Tensor) -> Tensor:
        """Features of variables; see `PathNetwork.ask`."""
        features = self.network.ask(state.inner, variables)
        variables = variables.expand(len(features), -1)
        pairs = zip(self.guides, state.beliefs, strict=True)
        return self._beside(features, [guide.ask(belief, variables) for guide, belief in pairs])

    def tell(self, state: GuidedState, variables: Tensor, values: Tensor) -> GuidedState:
        """Notes known values; see `PathNetwork.tell`."""
        state.inner = self.network.tell(state.inner, variables, values)
        pairs, variables = zip(self.guides, state.beliefs, strict=True), variables.expand_as(values)
        state.beliefs = [guide.tell(belief, variables, values) for guide, belief in pairs]
        return state

    def _beside(self, features: Tensor, said: Sequence[Tensor]) -> Tensor:
        """Of two guides one says more; what they say begins alike."""
        most = self.width - self.network.width
        padded = [nn.functional.pad(part, (0, most - part.shape[-1])) for part in said]
        return torch.cat([features, torch.stack(padded).sum(dim=0)], dim=-1)
