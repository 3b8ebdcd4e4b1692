"""The layers of masked perceptrons: what they are shown is their own, all else is the same."""

from torch import Tensor, nn

from anyorder.errors import check_count
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.dropout import Dropout
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
