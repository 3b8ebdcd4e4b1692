"""Holes: which pixels of an image are unknown, to be painted in.

A hole is a boolean array ``(height, width)``, True = unknown. It goes through all channels of a
pixel, so that `hole_query` makes the same set of variables of each.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.data.image import Shape, Size, check_size
from anyorder.data.image_files import check_depth, check_picture_file, decoded
from anyorder.errors import (
    ConfigError,
    QueryError,
    SchemaError,
    check_choice,
    check_count,
    check_fraction,
)
from anyorder.query_laws import Query
from anyorder.random_sets import source_device, subsets

if TYPE_CHECKING:
    from PIL import Image

Hole = NDArray[np.bool_]

HALF_A_BYTE = 128
"""A pixel of a file is unknown from this brightness on, or below this opacity."""


def rectangle_hole(size: Size, *, top: int, left: int, height: int, width: int) -> Hole:
    """A rectangle of unknown pixels.

    Args:
        size: Of the image.
        top: Its first row.
        left: Its first column.
        height: Of the rectangle.
        width: Of the rectangle.

    Example:
        >>> rectangle_hole((2, 4), top=0, left=1, height=1, width=2).astype(int)
        array([[0, 1, 1, 0],
               [0, 0, 0, 0]])
    """
    hole = _nothing(size)
    bottom = check_count("top", top, low=0) + check_count("height", height)
    right = check_count("left", left, low=0) + check_count("width", width)
    if bottom > hole.shape[0] or right > hole.shape[1]:
        raise ConfigError(
            f"The rectangle must lie in the image, which is {_shown(hole)} (height x width); it "
            f"ends before row {bottom} and column {right}."
        )
    hole[top:bottom, left:right] = True
    return hole


def half_hole(size: Size, side: str) -> Hole:
    """The left, right, top or bottom half; a row or column in the middle stays known."""
    check_choice("side", side, ("left", "right", "top", "bottom"))
    height, width = check_size(size)
    row, column = np.arange(height)[:, None], np.arange(width)
    halves = {
        "left": column < width // 2,
        "right": column >= width - width // 2,
        "top": row < height // 2,
        "bottom": row >= height - height // 2,
    }
    return _nothing(size) | halves[side]


def random_hole(size: Size, share: float, *, generator: torch.Generator) -> Hole:
    """Pixels drawn at random, as many as are nearest to a share of all."""
    check_fraction("share", share)
    device, hole = source_device(generator), _nothing(size)
    number = torch.tensor([round(share * hole.size)], device=device)
    everything = torch.ones(1, hole.size, dtype=torch.bool, device=device)
    return subsets(number, everything, generator=generator).numpy(force=True).reshape(hole.shape)


def alpha_hole(file: str | Path, size: Size) -> Hole:
    """The transparent pixels of a picture, such as a PNG file from which some were erased."""
    image = _mask(file)
    if not image.has_transparency_data:
        raise SchemaError(
            f'"{file}" must have an alpha channel, by which pixels are erased; it has none. '
            "Save it as PNG with transparency."
        )
    opacity = np.array(image.convert("RGBA").getchannel("A"))
    return _sized(opacity < HALF_A_BYTE, size, file)


def picture_hole(file: str | Path, size: Size) -> Hole:
    """The white pixels of a picture in black and white."""
    brightness = np.array(_mask(file).convert("L"))
    return _sized(brightness >= HALF_A_BYTE, size, file)


def hole_query(hole: Hole, shape: Shape | tuple[int, int, int]) -> Query:
    """The question that a hole asks: its pixels in all channels, given all others.

    Args:
        hole: True = unknown.
        shape: Of the images.

    Returns:
        Two sets of shape ``(vars,)``, the same for all rows.
    """
    query = pixel_set(hole, shape, argument="hole")
    if not query.any():
        raise QueryError("A hole must have an unknown pixel; it has none.")
    return Query(given=~query, query=query)


def pixel_set(pixels: Hole, shape: Shape | tuple[int, int, int], *, argument: str) -> Tensor:
    """The variables of some pixels, in all channels. Shape ``(vars,)``."""
    height, width, channels = shape
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.bool_:
        got = pixels.dtype if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise QueryError(f"`{argument}` must be an array of booleans, one a pixel; got {got}.")
    if pixels.shape != (height, width):
        raise QueryError(
            f"`{argument}` must have the shape of the images, {(height, width)}; got "
            f"{pixels.shape}."
        )
    return torch.from_numpy(np.tile(pixels.ravel(), check_count("channels", channels)))


def _nothing(size: Size) -> Hole:
    return np.zeros(check_size(size), dtype=np.bool_)


def _mask(file: str | Path) -> "Image.Image":
    check_picture_file(Path(file))
    image = decoded(Path(file), str(file))
    check_depth(image, str(file))
    return image


def _sized(hole: Hole, size: Size, file: str | Path) -> Hole:
    if hole.shape != check_size(size):
        raise SchemaError(
            f'"{file}" must be as large as the images, {_shown(_nothing(size))} (height x width); '
            f"it is {_shown(hole)}. Resize it."
        )
    return hole


def _shown(hole: Hole) -> str:
    return f"{hole.shape[0]}x{hole.shape[1]}"
