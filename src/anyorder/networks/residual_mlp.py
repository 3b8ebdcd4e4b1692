"""The masked network for tables: a perceptron with residual blocks over all columns at once."""

import torch
from torch import Tensor, nn

from anyorder.networks.embedding import VariableEmbedding
from anyorder.networks.paths import read_only
from anyorder.networks.perceptron import Perceptron
from anyorder.variables import Schema

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
