"""What a model of images is made of: its path network, and the canonical order of its pixels."""

from typing import Any, Literal, get_args

from torch import Tensor

from anyorder.data.image import Shape
from anyorder.errors import ConfigError, check_choice
from anyorder.networks.contracts import PathNetwork
from anyorder.networks.patch_path import PatchPathTransformer
from anyorder.networks.path_transformer import PathTransformer
from anyorder.protocols import channel_interleaved, patch_major, raster, strided
from anyorder.variables import Schema

Order = Literal["interleaved", "raster", "strided"]

MAX_TOKENS = 4096
"""64x64 in grey: attention over so many, in a batch of 16 and 4 heads, is 4 GB a block."""

MAX_VARIABLES = 256 * 256
"""In patches: a logit for each of 256 levels of so many, in a batch of 16, is 1 GB a copy."""


def check_affordable(shape: Shape | tuple[int, int, int], patch: int | None) -> None:
    """Refuses images that would fill the memory, before anything is made for them."""
    height, width, channels = shape
    variables = height * width * channels
    tokens = variables if patch is None else height * width // patch**2
    if variables <= MAX_VARIABLES and tokens <= MAX_TOKENS:
        return
    inside = "" if patch is None else f" in {tokens:,} patches"
    raise ConfigError(
        f"Images of {height}x{width} pixels and {channels} channel(s) are {variables:,} "
        f"variables{inside}: more than {MAX_TOKENS:,}, or {MAX_VARIABLES:,} in {MAX_TOKENS:,} "
        "patches, would fill the memory. Make them smaller (`--size 32`) or read them in larger "
        "patches (`--patch 4`)."
    )


def image_network(
    schema: Schema,
    shape: Shape | tuple[int, int, int],
    *,
    layers: int,
    width: int,
    heads: int,
    patch: int | None = None,
) -> PathNetwork[Any]:
    """A path network with two-dimensional positions.

    Args:
        schema: The variables, one a pixel and channel, numbered as in `raster`.
        shape: Height, width and channels.
        layers: Blocks of the network.
        width: Of the network.
        heads: Of its attention; divides `width` into multiples of four.
        patch: The side of the patches that are its tokens; None has a token for each variable.
    """
    if patch is None:
        coordinates = pixel_coordinates(shape)
        return PathTransformer(
            schema, layers=layers, width=width, heads=heads, coordinates=coordinates
        )
    return PatchPathTransformer(
        schema,
        image_shape=tuple(shape),
        patch=patch,
        trunk_layers=layers,
        trunk_width=width,
        trunk_heads=heads,
        width=width,
        heads=heads,
    )


def image_order(
    order: Order, shape: Shape | tuple[int, int, int], *, patch: int | None = None
) -> Tensor:
    """A canonical order of the variables of an image.

    Args:
        order: "interleaved", "raster", or "strided", in rounds of every few pixels: half a row
            apart, where the paper's are a row or more.
        shape: Height, width and channels.
        patch: The side of the patches that are walked one after another, if any.
    """
    check_choice("order", order, get_args(Order))
    height, width, channels = shape
    if patch is not None:
        return patch_major(height, width, channels, patch=patch)
    if order == "strided":
        return strided(height * width * channels, max(2, width // 2))
    return (raster if order == "raster" else channel_interleaved)(height, width, channels)


def pixel_coordinates(shape: Shape | tuple[int, int, int]) -> list[tuple[int, int]]:
    """The row and the column of each variable, for rotary positions."""
    height, width, channels = shape
    return [
        (row, column) for _ in range(channels) for row in range(height) for column in range(width)
    ]
