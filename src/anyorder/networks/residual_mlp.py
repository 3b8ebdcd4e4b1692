"""The layers of masked perceptrons: what they are shown is their own, all else is the same.

The masked network for tables: a perceptron with residual blocks over all columns at once.

The masked network for robots: plain numbers in, because a state is measured, not described.
"""

import torch
from torch import Tensor, nn

from anyorder.errors import SchemaError, check_count
from anyorder.networks.blocks import Dropout
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.embedding import VariableEmbedding
from anyorder.networks.paths import read_only
from anyorder.variables import Schema


class Perceptron(MaskedNetwork):
    """Residual blocks, off which every variable reads its features.

    Args:
        schema: The variables.
        width: Size of the features of each variable.
        hidden: Width of the residual stream.
        blocks: Residual blocks, two layers each.
        dropout: Share of each block's output that is dropped in training.
    """

    def __init__(
        self, schema: Schema, *, width: int, hidden: int, blocks: int, dropout: float
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("hidden", hidden), ("blocks", blocks)):
            check_count(name, value)
        self.schema, self.width = schema, width
        self.hidden, self.blocks, self.dropout = hidden, blocks, dropout

    def build(self, *, inputs: int) -> None:
        """Makes the layers, for so many numbers that they are shown."""
        self.enter = nn.Linear(inputs, self.hidden)
        inner = (ResidualBlock(self.hidden, self.dropout) for _ in range(self.blocks))
        self.inner = nn.ModuleList(inner)
        self.norm = nn.LayerNorm(self.hidden)
        self.leave = nn.Linear(self.hidden, self.schema.num_variables * self.width)

    def features(self, shown: Tensor, targets: Tensor | None) -> Tensor:
        """The features of all variables, or of `targets`, from what is shown.

        Args:
            shown: Shape ``(batch, inputs)``.
            targets: Shape ``(batch, targets)``, or None.

        Returns:
            Shape ``(batch, vars, width)`` or ``(batch, targets, width)``.
        """
        hidden = self.enter(shown)
        for block in self.inner:
            hidden = block(hidden)
        features = self.leave(self.norm(hidden)).unflatten(-1, (self.schema.num_variables, -1))
        if targets is None:
            return features
        return features.gather(1, targets[..., None].expand(-1, -1, self.width))


class ResidualBlock(nn.Module):
    """Norm, two layers, and what came in."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.first = nn.Linear(hidden, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """The residual stream after the block. Shape ``(batch, hidden)``."""
        inner = nn.functional.gelu(self.first(self.norm(hidden)))
        return hidden + self.dropout(self.second(inner))


INNER = 16
"""Numbers that each variable is shown in."""


class ResidualMlp(Perceptron):
    r"""Features of every variable given any observed set: the shape of ACE's networks.

    Each variable is a short vector, its value if it is observed and a blank if not; side by side
    they go through residual blocks, and every variable reads its features off the last one. A pass
    costs little and a question of |u| variables takes |u| of them.

    Args:
        schema: The variables.
        width: Size of the features of each variable.
        hidden: Width of the residual stream.
        blocks: Residual blocks.
        dropout: Share of each block's output that is dropped in training.

    Reference:
        Strauss and Oliva (2021), whose networks the paper uses for its tables and its robot.
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
        super().__init__(schema, width=width, hidden=hidden, blocks=blocks, dropout=dropout)
        self.embedding = VariableEmbedding(schema, width=INNER, shared=False)
        # A lone number is not normalised before it is read, as a token of a Transformer is.
        nn.init.normal_(self.embedding.value.weight)
        shown = schema.num_variables + self.embedding.context.num_tokens
        self.build(inputs=shown * (INNER + 1))

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        """Features of all variables, or of `targets`; see `MaskedNetwork.forward`."""
        variables = torch.arange(observed.shape[1], device=x.device)
        x = read_only(x, observed)
        told = self.embedding.told(x[:, : len(variables)], variables)
        shown = torch.where(observed[..., None], told, self.embedding.asked(variables))
        shown = torch.cat([shown, self.embedding.context_tokens(x)], dim=1)
        always = shown.shape[1] - len(variables)
        seen = nn.functional.pad(observed, (0, always), value=True).to(shown)
        return self.features(torch.cat([shown.flatten(1), seen], dim=1), targets)


class StateMlp(Perceptron):
    r"""Features of every dimension of an action, given some of them and the state.

    The first layer sees the observed dimensions, which ones they are, and all numbers of the state.
    `ResidualMlp` encodes a context into a few tokens first, which suits a table; a controller needs
    every digit of where its joints are.

    Args:
        schema: Continuous variables; the state is their context.
        width: Size of the features of each variable.
        hidden: Width of the residual stream.
        blocks: Residual blocks, two layers each.
        dropout: Share of each block's output that is dropped in training.

    Reference:
        Shih, Sadigh and Ermon (2022), appendix, FrankaKitchen: a perceptron of eight layers.
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
        super().__init__(schema, width=width, hidden=hidden, blocks=blocks, dropout=dropout)
        if any(variable.kind != "continuous" for variable in schema):
            raise SchemaError("This network takes numbers only: all variables must be continuous.")
        self.build(inputs=len(schema) + schema.num_variables)

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        """Features of all variables, or of `targets`; see `MaskedNetwork.forward`."""
        asked = observed.shape[1]
        told = x[:, :asked].masked_fill(~observed, 0)
        return self.features(torch.cat([told, observed.to(told), x[:, asked:]], dim=1), targets)
