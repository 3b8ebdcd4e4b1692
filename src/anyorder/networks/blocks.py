"""Parts that the Transformers share: the pre-LN block, rotary positions and dropout.

A block has three methods instead of one ``forward``, because the networks differ only in which
token attends to which: make queries, make keys and values, update the residual stream with the
result of attention. A path network makes keys for some tokens only, and skips all three for tokens
that nothing reads any more.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError, check_count

MLP_RATIO = 4
"""Width of the block's perceptron, relative to the residual stream."""

ROTARY_BASE = 10_000.0
"""Longest wavelength of the rotary positions, divided by 2 pi (Su et al., 2021)."""

BYTE = 256
"""Values of a byte: the resolution of `Dropout` on a CPU."""


class Block(nn.Module):
    """Pre-LN Transformer block: attention, then a perceptron, added to the residual stream.

    Args:
        width: Size of the residual stream.
        heads: Number of attention heads; must divide ``width``.
        depth: Number of blocks of the network, for the initial scale of each branch.
        dropout: Dropout rate of each branch's output.
    """

    def __init__(self, *, width: int, heads: int, depth: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, MLP_RATIO * width)
        self.mlp_out = nn.Linear(MLP_RATIO * width, width)
        self.gelu = nn.GELU()
        self.dropout = Dropout(dropout)
        self._initialise(depth)

    def _initialise(self, depth: int) -> None:
        for linear in (self.query, self.key_value, self.attention_out, self.mlp_in, self.mlp_out):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        with torch.no_grad():  # the sum of 2 * depth branches then starts at the scale of one
            self.attention_out.weight.mul_((2 * depth) ** -0.5)
            self.mlp_out.weight.mul_((2 * depth) ** -0.5)

    def normalise(self, hidden: Tensor) -> Tensor:
        """Returns the input of queries, keys and values. Shape ``(batch, tokens, width)``."""
        return self.attention_norm(hidden)

    def queries(self, normed: Tensor, rotation: Tensor | None = None) -> Tensor:
        """Returns rotated queries. Shape ``(batch, heads, tokens, head_dim)``."""
        query = self.query(normed).unflatten(-1, (self.heads, -1))
        return _rotate(query, rotation).transpose(1, 2)

    def keys_values(self, normed: Tensor, rotation: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns rotated keys, and values, both shaped like ``queries``."""
        key, value = self.key_value(normed).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        return _rotate(key, rotation).transpose(1, 2), value.transpose(1, 2)

    def update(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Returns the residual stream after attention and perceptron.

        Args:
            hidden: Residual stream. Shape ``(batch, tokens, width)``.
            attended: Output of attention. Shape ``(batch, heads, tokens, head_dim)``.
        """
        attended = attended.transpose(1, 2).flatten(2)  # (batch, tokens, width)
        hidden = hidden + self.dropout(self.attention_out(attended))
        inner = self.gelu(self.mlp_in(self.mlp_norm(hidden)))
        return hidden + self.dropout(self.mlp_out(inner))


def _rotate(heads: Tensor, rotation: Tensor | None) -> Tensor:
    """Rotates channel pairs by one complex product: half the time of the real form on a CPU."""
    if rotation is None:
        return heads
    pairs = heads.to(torch.promote_types(heads.dtype, torch.float32)).unflatten(-1, (-1, 2))
    return torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2).type_as(heads)


class Rotary(nn.Module):
    r"""Rotary positions: attention depends on the relative positions of two variables.

    Channel pair f of a query or key of variable i is rotated by the angle ``coordinate(i) *
    frequency(f)``. Several axes (row and column of an image) share the pairs. One more position,
    ``no_position``, has angle zero: it is for tokens that belong to no variable.

    Args:
        num_variables: Number of variables.
        coordinates: Position of each variable, ``(vars,)`` or ``(vars, axes)``; its index by
            default.
        head_dim: Channels of a head, a multiple of ``2 * axes``.

    Reference:
        Su et al. (2021), RoFormer. With absolute positions alone a path network learns marginals
        well and conditionals badly, because it finds evidence by its position relative to the
        query.
    """

    def __init__(
        self, num_variables: int, coordinates: Sequence[Any] | None = None, *, head_dim: int
    ) -> None:
        super().__init__()
        places = torch.arange(num_variables) if coordinates is None else torch.tensor(coordinates)
        if len(places) != num_variables:
            raise ConfigError(
                f"`coordinates` must hold a position of each of {num_variables} variables; "
                f"got {len(places)} positions."
            )
        places = places.reshape(num_variables, -1).float()  # (vars, axes)
        axes = places.shape[1]
        if head_dim % (2 * axes):
            raise ConfigError(
                f"`width` / `heads` must be a multiple of {2 * axes} with {axes} axes; "
                f"got {head_dim}."
            )
        pairs = head_dim // (2 * axes)
        frequency = ROTARY_BASE ** -(torch.arange(pairs) / pairs)
        angle = (places[:, :, None] * frequency).flatten(1)  # (vars, head_dim / 2)
        self.no_position = num_variables
        # Angles, not complex numbers: a change of the module's dtype drops an imaginary part.
        self.register_buffer(
            "angle", torch.cat([angle, angle.new_zeros(1, head_dim // 2)]), persistent=False
        )

    def forward(self, variables: Tensor) -> Tensor:
        """Returns complex rotations. Shape ``variables.shape + (1, head_dim / 2)``."""
        angle = self.angle[variables].float().unsqueeze(-2)
        return torch.polar(torch.ones_like(angle), angle)


class Dropout(nn.Dropout):
    """Dropout that is cheap on a CPU, where its rate is rounded to a multiple of 1/256.

    A mask takes one random byte a number instead of one float. This saves about a tenth of a
    training step of a table's network.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Returns `input` with random entries set to zero and the rest rescaled, in training."""
        if not self.training:
            return input
        threshold = round(BYTE * self.p)
        if input.device.type != "cpu" or not 0 < threshold < BYTE:
            return super().forward(input)
        words = torch.empty(-(-input.numel() // 8), dtype=torch.int64)
        words.random_(torch.iinfo(torch.int64).min, None)  # over the full range: 64 random bits
        kept = words.view(torch.uint8)[: input.numel()].view(input.shape) >= threshold
        return input * kept.to(input.dtype).mul_(BYTE / (BYTE - threshold))


def check_shape(layers: int, width: int, heads: int, *, part: str = "") -> None:
    """Refuses sizes below 1, and a `width` that is no multiple of `heads`.

    Args:
        layers: Number of blocks.
        width: Size of the residual stream.
        heads: Number of attention heads.
        part: Prefix of these names in error messages, such as "trunk_".
    """
    for name, value in (("layers", layers), ("width", width), ("heads", heads)):
        check_count(part + name, value)
    if width % heads:
        raise ConfigError(f"`{part}heads` must divide `{part}width`; got {heads} and {width}.")
