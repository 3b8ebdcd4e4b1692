"""Masked Transformer: features of all variables given any observed set, the network of ARDM.

One token a variable, its value if it is observed and the absorbing token if not; all tokens attend
to all. A query of |u| variables takes |u| passes, one for each step of its path. The absorbing
token exists at the input only: the heads never predict it.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.errors import check_choice
from anyorder.networks.blocks import Block, Rotary, VariableEmbedding, check_shape
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.paths import mask_unread, pick
from anyorder.variables import Schema

Positions = Literal["absolute", "rotary", "both"]


class Transformer(MaskedNetwork):
    r"""Masked Transformer with pre-LN blocks: the paper's network for text.

    Args:
        schema: Variables; context comes last.
        layers: Number of blocks (12 in the paper).
        width: Size of the features (768 in the paper).
        heads: Number of attention heads; must divide ``width`` (12 in the paper).
        positions: "absolute", a learned embedding of each variable, as in the paper; "rotary",
            which rotates queries and keys by the variables' coordinates; or "both".
        coordinates: Position of each variable, for rotary positions; its index by default.
            Shape ``(vars,)`` or ``(vars, axes)``.
        shared: True lets variables with the same levels share the embeddings of their values.
        dropout: Dropout rate of each branch's output.

    Reference:
        Shih, Sadigh and Ermon (2022), section 4.1 and appendix D; the architecture follows
        Hoogeboom et al. (2022), ARDM.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        positions: Positions = "absolute",
        coordinates: Sequence[Any] | None = None,
        shared: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("positions", positions, get_args(Positions))
        check_shape(layers, width, heads)
        self.schema = schema
        self.layers, self.width, self.heads = layers, width, heads
        self.positions, self.coordinates = positions, coordinates
        self.shared, self.dropout = shared, dropout
        self.embedding = VariableEmbedding(
            schema, width=width, variables=positions != "rotary", shared=shared
        )
        self.rotary = None
        if positions != "absolute":
            self.rotary = Rotary(schema.num_variables, coordinates, head_dim=width // heads)
        self.blocks = nn.ModuleList(
            Block(width=width, heads=heads, depth=layers, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns features of all variables, or of `targets`; see `MaskedNetwork.forward`."""
        variables = torch.arange(observed.shape[1], device=x.device)
        x = mask_unread(x, observed)
        values = self.embedding.value_tokens(x[:, : len(variables)], variables)
        hidden = torch.where(observed[..., None], values, self.embedding.query_tokens(variables))
        hidden = torch.cat([hidden, self.embedding.context_tokens(x)], dim=1)
        key_rotation = query_rotation = None
        if self.rotary is not None:
            beyond = hidden.shape[1] - len(variables)  # the context has no position
            positions = F.pad(variables, (0, beyond), value=self.rotary.no_position)
            key_rotation = query_rotation = self.rotary(positions)
        for block in self.blocks:
            normed = block.normalise(hidden)
            keys, values = block.keys_values(normed, key_rotation)
            if block is self.blocks[-1] and targets is not None:
                # Only the targets attend in the last block.
                hidden, normed = (pick(tensor, targets) for tensor in (hidden, normed))
                query_rotation = self.rotary(targets) if self.rotary is not None else None
            queries = block.queries(normed, query_rotation)
            attended = F.scaled_dot_product_attention(queries, keys, values)
            hidden = block.update(hidden, attended)
        return self.norm(hidden if targets is not None else hidden[:, : len(variables)])
