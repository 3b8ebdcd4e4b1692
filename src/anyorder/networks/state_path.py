"""The one-pass network for robots: a trunk reads the state, a small decoder walks the action."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from anyorder.errors import SchemaError, check_count
from anyorder.networks.contracts import PathFeatures, PathNetwork
from anyorder.networks.paths import edge_places, path_lists
from anyorder.networks.residual_mlp import ResidualBlock
from anyorder.variables import Schema


@dataclass
class StateSeen:
    """What the trunk says of every dimension, and what is known of the action so far."""

    said: Tensor  # (batch, vars, width)
    values: Tensor  # (batch, vars) zero where nothing is known
    known: Tensor  # (batch, vars)
    draws: int = 1  # of each row, neighbours in the batch

    def expand(self, draws: int) -> "StateSeen":
        """The state of `draws` continuations of each row, neighbours in the batch."""
        every = torch.arange(len(self.known), device=self.known.device)
        return replace(self._at(every.repeat_interleave(draws)), draws=self.draws * draws)

    def select(self, rows: Tensor) -> "StateSeen":
        """The state of some of the rows, with all their draws."""
        draws = torch.arange(self.draws, device=rows.device)
        return self._at((rows[:, None] * self.draws + draws).flatten())

    def _at(self, batch: Tensor) -> "StateSeen":
        said, values, known = self.said[batch], self.values[batch], self.known[batch]
        return StateSeen(said, values, known, self.draws)


class StatePath(PathNetwork[StateSeen]):
    r"""Every factor of p(a_u | a_e, s) from one pass over the state.

    The *trunk*, wide and deep, sees all numbers of the state and gives a vector to each dimension
    of the action. The *decoder*, narrow and shallow, runs once for each factor: it adds to the
    vector of the dimension that is asked the values that are known by then, and which ones they
    are. A decision of nine dimensions so costs one pass of the trunk and not nine.

    What is known is a set, told or given: a factor does not depend on the order of the path, so
    conditionals that are asked one by one and walks agree.

    Args:
        schema: Continuous variables; the state is their context.
        width: Size of the features, and of the decoder.
        hidden: Width of the trunk.
        blocks: Residual blocks of the trunk, two layers each.
        decoder_blocks: Residual blocks of the decoder.
        dropout: Share of each block's output that is dropped in training.

    Reference:
        Shih, Sadigh and Ermon (2022), Alg. 1 and 2, without a loop of passes; their perceptron for
        FrankaKitchen (appendix) is the trunk.

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
        asked = schema.num_variables
        self.enter = nn.Linear(len(schema) - asked, hidden)
        self.trunk = nn.ModuleList(ResidualBlock(hidden, dropout) for _ in range(blocks))
        self.trunk_norm = nn.LayerNorm(hidden)
        self.say = nn.Linear(hidden, asked * width)
        self.told = nn.Linear(2 * asked, width, bias=False)
        self.decoder = nn.ModuleList(ResidualBlock(width, dropout) for _ in range(decoder_blocks))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Features of every factor; see `PathNetwork.forward`."""
        path, num_asked = path_lists(query, rank)
        row, step = edge_places(num_asked)
        target = path[row, step]
        ranks = rank.expand_as(query)
        before = ranks[row] < ranks[row, target][:, None]
        known = given[row] | (query[row] & before)
        values = self._numbers(x[:, : query.shape[1]])[row].masked_fill(~known, 0)
        features = self._decode(self._read(x)[row, target], values, known)
        return PathFeatures(features, row, step, target)

    def encode(self, x: Tensor, given: Tensor) -> StateSeen:
        """Reads the state; see `PathNetwork.encode`."""
        values = self._numbers(x[:, : given.shape[1]]).masked_fill(~given, 0)
        return StateSeen(self._read(x), values, given)

    def ask(self, state: StateSeen, variables: Tensor) -> Tensor:
        """Features of variables; see `PathNetwork.ask`."""
        variables = variables.expand(len(state.known), -1)
        said = state.said.gather(1, variables[..., None].expand(-1, -1, self.width))
        return self._decode(said, state.values[:, None], state.known[:, None])

    def tell(self, state: StateSeen, variables: Tensor, values: Tensor) -> StateSeen:
        """Takes known values; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        state.values = state.values.scatter(1, variables, self._numbers(values))
        state.known = state.known.scatter(1, variables, True)
        return state

    def _read(self, x: Tensor) -> Tensor:
        """What the state says of each dimension. Shape ``(batch, vars, width)``."""
        hidden = self.enter(self._numbers(x[:, self.schema.num_variables :]))
        for block in self.trunk:
            hidden = block(hidden)
        return self.say(self.trunk_norm(hidden)).unflatten(-1, (-1, self.width))

    def _decode(self, said: Tensor, values: Tensor, known: Tensor) -> Tensor:
        """The features of factors, from what the state says of the dimension that is asked.

        Args:
            said: Shape ``(..., width)``.
            values: Zero where nothing is known. Shape ``(..., vars)``.
            known: Shape ``(..., vars)``.
        """
        hidden = said + self.told(torch.cat([values, known.to(values)], dim=-1))
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
