"""What the Transformers share: rotary positions and the pre-LN block.

A block is given as three verbs instead of one ``forward``, because the networks differ only in who
attends to whom: make queries, make keys and values, update the residual stream with what was
attended. The path network makes keys for some tokens only, and none of the three for tokens that
nothing reads any more.

Dropout that costs a CPU little: a byte of chance a number, eight of them to a draw.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError, check_count

BYTE = 256


class Dropout(nn.Dropout):
    """PyTorch's dropout; on a CPU the share is rounded to 1/256.

    Masks are then drawn in a fraction of the time, which is a tenth of a step of a table's network.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Some numbers set to zero, the others raised so that the mean stays, in training."""
        if not self.training:
            return input
        threshold = round(BYTE * self.p)
        if input.device.type != "cpu" or not 0 < threshold < BYTE:
            return super().forward(input)
        draws = torch.empty(-(-input.numel() // 8), dtype=torch.int64)
        # From the least of all numbers on, so that all 64 bits are random.
        draws.random_(torch.iinfo(torch.int64).min, None)
        kept = draws.view(torch.uint8)[: input.numel()].view(input.shape) >= threshold
        return input * kept.to(input.dtype).mul_(BYTE / (BYTE - threshold))


# Longest wavelength of the rotary positions is 2 pi times this (Su et al., 2021).
ROTARY_BASE = 10_000.0
MLP_RATIO = 4


def check_shape(layers: int, width: int, heads: int, *, part: str = "") -> None:
    """Refuses a network without blocks, or whose heads do not share its width.

    The names of the arguments of a part of a network begin with `part`.
    """
    for name, value in (("layers", layers), ("width", width), ("heads", heads)):
        check_count(part + name, value)
    if width % heads:
        raise ConfigError(f"`{part}heads` must divide `{part}width`; got {heads} and {width}.")


class Rotary(nn.Module):
    r"""Rotary positions: attention depends on where two variables are relative to each other.

    Channel pair f of a query or key of variable i is turned by the angle ``coordinate(i) *
    frequency(f)``. Several axes (row and column of an image) share the pairs among them. One more
    position, ``nowhere``, is not turned at all: it is for tokens that belong to no variable.

    Args:
        num_variables: How many variables there are.
        coordinates: Where each variable is, ``(vars,)`` or ``(vars, axes)``; its index by default.
        head_dim: Channels of a head, a multiple of ``2 * axes``.

    Reference:
        Su et al. (2021), RoFormer. With absolute positions alone a path network learns marginals
        well and conditionals badly, because evidence is found by where it is relative to the
        question.
    """

    def __init__(
        self, num_variables: int, coordinates: Sequence[Any] | None = None, *, head_dim: int
    ) -> None:
        super().__init__()
        places = torch.arange(num_variables) if coordinates is None else torch.tensor(coordinates)
        if len(places) != num_variables:
            raise ConfigError(
                f"`coordinates` must say where each of {num_variables} variables is; "
                f"got {len(places)} places."
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
        self.nowhere = num_variables
        # Angles, not complex turns: a change of the module's dtype would drop the imaginary part.
        self.register_buffer(
            "angle", torch.cat([angle, angle.new_zeros(1, head_dim // 2)]), persistent=False
        )

    def forward(self, variables: Tensor) -> Tensor:
        """Turns, complex, of each variable. Shape ``variables.shape + (1, head_dim / 2)``."""
        angle = self.angle[variables].float().unsqueeze(-2)
        return torch.polar(torch.ones_like(angle), angle)


class Block(nn.Module):
    """One pre-LN Transformer block: attention, then a perceptron, added to the residual stream.

    Args:
        width: Size of the residual stream.
        heads: Attention heads; divides ``width``.
        depth: Blocks of the whole network, for the scale of what each adds at first.
        dropout: Share of each branch's output that is dropped in training.
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
        """What queries, keys and values are made of. Shape ``(batch, tokens, width)``."""
        return self.attention_norm(hidden)

    def queries(self, normed: Tensor, turn: Tensor | None = None) -> Tensor:
        """Queries, turned to their positions. Shape ``(batch, heads, tokens, head_dim)``."""
        query = self.query(normed).unflatten(-1, (self.heads, -1))
        return _rotate(query, turn).transpose(1, 2)

    def keys_values(self, normed: Tensor, turn: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys, turned to their positions, and values, both shaped like ``queries``."""
        key, value = self.key_value(normed).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        return _rotate(key, turn).transpose(1, 2), value.transpose(1, 2)

    def update(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The residual stream after attention and perceptron.

        Args:
            hidden: The residual stream. Shape ``(batch, tokens, width)``.
            attended: What its queries brought back. Shape ``(batch, heads, tokens, head_dim)``.
        """
        attended = attended.transpose(1, 2).flatten(2)  # (batch, tokens, width)
        hidden = hidden + self.dropout(self.attention_out(attended))
        inner = self.gelu(self.mlp_in(self.mlp_norm(hidden)))
        return hidden + self.dropout(self.mlp_out(inner))


def _rotate(heads: Tensor, turn: Tensor | None) -> Tensor:
    """Turns channel pairs by one complex product, half the time of the real formula on a CPU."""
    if turn is None:
        return heads
    pairs = heads.to(torch.promote_types(heads.dtype, torch.float32)).unflatten(-1, (-1, 2))
    return torch.view_as_real(torch.view_as_complex(pairs) * turn).flatten(-2).type_as(heads)
