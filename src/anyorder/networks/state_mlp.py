"""The masked network for robots: plain numbers in, because a state is measured, not described."""

import torch
from torch import Tensor

from anyorder.errors import SchemaError
from anyorder.networks.perceptron import Perceptron
from anyorder.variables import Schema


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
