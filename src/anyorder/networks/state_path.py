"""Path network for robots: a trunk encodes the state, a small decoder runs along the action.

The state is read once a decision; only the decoder runs again for each dimension of the action.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.errors import SchemaError, check_count
from anyorder.lattice.protocols import edge_places, path_lists
from anyorder.networks.contracts import PathFeatures, PathNetwork, RowState
from anyorder.networks.paths import pick
from anyorder.networks.residual_mlp import ResidualBlock
from anyorder.variables import Schema


@dataclass
class ActionState(RowState):
    """Features of the trunk, and the values of the action known so far."""

    encoded: Tensor  # (batch, vars, width)
    values: Tensor  # (batch, vars) zero where unknown
    known: Tensor  # (batch, vars)


class StatePath(PathNetwork[ActionState]):
    r"""Path network for actions: every factor of p(a_u | a_e, s) from one pass over the state.

    The *trunk*, wide and deep, maps the state to a vector for each dimension of the action. The
    *decoder*, narrow and shallow, runs once for each factor: its input is the vector of the queried
    dimension, plus a linear map of the known values and their flags. A decision of nine dimensions
    costs one pass of the trunk instead of nine.

    The decoder reads known values as a set, evidence and path alike. A factor does not depend on
    the order of the path, so one pass and single steps agree.

    Args:
        schema: Continuous variables; the state is their context.
        width: Size of the features, and of the decoder.
        hidden: Width of the trunk.
        blocks: Number of residual blocks of the trunk, two layers each.
        decoder_blocks: Number of residual blocks of the decoder.
        dropout: Dropout rate of each block's output.

    Reference:
        Shih, Sadigh and Ermon (2022), Alg. 1 and 2 in one pass of the trunk, which is their
        perceptron for FrankaKitchen (section 4.4 and appendix D).

    Example:
        >>> from anyorder.variables import Variable
        >>> action = [Variable.continuous(f"action {i}") for i in range(3)]
        >>> schema = Schema((*action, Variable.continuous("seen", context=True)))
        >>> network = StatePath(schema, width=8, hidden=16, blocks=1)
        >>> given = torch.tensor([[False, True, False]])
        >>> network(torch.zeros(1, 4), query=~given, given=given, rank=torch.arange(3)).target
        tensor([0, 2])
    """

    def __init__(
        self,
        schema: Schema,
        *,
        width: int = 128,
        hidden: int = 256,
        blocks: int = 4,
        decoder_blocks: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check_numbers(schema)
        self.schema = schema
        self.width, self.hidden = check_count("width", width), check_count("hidden", hidden)
        self.blocks = check_count("blocks", blocks)
        self.decoder_blocks = check_count("decoder_blocks", decoder_blocks)
        self.dropout = dropout
        num_variables = schema.num_variables
        self.enter = nn.Linear(len(schema) - num_variables, hidden)
        self.trunk = nn.ModuleList(ResidualBlock(hidden, dropout) for _ in range(blocks))
        self.trunk_norm = nn.LayerNorm(hidden)
        # These two keep their names, which stand in saved weights.
        self.say = nn.Linear(hidden, num_variables * width)
        self.told = nn.Linear(2 * num_variables, width, bias=False)
        self.decoder = nn.ModuleList(ResidualBlock(width, dropout) for _ in range(decoder_blocks))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Returns the features of every factor; see `PathNetwork.forward`."""
        path, num_queried = path_lists(query, rank)
        row, step = edge_places(num_queried)
        target = path[row, step]
        ranks = rank.expand_as(query)
        before = ranks[row] < ranks[row, target][:, None]
        known = given[row] | (query[row] & before)
        values = self._numbers(x[:, : query.shape[1]])[row].masked_fill(~known, 0)
        features = self._decode(self._encode_state(x)[row, target], values, known)
        return PathFeatures(features, row, step, target)

    def encode(self, x: Tensor, given: Tensor) -> ActionState:
        """Encodes the state; see `PathNetwork.encode`."""
        values = self._numbers(x[:, : given.shape[1]]).masked_fill(~given, 0)
        return ActionState(self._encode_state(x), values, given)

    def ask(self, state: ActionState, variables: Tensor) -> Tensor:
        """Returns features of variables; see `PathNetwork.ask`."""
        variables = variables.expand(len(state.known), -1)
        encoded = pick(state.encoded, variables)
        return self._decode(encoded, state.values[:, None], state.known[:, None])

    def tell(self, state: ActionState, variables: Tensor, values: Tensor) -> ActionState:
        """Stores known values; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        state.values = state.values.scatter(1, variables, self._numbers(values))
        state.known = state.known.scatter(1, variables, True)
        return state

    def _encode_state(self, x: Tensor) -> Tensor:
        """Returns the trunk's vector of each dimension. Shape ``(batch, vars, width)``."""
        hidden = self.enter(self._numbers(x[:, self.schema.num_variables :]))
        for block in self.trunk:
            hidden = block(hidden)
        return self.say(self.trunk_norm(hidden)).unflatten(-1, (-1, self.width))

    def _decode(self, encoded: Tensor, values: Tensor, known: Tensor) -> Tensor:
        """Returns the features of factors.

        Args:
            encoded: Trunk's vector of the queried dimension. Shape ``(..., width)``.
            values: Known values, zero elsewhere. Shape ``(..., vars)``.
            known: True for known values. Shape ``(..., vars)``.
        """
        hidden = encoded + self.told(torch.cat([values, known.to(values)], dim=-1))
        for block in self.decoder:
            hidden = block(hidden)
        return self.norm(hidden)

    def _numbers(self, values: Tensor) -> Tensor:
        return values.to(self.enter.weight.dtype)


def _check_numbers(schema: Schema) -> None:
    if any(variable.kind != "continuous" for variable in schema):
        raise SchemaError("This network takes numbers only: all variables must be continuous.")
    if len(schema) == schema.num_variables:
        raise SchemaError(
            "This network reads a state: the schema must hold a variable with context=True."
        )
