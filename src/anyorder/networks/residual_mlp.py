"""Masked residual perceptrons: features of all variables from one vector of inputs.

All variables enter side by side, pass through residual blocks, and leave as features of each
variable. A pass is cheap, and a query of |u| variables takes |u| of them. The two networks differ
in their inputs:

    ResidualMlp   embeddings of the variables, for tables (the networks of ACE)
    StateMlp      plain numbers, for robots: a state is measured, and every digit counts
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from anyorder.errors import SchemaError, check_count
from anyorder.networks.blocks import Dropout, VariableEmbedding
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.paths import mask_unread, pick
from anyorder.variables import Schema

EMBEDDING_WIDTH = 16
"""Size of the embedding of each variable in `ResidualMlp`."""


class Perceptron(MaskedNetwork):
    """Masked perceptron without its inputs: residual blocks and the output layer.

    Arguments are those of `ResidualMlp`.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        width: int = 64,
        hidden: int = 256,
        blocks: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("hidden", hidden), ("blocks", blocks)):
            check_count(name, value)
        self.schema, self.width = schema, width
        self.hidden, self.blocks, self.dropout = hidden, blocks, dropout
        self.enter = nn.Linear(self._make_inputs(), hidden)
        self.inner = nn.ModuleList(ResidualBlock(hidden, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(hidden)
        self.leave = nn.Linear(hidden, schema.num_variables * width)

    @abstractmethod
    def _make_inputs(self) -> int:
        """Makes what encodes the inputs, and returns their number."""

    def features(self, inputs: Tensor, targets: Tensor | None) -> Tensor:
        """Returns features of all variables, or of `targets`.

        Returns:
            Shape ``(batch, vars, width)`` or ``(batch, targets, width)``.
        """
        hidden = self.enter(inputs)
        for block in self.inner:
            hidden = block(hidden)
        features = self.leave(self.norm(hidden)).unflatten(-1, (self.schema.num_variables, -1))
        return features if targets is None else pick(features, targets)


class ResidualBlock(nn.Module):
    """Residual block: LayerNorm and two layers, added to the input."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.first = nn.Linear(hidden, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns the residual stream after the block. Shape ``(..., hidden)``."""
        inner = nn.functional.gelu(self.first(self.norm(hidden)))
        return hidden + self.dropout(self.second(inner))


class ResidualMlp(Perceptron):
    r"""Masked residual perceptron over embeddings of the variables: the network of ACE.

    The input of a variable is a short embedding, of its value if it is observed and of a blank if
    not, and a flag for observed.

    Args:
        schema: Variables; context comes last.
        width: Size of the features of each variable.
        hidden: Width of the residual stream.
        blocks: Number of residual blocks, two layers each.
        dropout: Dropout rate of each block's output.

    Reference:
        Strauss and Oliva (2021), ACE, whose networks the paper uses for its tables and its robot
        (section 4.3 and appendix D).
    """

    def _make_inputs(self) -> int:
        schema = self.schema
        self.embedding = VariableEmbedding(schema, width=EMBEDDING_WIDTH, shared=False)
        # Unit scale, because no LayerNorm precedes the first layer, as it does in a Transformer.
        nn.init.normal_(self.embedding.value.weight)
        tokens = schema.num_variables + self.embedding.context.num_tokens
        return tokens * (EMBEDDING_WIDTH + 1)

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns features of all variables, or of `targets`; see `MaskedNetwork.forward`."""
        variables = torch.arange(observed.shape[1], device=x.device)
        x = mask_unread(x, observed)
        values = self.embedding.value_tokens(x[:, : len(variables)], variables)
        tokens = torch.where(observed[..., None], values, self.embedding.query_tokens(variables))
        tokens = torch.cat([tokens, self.embedding.context_tokens(x)], dim=1)
        context = tokens.shape[1] - len(variables)
        flags = nn.functional.pad(observed, (0, context), value=True).to(tokens)
        return self.features(torch.cat([tokens.flatten(1), flags], dim=1), targets)


class StateMlp(Perceptron):
    r"""Masked residual perceptron over plain numbers: features of an action given a state.

    The input is the observed dimensions of the action, their flags, and all numbers of the state.
    `ResidualMlp` encodes a context into a few tokens first, which suits a table; a controller needs
    the exact positions of its joints.

    Arguments are those of `ResidualMlp`; all variables are continuous, the state is their context.

    Reference:
        Shih, Sadigh and Ermon (2022), section 4.4 and appendix D: a perceptron of eight layers.
    """

    def _make_inputs(self) -> int:
        if any(variable.kind != "continuous" for variable in self.schema):
            raise SchemaError("This network takes numbers only: all variables must be continuous.")
        return len(self.schema) + self.schema.num_variables

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns features of all variables, or of `targets`; see `MaskedNetwork.forward`."""
        action, state = x.tensor_split([observed.shape[1]], dim=1)
        known = action.masked_fill(~observed, 0)
        return self.features(torch.cat([known, observed.to(known), state], dim=1), targets)
