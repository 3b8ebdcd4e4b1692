"""A path network beside joint normal distributions of the numbers, which it need not learn."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anyorder.networks.contracts import PathFeatures, PathNetwork
from anyorder.networks.normal_guide import Belief, NormalGuide
from anyorder.variables import Schema

GUIDED = 2
"""Features of the guide: the mean of a number and the log of its deviation, 0 of what is none."""


@dataclass
class GuidedState:
    """What the network remembers, and what is believed."""

    inner: Any
    belief: Belief
    draws: int = 1

    def expand(self, draws: int) -> "GuidedState":
        """See `State.expand`."""
        belief = self.belief.at(self.belief.rows.repeat_interleave(draws))
        return GuidedState(self.inner.expand(draws), belief, self.draws * draws)

    def select(self, rows: Tensor) -> "GuidedState":
        """See `State.select`."""
        places = rows[:, None] * self.draws + torch.arange(self.draws, device=rows.device)
        return GuidedState(self.inner.select(rows), self.belief.at(places.flatten()), self.draws)


class GuidedNetwork(PathNetwork[GuidedState]):
    """Features of a path network, and behind them what the guide says of each factor.

    Args:
        schema: The variables.
        network: Learns what the guide does not know.
    """

    def __init__(self, schema: Schema, network: PathNetwork[Any]) -> None:
        super().__init__()
        self.schema, self.network = schema, network
        self.guide = NormalGuide(schema)
        self.width = network.width + GUIDED
        self.asks_many = network.asks_many

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Features of every factor; see `PathNetwork.forward`."""
        path = self.network(x, query, given, rank)
        said = self.guide.along(x, query=query, given=given, rank=rank)
        return path._replace(
            features=_beside(path.features, *(part[path.row, path.target] for part in said))
        )

    def encode(self, x: Tensor, given: Tensor) -> GuidedState:
        """Encodes the evidence; see `PathNetwork.encode`."""
        return GuidedState(self.network.encode(x, given), self.guide.believe(x, given))

    def ask(self, state: GuidedState, variables: Tensor) -> Tensor:
        """Features of variables; see `PathNetwork.ask`."""
        features = self.network.ask(state.inner, variables)
        variables = variables.expand(len(features), -1)
        return _beside(features, *self.guide.ask(state.belief, variables))

    def tell(self, state: GuidedState, variables: Tensor, values: Tensor) -> GuidedState:
        """Notes known values; see `PathNetwork.tell`."""
        state.inner = self.network.tell(state.inner, variables, values)
        state.belief = self.guide.tell(state.belief, variables.expand_as(values), values)
        return state


def _beside(features: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    return torch.cat([features, torch.stack([mean, log_deviation], dim=-1)], dim=-1)
