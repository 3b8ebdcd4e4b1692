"""U-Net: masked network for images, with convolutions and attention at full resolution.

It is the paper's network for CIFAR-10 and ImageNet32 (section 4.2), which follows ARDM. Variables
are numbered channel by channel, each row by row, as in `raster` and `Rectangle`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from anyorder.errors import ConfigError, SchemaError, check_count, check_flag
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.paths import pick
from anyorder.variables import Schema

GROUP = 8
"""Channels of a group of `GroupNorm`: a width of 256 has the 32 groups of the paper."""

CARDINALITY_RATIO = 4
"""Width of the cardinality embedding, relative to the features."""


class Unet(MaskedNetwork):
    r"""U-Net over any observed set: the paper's network for images.

    This U-Net never downsamples: blocks go down, through a middle, and up again. Each block on the
    way up also reads a skip connection from the way down, the latest first; these are the first
    hidden image and the output of each block, so there is one more block up than down. Attention
    over all pixels follows every block. A query of |u| variables takes |u| passes.

    Args:
        schema: Categorical variables, all with the same number of levels.
        image_shape: Height, width and channels of an image (32, 32 and 3 in the paper).
        down: Number of blocks on the way down (32 in the paper, hence 33 up).
        middle: Number of blocks in the middle (2 in the paper).
        width: Size of the features, and channels of every block (256 in the paper); a multiple of
            8, and of ``heads``.
        heads: Number of attention heads (1 in the paper).
        checkpointing: True stores only the inputs of blocks in training and recomputes the rest in
            the backward pass: a third more work for a fraction of the memory.

    Reference:
        Shih, Sadigh and Ermon (2022), section 4.2 and appendix D; the architecture follows
        Hoogeboom et al. (2022), ARDM.

    Example:
        >>> from anyorder.variables import Variable
        >>> schema = Schema([Variable.categorical(f"pixel{i}", range(16)) for i in range(12)])
        >>> network = Unet(schema, image_shape=(2, 3, 2), down=1, middle=1, width=8)
        >>> x, observed = torch.zeros(5, 12).long(), torch.rand(5, 12) < 0.5
        >>> network(x, observed).shape
        torch.Size([5, 12, 8])
    """

    def __init__(
        self,
        schema: Schema,
        *,
        image_shape: Sequence[int],
        down: int = 32,
        middle: int = 2,
        width: int = 256,
        heads: int = 1,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("down", down), ("middle", middle), ("heads", heads)):
            check_count(name, value)
        if check_count("width", width) % GROUP or width % heads:
            raise ConfigError(
                f"`width` must be a multiple of {GROUP} and of `heads`; got {width} and {heads}."
            )
        levels = _common_levels(schema)
        self.schema, self.image_shape = schema, _checked_shape(image_shape, schema.num_variables)
        self.down, self.middle, self.width, self.heads = down, middle, width, heads
        self.checkpointing = check_flag("checkpointing", checkpointing)
        self.pixels = PixelEmbedding(self.image_shape, levels=levels, width=width)
        self.cardinality = CardinalityEmbedding(schema.num_variables, width=width)
        self.descent = nn.ModuleList(UnetBlock(width, heads=heads) for _ in range(down))
        self.bottom = nn.ModuleList(UnetBlock(width, heads=heads) for _ in range(middle))
        self.ascent = nn.ModuleList(
            UnetBlock(width, heads=heads, skips=True) for _ in range(down + 1)
        )
        self.norm = nn.GroupNorm(width // GROUP, width)
        self.leave = nn.Conv2d(width, self.image_shape[2] * width, 3, padding=1)

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns features of all variables, or of `targets`; see `MaskedNetwork.forward`."""
        cardinality = self.cardinality(observed.sum(dim=1))
        hidden = self.pixels(x, observed)
        skips = [hidden]
        for block in self.descent:
            hidden = self._through(block, hidden, cardinality)
            skips.append(hidden)
        for block in self.bottom:
            hidden = self._through(block, hidden, cardinality)
        for block in self.ascent:
            hidden = self._through(block, hidden, cardinality, skips.pop())
        features = self.leave(F.silu(self.norm(hidden)))
        features = features.unflatten(1, (-1, self.width)).flatten(3)
        features = features.transpose(2, 3).flatten(1, 2)  # (batch, vars, width)
        return features if targets is None else pick(features, targets)

    def _through(self, block: nn.Module, *inputs: Tensor) -> Tensor:
        if not self.checkpointing or not torch.is_grad_enabled():
            return block(*inputs)
        # Blocks are deterministic, so there is no random state to preserve.
        return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=False)


class PixelEmbedding(nn.Module):
    """Embedding of an image and its observed set: the first hidden image.

    Three quarters of the channels are a convolution of the values, scaled to -1..1, and of the
    observed set. One quarter is the sum of embeddings of the levels of a pixel's channels. A value
    that is not observed is a level of its own, which no head predicts.
    """

    def __init__(self, image_shape: tuple[int, int, int], *, levels: int, width: int) -> None:
        super().__init__()
        height, columns, channels = image_shape
        self.planes, self.levels = (channels, height, columns), levels
        self.shades = nn.Conv2d(2 * channels, width - width // 4, 3, padding=1)
        self.level = nn.Embedding(channels * (levels + 1), width // 4)
        nn.init.normal_(self.level.weight, std=channels**-0.5)  # the sum has scale 1
        first = (levels + 1) * torch.arange(channels)
        self.register_buffer("first", first[:, None, None], persistent=False)

    def forward(self, x: Tensor, observed: Tensor) -> Tensor:
        """Returns the first hidden image. Shape ``(batch, width, height, columns)``."""
        # From here on, no unobserved value is left.
        codes = x.long().masked_fill(~observed, self.levels).unflatten(1, self.planes)
        known = observed.unflatten(1, self.planes).to(self.level.weight.dtype)
        values = known * (2 * codes.to(known) / max(self.levels - 1, 1) - 1)
        levels = self.level(self.first + codes).sum(dim=1)  # (batch, height, columns, width / 4)
        shades = self.shades(torch.cat([values, known], dim=1))
        return torch.cat([shades, levels.movedim(-1, 1)], dim=1)


class CardinalityEmbedding(nn.Module):
    """Embedding of the number of observed variables, which every block reads.

    Sines and cosines of the number, then a perceptron. The longest wavelength is 2 pi N, so that
    all numbers differ.
    """

    def __init__(self, num_variables: int, *, width: int) -> None:
        super().__init__()
        frequency = float(num_variables) ** -torch.linspace(0, 1, width // 2)
        angle = torch.arange(num_variables + 1)[:, None] * frequency
        # Precomputed, because half precision cannot represent such angles.
        waves = torch.cat([angle.sin(), angle.cos()], dim=1)
        self.register_buffer("waves", waves, persistent=False)
        hidden = CARDINALITY_RATIO * width
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()
        )

    def forward(self, cardinality: Tensor) -> Tensor:
        """Returns embeddings of cardinalities ``(batch,)``. Shape ``(batch, 4 * width)``."""
        return self.mlp(self.waves[cardinality])


class UnetBlock(nn.Module):
    """Two convolutions, with the cardinality added between them, then attention.

    Both branches are initialised to add zero.

    With `skips`, it reads a skip connection too.
    """

    def __init__(self, width: int, *, heads: int, skips: bool = False) -> None:
        super().__init__()
        inputs = 2 * width if skips else width
        self.first_norm = nn.GroupNorm(width // GROUP, inputs)
        self.first = nn.Conv2d(inputs, width, 3, padding=1)
        self.cardinality = nn.Linear(CARDINALITY_RATIO * width, width)
        self.second_norm = nn.GroupNorm(width // GROUP, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = _join(width) if skips else nn.Identity()
        self.attention = PixelAttention(width, heads=heads)
        _start_at_zero(self.second)

    def forward(self, hidden: Tensor, cardinality: Tensor, skip: Tensor | None = None) -> Tensor:
        """Returns the image after the block. Shape ``(batch, width, height, columns)``."""
        # Concatenated in here, so that checkpointing stores no concatenated copy.
        inputs = hidden if skip is None else torch.cat([hidden, skip], dim=1)
        inner = self.first(F.silu(self.first_norm(inputs)))
        inner = inner + self.cardinality(cardinality)[..., None, None]
        hidden = self.shortcut(inputs) + self.second(F.silu(self.second_norm(inner)))
        return hidden + self.attention(hidden)


class PixelAttention(nn.Module):
    """Self-attention over all pixels."""

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(width // GROUP, width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        _start_at_zero(self.out)

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns the update of an image. Shape ``(batch, width, height, columns)``."""
        tokens = self.norm(hidden).flatten(2).transpose(1, 2)  # (batch, pixels, width)
        heads = self.query_key_value(tokens).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.transpose(1, 3).unbind(2)  # (batch, heads, pixels, head_dim)
        attended = F.scaled_dot_product_attention(query, key, value)
        attended = self.out(attended.transpose(1, 2).flatten(2))
        return attended.transpose(1, 2).unflatten(2, hidden.shape[2:])


def _join(width: int) -> nn.Conv2d:
    """Returns a layer that joins an image and a skip into one image of the same scale.

    PyTorch's initial weights would shrink it, and no gradient would pass 33 such blocks.
    """
    layer = nn.Conv2d(2 * width, width, 1)
    nn.init.normal_(layer.weight, std=layer.in_channels**-0.5)
    return layer


def _start_at_zero(layer: nn.Conv2d | nn.Linear) -> None:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)


def _checked_shape(image_shape: Sequence[int], num_variables: int) -> tuple[int, int, int]:
    names = ("height", "width", "channels")
    try:
        height, columns, channels = (
            check_count(name, value) for name, value in zip(names, image_shape, strict=True)
        )
    except (TypeError, ValueError):
        raise ConfigError(
            "`image_shape` must be three whole numbers, height, width and channels; "
            f"got {image_shape!r}."
        ) from None
    if height * columns * channels != num_variables:
        raise ConfigError(
            f"`image_shape` must have as many values as the schema has variables, {num_variables}; "
            f"got {height} x {columns} x {channels}."
        )
    return height, columns, channels


def _common_levels(schema: Schema) -> int:
    """Returns the number of levels that all variables have, and refuses other schemas."""
    common = schema.variables[0].num_levels
    for variable in schema:
        if variable.context:
            raise SchemaError(f'Unet reads no context; "{variable.name}" is a context variable.')
        if variable.kind != "categorical":
            raise SchemaError(
                f'Unet takes categorical variables; "{variable.name}" is {variable.kind}.'
            )
        if variable.num_levels != common:
            raise SchemaError(
                f'Unet takes variables with equal numbers of levels; "{variable.name}" has '
                f'{variable.num_levels} and "{schema.names[0]}" {common}.'
            )
    return common
