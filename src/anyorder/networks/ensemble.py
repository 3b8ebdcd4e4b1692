"""An ensemble of path networks as one network, with concatenated features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PathFeatures, PathNetwork
from anyorder.variables import Schema


@dataclass
class EnsembleState:
    """States of the ensemble members."""

    members: list[Any]

    def expand(self, draws: int) -> "EnsembleState":
        """See `State.expand`."""
        return EnsembleState([member.expand(draws) for member in self.members])

    def select(self, rows: Tensor) -> "EnsembleState":
        """See `State.select`."""
        return EnsembleState([member.select(rows) for member in self.members])


class EnsembleNetwork(PathNetwork[EnsembleState]):
    """Concatenates the features of the ensemble members; `AveragedConditionals` reads them.

    Args:
        schema: The variables.
        members: Networks that were trained apart.
    """

    def __init__(self, schema: Schema, members: Sequence[PathNetwork[Any]]) -> None:
        super().__init__()
        self.schema = schema
        self.parts = nn.ModuleList(members)
        self.width = sum(member.width for member in members)

    @property
    def members(self) -> list[Any]:
        """The ensemble members, in order."""
        return list(self.parts)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Returns features of every factor; see `PathNetwork.forward`."""
        paths = [member(x, query, given, rank) for member in self.members]
        return paths[0]._replace(features=torch.cat([path.features for path in paths], dim=-1))

    def encode(self, x: Tensor, given: Tensor) -> EnsembleState:
        """Encodes the evidence; see `PathNetwork.encode`."""
        return EnsembleState([member.encode(x, given) for member in self.members])

    def ask(self, state: EnsembleState, variables: Tensor) -> Tensor:
        """Returns features of variables; see `PathNetwork.ask`."""
        pairs = zip(self.members, state.members, strict=True)
        return torch.cat([member.ask(own, variables) for member, own in pairs], dim=-1)

    def tell(self, state: EnsembleState, variables: Tensor, values: Tensor) -> EnsembleState:
        """Extends the path; see `PathNetwork.tell`."""
        pairs = zip(self.members, state.members, strict=True)
        return EnsembleState([member.tell(own, variables, values) for member, own in pairs])
