"""A network that says nothing: beside a prior, the prior alone is the model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.lattice.protocols import edge_places, path_lists
from anyorder.networks.contracts import PathFeatures, PathNetwork
from anyorder.variables import Schema


@dataclass
class NoState:
    """State of `NoNetwork`: the number of rows."""

    rows: int

    def expand(self, draws: int) -> "NoState":
        """See `State.expand`."""
        return NoState(self.rows * draws)

    def select(self, rows: Tensor) -> "NoState":
        """See `State.select`; the draws of a row do not matter."""
        return NoState(len(rows))


class NoNetwork(PathNetwork[NoState]):
    """Features that say nothing: joined with a prior, the prior alone is the model.

    Args:
        schema: The variables.
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema, self.width = schema, 64  # rows of a pass go by it; a prior has as many classes

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Zeros for every factor; see `PathNetwork.forward`."""
        del given
        path, asked = path_lists(query, rank.expand(query.shape))
        row, step = edge_places(asked)
        zeros = torch.zeros(len(row), self.width, device=x.device)
        return PathFeatures(zeros, row, step, path[row, step])

    def encode(self, x: Tensor, given: Tensor) -> NoState:
        """Nothing; see `PathNetwork.encode`."""
        del given
        return NoState(len(x))

    def ask(self, state: NoState, variables: Tensor) -> Tensor:
        """Zeros; see `PathNetwork.ask`."""
        rows = len(variables) if variables.ndim == 2 else state.rows
        return torch.zeros(rows, variables.shape[-1], self.width, device=variables.device)

    def tell(self, state: NoState, variables: Tensor, values: Tensor) -> NoState:
        """Nothing; see `PathNetwork.tell`."""
        del state, variables
        return NoState(len(values))
