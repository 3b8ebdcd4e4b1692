"""What a model of images is made of: its path network, and the canonical order of its pixels."""

from typing import Any, Literal, get_args

from torch import Tensor

from anyorder.data.image import Shape
from anyorder.errors import check_choice
from anyorder.networks.contracts import PathNetwork
from anyorder.networks.patch_path import PatchPathTransformer
from anyorder.networks.path_transformer import PathTransformer
from anyorder.protocols import channel_interleaved, patch_major, raster, strided
from anyorder.variables import Schema

Order = Literal["interleaved", "raster", "strided"]


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
